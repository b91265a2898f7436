// SPDX-License-Identifier: Apache-2.0

// Package toolchain builds the programs of the cluster from source, once for each
// version, and keeps them in a cache that all clusters of a user share.
package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

const stampName = ".stamp"

// Builder builds tools.
type Builder struct {
	// Modules is the directory that holds the tool modules.
	Modules string
	// Cache is the directory that holds one directory of binaries for each tool.
	Cache    string
	Progress *progress.Reporter
}

// Ensure returns the directory of the tool's binaries, after building those named, or
// all if none is, that are missing or were built from another tool module. A directory
// in the cache never holds partial binaries.
func (b Builder) Ensure(ctx context.Context, tool Tool, binaries ...string) (string, error) {
	if len(binaries) == 0 {
		binaries = tool.Binaries()
	}
	unlock, err := b.lock(tool)
	if err != nil {
		return "", err
	}
	defer unlock()
	stamp, err := key(tool, b.module(tool))
	if err != nil {
		return "", err
	}
	directory := b.Directory(tool)
	current, err := os.ReadFile(filepath.Join(directory, stampName))
	stale := err != nil || string(current) != stamp
	if !stale {
		binaries = missingFrom(directory, binaries)
	}
	if len(binaries) == 0 {
		return directory, nil
	}
	return directory, b.install(ctx, tool, directory, binaries, stale, stamp)
}

func (b Builder) module(tool Tool) string {
	return filepath.Join(b.Modules, cmp.Or(tool.Module, tool.Name))
}

func missingFrom(directory string, binaries []string) []string {
	var missing []string
	for _, name := range binaries {
		if _, err := os.Stat(filepath.Join(directory, name)); err != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// install builds into a temporary directory, and moves the binaries from there. It removes binaries of another stamp.
func (b Builder) install(ctx context.Context, tool Tool, directory string, binaries []string, stale bool, stamp string) error {
	temporary, err := b.build(ctx, tool, binaries)
	defer func() { _ = os.RemoveAll(temporary) }()
	if err != nil {
		return err
	}
	if stale {
		if err := os.WriteFile(filepath.Join(temporary, stampName), []byte(stamp), 0o644); err != nil {
			return fmt.Errorf("write the stamp of %s: %w", tool.Name, err)
		}
		if err := os.RemoveAll(directory); err != nil {
			return fmt.Errorf("remove old binaries of %s: %w", tool.Name, err)
		}
		if err := os.Rename(temporary, directory); err != nil {
			return fmt.Errorf("install the binaries of %s: %w", tool.Name, err)
		}
		return nil
	}
	for _, name := range binaries {
		if err := os.Rename(filepath.Join(temporary, name), filepath.Join(directory, name)); err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
	}
	return nil
}

// build returns a new directory with the binaries. It returns the directory even if it fails.
func (b Builder) build(ctx context.Context, tool Tool, binaries []string) (string, error) {
	temporary, err := os.MkdirTemp(b.Cache, "."+tool.Name+"-")
	if err != nil {
		return "", fmt.Errorf("create a build directory: %w", err)
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return temporary, fmt.Errorf("open the build directory: %w", err)
	}
	what := tool.Name
	if len(binaries) < len(tool.Packages) {
		what += " (" + strings.Join(binaries, ", ") + ")"
	}
	err = b.Progress.Step(fmt.Sprintf("build %s, about %s the first time", what, tool.Duration), func() error {
		return b.compile(ctx, tool, temporary, binaries)
	})
	return temporary, err
}

func (b Builder) compile(ctx context.Context, tool Tool, directory string, binaries []string) error {
	// All packages of one call share the work; a binary's name is its package's last element.
	arguments := []string{"build", "-p", "2", "-trimpath", "-ldflags", tool.LinkerFlags, "-o", directory + string(filepath.Separator)}
	for _, name := range binaries {
		arguments = append(arguments, tool.Packages[name])
	}
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = b.module(tool)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", tool.Name, err, output)
	}
	for _, name := range binaries {
		built := filepath.Join(directory, builtName(tool.Packages[name]))
		if err := os.Rename(built, filepath.Join(directory, name)); err != nil {
			return fmt.Errorf("name the binary %s: %w", name, err)
		}
	}
	return nil
}

// builtName is the name that the go command gives to the binary of a package: its path's
// last element, or the one before where that is a major version.
func builtName(path string) string {
	last := filepath.Base(path)
	if strings.HasPrefix(last, "v") && strings.Trim(last[1:], "0123456789") == "" {
		return filepath.Base(filepath.Dir(path))
	}
	return last
}

// lock keeps two builds of the same tool apart.
func (b Builder) lock(tool Tool) (func(), error) {
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("create the cache: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(b.Cache, "."+tool.Name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of %s: %w", tool.Name, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", tool.Name, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// Directory returns where Ensure puts the tool's binaries.
func (b Builder) Directory(tool Tool) string { return filepath.Join(b.Cache, tool.Name) }
