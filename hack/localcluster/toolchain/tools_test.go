// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestKubernetesReportsItsVersion(t *testing.T) {
	flags := Kubernetes("v1.34.10").LinkerFlags
	for _, want := range []string{".gitVersion=v1.34.10", ".gitMajor=1", ".gitMinor=34"} {
		if !strings.Contains(flags, want) {
			t.Errorf("the linker flags %q lack %s", flags, want)
		}
	}
}

// Each supported version has a tool module that pins it, together with the staging modules of the same release.
func TestKubernetesModules(t *testing.T) {
	directories, err := filepath.Glob("../../tools/kubernetes-*")
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, directory := range directories {
		tool := Kubernetes(strings.TrimPrefix(filepath.Base(directory), "kubernetes-"))
		versions = append(versions, tool.Version())
		command := exec.Command("go", "mod", "edit", "-json")
		command.Dir = directory
		output, err := command.Output()
		if err != nil {
			t.Fatalf("read %s: %v", directory, err)
		}
		type version struct{ Path, Version string }
		var module struct {
			Require []version
			Replace []struct{ Old, New version }
			Tool    []struct{ Path string }
		}
		if err := json.Unmarshal(output, &module); err != nil {
			t.Fatalf("parse %s: %v", directory, err)
		}
		if want := (version{"k8s.io/kubernetes", tool.Version()}); !slices.Contains(module.Require, want) {
			t.Errorf("%s does not require %v", directory, want)
		}
		for _, replace := range module.Replace {
			if want := (version{replace.Old.Path, "v0" + strings.TrimPrefix(tool.Version(), "v1")}); replace.New != want {
				t.Errorf("%s replaces %s with %v, want %v", directory, replace.Old.Path, replace.New, want)
			}
		}
		var tools []string
		for _, one := range module.Tool {
			tools = append(tools, one.Path)
		}
		if want := slices.Sorted(maps.Values(tool.Packages)); !slices.Equal(tools, want) {
			t.Errorf("%s has the tools %v, want %v", directory, tools, want)
		}
	}
	if !slices.Equal(versions, kubeletVersions) {
		t.Errorf("there are tool modules for %v, want %v", versions, kubeletVersions)
	}
}

func TestVersion(t *testing.T) {
	for _, name := range []string{"kruise-v1.8.3", "virtual-kruise-v1.8.3"} {
		if got := (Tool{Name: name}).Version(); got != "v1.8.3" {
			t.Errorf("version of %s is %q", name, got)
		}
	}
}
