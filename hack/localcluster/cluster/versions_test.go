// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

func TestParse(t *testing.T) {
	const with = "kruise,virtual-node"
	for name, test := range map[string]struct {
		versions, want Versions
		text, err      string
	}{
		"defaults": {
			want: Versions{Kubernetes: defaultKubernetes, KubeletVersion: defaultKubernetes, Kruise: defaultKruise, With: with},
			text: "Kubernetes " + defaultKubernetes + ", with kruise and virtual-node",
		},
		"with and without v": {
			versions: Versions{Kubernetes: "1.37.2", KubeletVersion: "v1.34.10", Kruise: "1.9.1", With: "none"},
			want:     Versions{Kubernetes: "v1.37.2", KubeletVersion: "v1.34.10", Kruise: "v1.9.1"},
			text:     "Kubernetes v1.37.2, kubelet v1.34.10, OpenKruise v1.9.1",
		},
		"unknown Kubernetes":            {versions: Versions{Kubernetes: "1.2.3"}, err: "kubernetes 1.2.3 is not supported here: choose one of v1.34.10, v1.35.8, v1.36.4"},
		"old Kubernetes":                {versions: Versions{Kubernetes: "1.33.0"}, err: "kubernetes 1.33.0 is not supported here"},
		"unknown kubelet":               {versions: Versions{KubeletVersion: "latest"}, err: "kubelet latest is not supported here"},
		"kubelet newer than API server": {versions: Versions{Kubernetes: "1.36.4", KubeletVersion: "1.37.2"}, err: "an API server v1.36.4 does not support kubelet v1.37.2"},
		"unknown OpenKruise":            {versions: Versions{Kruise: "1.0.0"}, err: "OpenKruise 1.0.0 is not supported here"},
		"unknown addon":                 {versions: Versions{With: "jobset,volcano"}, err: "there is no addon volcano: choose from"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.versions.Parse()
			if test.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.err) {
					t.Errorf("the error is %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("versions are %+v, want %+v", got, test.want)
			}
			if got.String() != test.text {
				t.Errorf("the text is %q, want %q", got, test.text)
			}
		})
	}
}

func TestNext(t *testing.T) {
	running := Versions{Kubernetes: "v1.37.2", KubeletVersion: "v1.36.4", Kruise: "v1.8.3", With: "kruise"}
	for name, test := range map[string]struct {
		change func(*Versions)
		with   string // empty for an error
	}{
		"no change":        {func(*Versions) {}, "kruise"},
		"other kubelet":    {func(v *Versions) { v.KubeletVersion = "v1.37.2" }, ""},
		"other Kubernetes": {func(v *Versions) { v.Kubernetes = "v1.36.4" }, ""},
		"other OpenKruise": {func(v *Versions) { v.Kruise = "v1.9.1" }, ""},
		"more addons":      {func(v *Versions) { v.With = "jobset,kruise" }, "jobset,kruise"},
		"other addons":     {func(v *Versions) { v.With = "jobset" }, "jobset,kruise"},
		"fewer addons":     {func(v *Versions) { v.With = "" }, "kruise"},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := running
			test.change(&wanted)
			got, err := running.next(wanted)
			if (err == nil) != (test.with != "") || err == nil && got.With != test.with {
				t.Errorf("it becomes one with %s, want %s; error: %v", got.With, test.with, err)
			}
		})
	}
}

// Each version of a program has a tool module that pins it, together with the staging modules of the same release, and has its packages.
func TestToolModules(t *testing.T) {
	var tools []toolchain.Tool
	for _, version := range kubernetesVersions {
		tools = append(tools, toolchain.Kubernetes(version))
	}
	for _, version := range kruiseVersions {
		for _, addon := range (&Cluster{Versions: Versions{Kruise: version, With: strings.Join(knownNames(), ",")}}).addons() {
			if addon.Tool.Directory == "" {
				tools = append(tools, addon.Tool)
			}
		}
	}
	for _, tool := range tools {
		command := exec.Command("go", "mod", "edit", "-json")
		command.Dir = filepath.Join("..", "..", "tools", tool.Name)
		output, err := command.Output()
		if err != nil {
			t.Fatalf("read the tool module of %s: %v", tool.Name, err)
		}
		type version struct{ Path, Version string }
		var module struct {
			Require []version
			Replace []struct{ Old, New version }
			Tool    []struct{ Path string }
		}
		if err := json.Unmarshal(output, &module); err != nil {
			t.Fatal(err)
		}
		want := version{cmp.Or(tool.Source, "k8s.io/kubernetes"), tool.Version()}
		if !slices.Contains(module.Require, want) {
			t.Errorf("the tool module of %s does not require %v", tool.Name, want)
		}
		for _, replace := range module.Replace {
			if want := (version{replace.Old.Path, "v0" + strings.TrimPrefix(tool.Version(), "v1")}); tool.Source == "" && replace.New != want {
				t.Errorf("the tool module of %s replaces %s with %v, want %v", tool.Name, replace.Old.Path, replace.New, want)
			}
		}
		var packages []string
		for _, one := range module.Tool {
			packages = append(packages, one.Path)
		}
		if want := slices.Sorted(maps.Values(tool.Packages)); !slices.Equal(packages, want) {
			t.Errorf("the tool module of %s has the tools %v, want %v", tool.Name, packages, want)
		}
	}
}
