// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

// busyboxProgram is where Debian's busybox-static has its program.
const busyboxProgram = "/bin/busybox"

// requirements maps the packages that the cluster needs to a file of each.
var requirements = map[string]string{
	"containerd": "/usr/bin/containerd",
	"crun":       "/usr/bin/crun",
	// The package busybox has the same program, but linked dynamically.
	"busybox-static": "/var/lib/dpkg/info/busybox-static.list",
	"iproute2":       "/usr/sbin/ip",
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func missingPackages() []string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(requirements)) {
		if !exists(requirements[name]) {
			missing = append(missing, name)
		}
	}
	return missing
}

// requireRoot fails with an error that names missing packages, so that someone who cannot be root knows what to ask for.
func requireRoot() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("the local cluster runs as root only; missing Debian packages: %q", missingPackages())
	}
	return nil
}

// policyFile decides whether a package may start its services.
const policyFile = "/usr/sbin/policy-rc.d"

// installPackages installs the missing packages. Unless the machine has a policy of its own, it starts none of their services.
func installPackages(ctx context.Context) error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	return progress.Step("install "+strings.Join(missing, ", "), func() error {
		if !exists(policyFile) {
			defer func() { _ = os.Remove(policyFile) }()
			if err := os.WriteFile(policyFile, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
				return fmt.Errorf("forbid services of new packages: %w", err)
			}
		}
		if err := apt(ctx, "update", "-q"); err != nil {
			return err
		}
		return apt(ctx, append([]string{"install", "-q", "-y", "--no-install-recommends"}, missing...)...)
	})
}

func apt(ctx context.Context, arguments ...string) error {
	command := exec.CommandContext(ctx, "apt-get", arguments...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("run apt-get %s: %w\n%s", strings.Join(arguments, " "), err, output)
	}
	return nil
}
