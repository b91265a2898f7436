// SPDX-License-Identifier: Apache-2.0

// Package toolchain builds the programs of the cluster from source, once for each version, and keeps them in a cache that all clusters of a
// user share.
package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

const stampName = ".stamp"

// Builder builds tools.
type Builder struct {
	// Modules is the directory that holds the tool modules.
	Modules string
	// Cache is the directory that holds one directory of binaries for each tool.
	Cache string
}

// Ensure returns the directory of the tool's binaries, after building those named, or all if none is, that are missing or were built from
// another tool module.
func (b Builder) Ensure(ctx context.Context, tool Tool, binaries ...string) (string, error) {
	if len(binaries) == 0 {
		binaries = tool.Binaries()
	}
	unlock, err := layout.Lock(filepath.Join(b.Cache, "."+tool.Name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	stamp, err := key(tool, os.DirFS(b.module(tool)))
	if err != nil {
		return "", err
	}
	directory := b.Directory(tool)
	if current, err := os.ReadFile(filepath.Join(directory, stampName)); err != nil || string(current) != stamp {
		if err := os.RemoveAll(directory); err != nil {
			return "", fmt.Errorf("remove old binaries of %s: %w", tool.Name, err)
		}
		if err := layout.WriteFile(filepath.Join(directory, stampName), []byte(stamp)); err != nil {
			return "", err
		}
	}
	binaries = slices.DeleteFunc(slices.Clone(binaries), func(name string) bool {
		_, err := os.Stat(filepath.Join(directory, name))
		return err == nil
	})
	if len(binaries) == 0 {
		return directory, nil
	}
	what := tool.Name
	if len(binaries) < len(tool.Packages) {
		what += " (" + strings.Join(binaries, ", ") + ")"
	}
	return directory, progress.Step(fmt.Sprintf("build %s, about %s the first time", what, tool.Duration), func() error {
		return b.compile(ctx, tool, directory, binaries)
	})
}

func (b Builder) module(tool Tool) string {
	return filepath.Join(b.Modules, cmp.Or(tool.Directory, tool.Name))
}

// compile builds the binaries one by one. Each appears in the directory when it is complete. Builds share compiled packages.
func (b Builder) compile(ctx context.Context, tool Tool, directory string, binaries []string) error {
	arguments := []string{"build", "-p", "2", "-trimpath", "-ldflags", tool.linkerFlags()}
	if tool.Change != "" {
		argument, err := b.changedSource(ctx, tool, filepath.Join(directory, "source"))
		if err != nil {
			return err
		}
		arguments = append(arguments, argument)
	}
	for i, name := range binaries {
		unfinished := filepath.Join(directory, "."+name)
		command := exec.CommandContext(ctx, "go", slices.Concat(arguments, []string{"-o", unfinished, tool.Packages[name]})...)
		command.Dir = b.module(tool)
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s of %s: %w\n%s", name, tool.Name, err, output)
		}
		if err := os.Rename(unfinished, filepath.Join(directory, name)); err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
		progress.Say("built %s, %d of %d", name, i+1, len(binaries))
	}
	return nil
}

// Directory returns where Ensure puts the tool's binaries.
func (b Builder) Directory(tool Tool) string { return filepath.Join(b.Cache, tool.Name) }

// EnsureEnvtest returns a directory that serves as KUBEBUILDER_ASSETS: kube-apiserver and kubectl of the Kubernetes version, and etcd.
func (b Builder) EnsureEnvtest(ctx context.Context, version string) (string, error) {
	kubernetes, err := b.Ensure(ctx, Kubernetes(version), "kube-apiserver", "kubectl")
	if err != nil {
		return "", err
	}
	etcd, err := b.Ensure(ctx, Etcd())
	if err != nil {
		return "", err
	}
	directory := filepath.Join(b.Cache, "envtest-"+version+"-"+Etcd().Name)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return "", fmt.Errorf("create the envtest directory: %w", err)
	}
	for name, from := range map[string]string{"kube-apiserver": kubernetes, "kubectl": kubernetes, "etcd": etcd} {
		link := filepath.Join(directory, name)
		if err := os.Symlink(filepath.Join(from, name), link); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("link %s for envtest: %w", name, err)
		}
	}
	return directory, nil
}
