// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The go command builds with the changed files of a module. A change that fails is an error.
func TestChangedSource(t *testing.T) {
	const module = "sigs.k8s.io/jobset"
	builder, directory := Builder{Modules: filepath.Join("..", "..", "tools")}, filepath.Join(t.TempDir(), "source")
	tool := Tool{Name: "jobset-v0.11.0", Source: module, Change: "false\nrm main.go"}
	if _, err := builder.changedSource(t.Context(), tool, directory); err == nil {
		t.Error("a change that fails is no error")
	}
	tool.Change = "echo package main >new.go"
	argument, err := builder.changedSource(t.Context(), tool, directory)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", "list", argument, "-find", "-f", "{{.Dir}} {{.GoFiles}}", module)
	command.Dir = builder.module(tool)
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	// On standard error it reports downloads.
	if output, err := command.Output(); err != nil || string(output) != directory+" [main.go new.go]\n" {
		t.Errorf("the go command finds %s (%v)", strings.TrimSpace(string(output)), err)
	}
}
