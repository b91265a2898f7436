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

func goCommand(t *testing.T, directory string, arguments ...string) string {
	t.Helper()
	command := exec.Command("go", arguments...)
	command.Dir = directory
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	// Not what it says about downloads.
	var complaints strings.Builder
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, complaints.String())
	}
	return strings.TrimSpace(string(output))
}

var builder = Builder{Modules: filepath.Join("..", "..", "tools")}

// The go command finds a file that is a link in the repository of the module.
func TestLinks(t *testing.T) {
	for _, addon := range addons.All() {
		for link, target := range addon.Links {
			tool, directory := Addon(addon), t.TempDir()
			arguments, err := builder.overlay(t.Context(), tool, directory)
			if err != nil {
				t.Fatal(err)
			}
			source, err := builder.AddonSource(t.Context(), addon)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(source, link)); err == nil {
				t.Errorf("%s has the file %s, so it needs no link", tool.Name, link)
			}
			if _, err := os.Stat(filepath.Join(source, target)); err != nil {
				t.Error(err)
			}
			list := slices.Concat([]string{"list"}, arguments, []string{"-find", "-f", "{{.GoFiles}}", path.Join(addon.Module, path.Dir(link))})
			if got := goCommand(t, builder.module(tool), list...); !strings.Contains(got, path.Base(link)) {
				t.Errorf("the files of %s are %s, without %s", tool.Name, got, link)
			}
		}
	}
}
