// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
)

// The go command builds with the changed files of a module.
func TestChangedSource(t *testing.T) {
	builder := Builder{Modules: filepath.Join("..", "..", "tools")}
	for _, addon := range addons.Find(addons.Names(), DefaultKruise) {
		if len(addon.Changes) == 0 {
			continue
		}
		tool, directory := Addon(addon), filepath.Join(t.TempDir(), "source")
		argument, err := builder.changedSource(t.Context(), tool, directory)
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range addon.Changes {
			content, err := os.ReadFile(filepath.Join(directory, name))
			if err != nil || !strings.Contains(string(content), change.New) {
				t.Errorf("%s lacks what the change writes: %v", name, err)
			}
			command := exec.Command("go", "list", argument, "-find", "-f", "{{.Dir}} {{.GoFiles}}", path.Join(addon.Module, path.Dir(name)))
			command.Dir = builder.module(tool)
			command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
			output, err := command.CombinedOutput()
			want := []string{directory, path.Base(name)}
			if err != nil || slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(string(output), text) }) {
				t.Errorf("the go command finds %s (%v), want %v", output, err, want)
			}
		}
	}
}
