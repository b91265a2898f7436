// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "jobset": "jobset", " jobset ,,jobset": "jobset", "jobset,all": strings.Join(Names(), ","),
	} {
		chosen, list, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, addon := range chosen {
			names = append(names, addon.Name)
		}
		if list != want || strings.Join(names, ",") != want {
			t.Errorf("%q is %q and the addons %v, want %q", text, list, names, want)
		}
	}
	_, _, err := Parse("jobset,volcano")
	if err == nil || !strings.HasPrefix(err.Error(), "there is no addon volcano: choose from ") || !strings.Contains(err.Error(), "jobset") {
		t.Errorf("the error is %v", err)
	}
}

// Each addon has a tool module that pins it and builds its programs.
func TestModulesExist(t *testing.T) {
	for _, addon := range All() {
		command := exec.Command("go", "mod", "edit", "-json")
		command.Dir = filepath.Join("..", "..", "tools", addon.Name+"-"+addon.Version)
		output, err := command.Output()
		if err != nil {
			t.Fatalf("read the tool module of %s: %v", addon.Name, err)
		}
		type version struct{ Path, Version string }
		var module struct {
			Require []version
			Tool    []struct{ Path string }
		}
		if err := json.Unmarshal(output, &module); err != nil {
			t.Fatal(err)
		}
		if want := (version{addon.Module, addon.Version}); !slices.Contains(module.Require, want) {
			t.Errorf("the tool module of %s does not require %v", addon.Name, want)
		}
		var tools []string
		for _, tool := range module.Tool {
			tools = append(tools, tool.Path)
		}
		slices.Sort(tools)
		if want := slices.Sorted(maps.Values(addon.Packages)); !slices.Equal(tools, want) {
			t.Errorf("the tool module of %s has the tools %v, want %v", addon.Name, tools, want)
		}
	}
}

func TestAddonsAreComplete(t *testing.T) {
	for _, addon := range All() {
		if addon.Duration == "" || addon.Namespace == "" || len(addon.Manifests) == 0 || len(addon.Processes) == 0 {
			t.Errorf("%s lacks a duration, a namespace, manifests or processes", addon.Name)
		}
		for _, process := range addon.Processes {
			if addon.Packages[process.BinaryName()] == "" {
				t.Errorf("%s has no package for %s", addon.Name, process.BinaryName())
			}
			if process.Account == "" || process.Health == "" {
				t.Errorf("%s lacks an account or a health check", process.Name)
			}
			if hook := process.Webhook; (hook.Service == "") != (hook.Port == 0) || hook.Secret != "" && !hook.OwnCertificates {
				t.Errorf("%s has an incomplete webhook", process.Name)
			}
			// Without it, nothing would find a process whose record was lost.
			if !slices.ContainsFunc(process.Arguments, func(argument string) bool { return strings.HasSuffix(argument, "={kubeconfig}") }) {
				t.Errorf("%s has no argument with its kubeconfig", process.Name)
			}
		}
		for _, image := range addon.Images {
			for _, binary := range image.Programs {
				if addon.Packages[binary] == "" {
					t.Errorf("%s has no package for %s", addon.Name, binary)
				}
			}
		}
	}
}
