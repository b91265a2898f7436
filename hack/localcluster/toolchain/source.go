// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// Source returns the directory of the tool's module Source in the module cache, which is read-only.
func (b Builder) Source(ctx context.Context, tool Tool) (string, error) {
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

// changedSource copies the tool's module Source to a directory, changes the copy, and returns the argument with which the go command
// builds with the copy.
func (b Builder) changedSource(ctx context.Context, tool Tool, directory string) (argument string, err error) {
	source, err := b.Source(ctx, tool)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(directory); err != nil {
		return "", fmt.Errorf("remove an old copy of the source: %w", err)
	}
	const script = `cp -r --no-preserve=mode "$0" "$1"; cd "$1"; eval "$2"`
	if output, err := exec.CommandContext(ctx, "sh", "-euc", script, source, directory, tool.Change).CombinedOutput(); err != nil {
		return "", fmt.Errorf("change the source of %s: %w: %s", tool.Name, err, output)
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
