// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	const with = "kruise,virtual-node"
	for name, test := range map[string]struct {
		versions, want Versions
		text, err      string
	}{
		"defaults": {
			want: Versions{Kubernetes: DefaultKubernetes, KubeletVersion: DefaultKubernetes, Kruise: DefaultKruise, With: with},
			text: "Kubernetes " + DefaultKubernetes + ", with kruise and virtual-node",
		},
		"with and without v": {
			versions: Versions{Kubernetes: "1.37.2", KubeletVersion: "v1.34.10", Kruise: "1.9.1", With: "none"},
			want:     Versions{Kubernetes: "v1.37.2", KubeletVersion: "v1.34.10", Kruise: "v1.9.1"},
			text:     "Kubernetes v1.37.2, kubelet v1.34.10, OpenKruise v1.9.1",
		},
		"unknown Kubernetes":            {versions: Versions{Kubernetes: "1.2.3"}, err: "kubernetes 1.2.3 is not supported here: choose one of v1.36.4"},
		"old Kubernetes":                {versions: Versions{Kubernetes: "1.34.10"}, err: "kubernetes 1.34.10 is not supported here"},
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
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("versions (-want +got):\n%s", diff)
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
		change  func(*Versions)
		kubelet string
		with    string
	}{
		"no change":        {func(*Versions) {}, "v1.36.4", "kruise"},
		"newer kubelet":    {func(v *Versions) { v.KubeletVersion = "v1.37.2" }, "v1.37.2", "kruise"},
		"older kubelet":    {func(v *Versions) { v.KubeletVersion = "v1.34.10" }, "", ""},
		"other Kubernetes": {func(v *Versions) { v.Kubernetes = "v1.36.4" }, "", ""},
		"other OpenKruise": {func(v *Versions) { v.Kruise = "v1.9.1" }, "", ""},
		"more addons":      {func(v *Versions) { v.With = "jobset,kruise" }, "v1.36.4", "jobset,kruise"},
		"other addons":     {func(v *Versions) { v.With = "jobset" }, "v1.36.4", "jobset,kruise"},
		"fewer addons":     {func(v *Versions) { v.With = "" }, "v1.36.4", "kruise"},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := running
			test.change(&wanted)
			got, err := running.Next(wanted)
			if (err == nil) != (test.kubelet != "") {
				t.Fatalf("the error is %v", err)
			}
			if err == nil && (got.KubeletVersion != test.kubelet || got.With != test.with) {
				t.Errorf("it becomes %s with %s, want %s with %s", got.KubeletVersion, got.With, test.kubelet, test.with)
			}
		})
	}
}

func TestAddonsOfVersions(t *testing.T) {
	versions := Versions{Kruise: "v1.9.1", With: "jobset,kruise"}
	if !versions.Has("kruise") || versions.Has("argo") || versions.Without("kruise").With != "jobset" || len(Versions{}.Addons()) != 0 {
		t.Errorf("%v has the wrong addons", versions)
	}
}

// Each version of OpenKruise has a tool module.
func TestModulesExist(t *testing.T) {
	var tools []Tool
	for _, version := range kruiseVersions {
		tools = append(tools, Versions{Kruise: version}.KruiseTool())
	}
	for _, tool := range tools {
		module, err := os.ReadFile(filepath.Join("..", "..", "tools", tool.Name, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(module), " "+tool.Version()) {
			t.Errorf("the tool module of %s does not require it", tool.Name)
		}
	}
}
