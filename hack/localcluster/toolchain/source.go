// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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

// changedSource copies the tool's module Source to a directory, changes the copy, and returns the argument with which the go command builds
// with the copy.
func (b Builder) changedSource(ctx context.Context, tool Tool, directory string) (argument string, err error) {
	source, err := b.Source(ctx, tool)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(directory); err != nil {
		return "", fmt.Errorf("remove an old copy of the source: %w", err)
	}
	const script = `cp -r --no-preserve=mode "$0" "$1"
cp "$2/go.mod" "$1.mod"
cp "$2/go.sum" "$1.sum"
go mod edit -replace="$3=$1" "$1.mod"
cd "$1"
eval "$4"`
	command := exec.CommandContext(ctx, "sh", "-euc", script, source, directory, b.module(tool), tool.Source, tool.Change)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("change the source of %s: %w: %s", tool.Name, err, output)
	}
	return "-modfile=" + directory + ".mod", nil
}
