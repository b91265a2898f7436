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
		"":                 "kruise,virtual-node",
		" jobset ,,jobset": "jobset,kruise,virtual-node",
		"jobset,all":       strings.Join(Names(), ","),
		"none":             "",
	} {
		names, err := Parse(text)
		if got := strings.Join(names, ","); err != nil || got != want {
			t.Errorf("%q is %q (%v), want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"jobset,volcano", "jobset,none"} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), ": choose from argo, jobset") {
			t.Errorf("the error for %q is %v", text, err)
		}
	}
}

func TestFindChoosesTheVersionOfOpenKruise(t *testing.T) {
	found := Find([]string{"jobset", Kruise}, "v1.9.1")
	if len(found) != 2 || found[0].Name != "jobset" || found[1].Version != "v1.9.1" {
		t.Errorf("found %v", found)
	}
}

// pinned returns the addons whose tool modules have nothing but one version of them.
func pinned() []Addon {
	return slices.DeleteFunc(Find(Names(), ""), func(addon Addon) bool { return addon.Name == Kruise || addon.Name == VirtualNode })
}

// Each addon has a tool module that pins it and builds its programs.
func TestModulesExist(t *testing.T) {
	for _, addon := range pinned() {
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
	for _, addon := range Find(Names(), "v1.9.1") {
		if addon.Duration == "" || (addon.Namespace == "") != (len(addon.Manifests) == 0) || len(addon.Processes) == 0 {
			t.Errorf("%s lacks a duration, a namespace, manifests or processes", addon.Name)
		}
		for _, process := range addon.Processes {
			if addon.Packages[process.BinaryName()] == "" {
				t.Errorf("%s has no package for %s", addon.Name, process.BinaryName())
			}
			if (process.Account == "") != (addon.Namespace == "") || process.Health == "" {
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
