// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// busyboxProgram is where Debian's busybox-static has its program.
const busyboxProgram = "/bin/busybox"

// requirements maps the packages that the cluster needs to what shows that each is there.
var requirements = []struct {
	debian  string
	present func() bool
}{
	{"containerd", exists("/usr/bin/containerd")},
	{"runc", exists("/usr/sbin/runc")},
	{"containernetworking-plugins", exists("/usr/lib/cni/bridge")},
	{"busybox-static", isStatic(busyboxProgram)},
	{"iproute2", func() bool { _, err := exec.LookPath("ip"); return err == nil }},
}

func exists(file string) func() bool {
	return func() bool {
		_, err := os.Stat(file)
		return err == nil
	}
}

func isStatic(program string) func() bool {
	return func() bool {
		file, err := elf.Open(program)
		if err != nil {
			return false
		}
		defer func() { _ = file.Close() }()
		for _, header := range file.Progs {
			if header.Type == elf.PT_INTERP {
				return false
			}
		}
		return true
	}
}

func missingPackages() []string {
	var missing []string
	for _, requirement := range requirements {
		if !requirement.present() {
			missing = append(missing, requirement.debian)
		}
	}
	return missing
}

// requireRoot fails with one line that also names missing packages, so that someone who
// cannot be root knows what to ask for.
func requireRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	if missing := missingPackages(); len(missing) > 0 {
		return fmt.Errorf("the local cluster runs as root only, and the Debian packages %s are missing", strings.Join(missing, ", "))
	}
	return errors.New("the local cluster runs as root only")
}

// installPackages installs the missing packages. No service of theirs is started.
func (c *Cluster) installPackages(ctx context.Context) error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	return c.progress.Step("install "+strings.Join(missing, ", "), func() error {
		allow, err := forbidServices()
		if err != nil {
			return err
		}
		defer allow()
		if err := apt(ctx, "update", "-q"); err != nil {
			return err
		}
		return apt(ctx, append([]string{"install", "-q", "-y", "--no-install-recommends"}, missing...)...)
	})
}

// policyFile decides whether a package may start its services.
const policyFile = "/usr/sbin/policy-rc.d"

// forbidServices keeps packages from starting services until the returned function is
// called. A policy that the machine already has stays as it is.
func forbidServices() (func(), error) {
	file, err := os.OpenFile(policyFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("forbid services of new packages: %w", err)
	}
	_, err = file.WriteString("#!/bin/sh\nexit 101\n")
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("forbid services of new packages: %w", err)
	}
	return func() { _ = os.Remove(policyFile) }, nil
}

func apt(ctx context.Context, arguments ...string) error {
	command := exec.CommandContext(ctx, "apt-get", arguments...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	output := &bytes.Buffer{}
	command.Stdout, command.Stderr = output, output
	if err := command.Run(); err != nil {
		return fmt.Errorf("run apt-get %s: %w\n%s", strings.Join(arguments, " "), err, output)
	}
	return nil
}
