// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// AddonSource returns the directory of an addon's source in the module cache, which is read-only.
func (b Builder) AddonSource(ctx context.Context, addon addons.Addon) (string, error) {
	return b.source(ctx, Addon(addon))
}

// source returns the directory of the tool's module Source in the module cache, at the version of the tool.
func (b Builder) source(ctx context.Context, tool Tool) (string, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", tool.Source+"@"+tool.Version())
	command.Dir = b.module(tool)
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find the source of %s: %w", tool.Name, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return "", fmt.Errorf("read where the source of %s is: %w", tool.Name, err)
	}
	return module.Dir, nil
}

// changedSource copies the tool's module Source to a directory, changes files of it, and returns the argument with which the go
// command builds with the copy.
func (b Builder) changedSource(ctx context.Context, tool Tool, directory string) (argument string, err error) {
	source, err := b.source(ctx, tool)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(directory); err != nil {
		return "", fmt.Errorf("remove an old copy of the source: %w", err)
	}
	if output, err := exec.CommandContext(ctx, "cp", "-r", "--no-preserve=mode", source, directory).CombinedOutput(); err != nil {
		return "", fmt.Errorf("copy the source of %s: %w: %s", tool.Name, err, output)
	}
	for name, change := range tool.Changes {
		from := name
		if change.From != "" {
			from = change.From
		}
		content, err := os.ReadFile(filepath.Join(directory, from))
		if err != nil {
			return "", fmt.Errorf("change the source of %s: %w", tool.Name, err)
		}
		changed := string(content)
		if change.Old != "" {
			if n := strings.Count(changed, change.Old); n != 1 {
				return "", fmt.Errorf("%s of %s has %d times, not once: %s", from, tool.Name, n, change.Old)
			}
			changed = strings.Replace(changed, change.Old, change.New, 1)
		}
		if err := layout.WriteFile(filepath.Join(directory, name), []byte(changed)); err != nil {
			return "", err
		}
	}
	modules := directory + ".mod"
	for from, to := range map[string]string{"go.mod": modules, "go.sum": directory + ".sum"} {
		content, err := os.ReadFile(filepath.Join(b.module(tool), from))
		if err != nil {
			return "", fmt.Errorf("read the tool module: %w", err)
		}
		if to == modules {
			content = fmt.Appendf(content, "\nreplace %s => %q\n", tool.Source, directory)
		}
		if err := layout.WriteFile(to, content); err != nil {
			return "", err
		}
	}
	return "-modfile=" + modules, nil
}
