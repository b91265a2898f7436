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
	for name, test := range map[string]struct {
		versions, want Versions
		text, err      string
	}{
		"defaults": {
			want: Versions{Kubernetes: DefaultKubernetes, KubeletVersion: DefaultKubernetes, Kruise: DefaultKruise},
			text: "Kubernetes " + DefaultKubernetes,
		},
		"with and without v": {
			versions: Versions{Kubernetes: "1.36.4", KubeletVersion: "v1.34.10"},
			want:     Versions{Kubernetes: "v1.36.4", KubeletVersion: "v1.34.10", Kruise: DefaultKruise},
			text:     "Kubernetes v1.36.4, kubelet v1.34.10",
		},
		"everything else": {
			versions: Versions{Kubernetes: "1.37.2", Kruise: "none"},
			want:     Versions{Kubernetes: "v1.37.2", KubeletVersion: "v1.37.2", Kruise: "none"},
			text:     "Kubernetes v1.37.2, OpenKruise none",
		},
		"addons": {
			versions: Versions{With: "jobset, jobset"},
			want:     Versions{Kubernetes: DefaultKubernetes, KubeletVersion: DefaultKubernetes, Kruise: DefaultKruise, With: "jobset"},
			text:     "Kubernetes " + DefaultKubernetes + ", with jobset",
		},
		"unknown Kubernetes":            {versions: Versions{Kubernetes: "1.2.3"}, err: "kubernetes 1.2.3 is not supported here: choose one of v1.36.4"},
		"unknown kubelet version":       {versions: Versions{KubeletVersion: "latest"}, err: "kubelet latest is not supported here"},
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

func TestUpgradesKubelets(t *testing.T) {
	current := Versions{Kubernetes: "v1.37.2", KubeletVersion: "v1.36.4", Kruise: "v1.8.3"}
	for name, test := range map[string]struct {
		change func(*Versions)
		want   bool
	}{
		"newer kubelet":          {func(v *Versions) { v.KubeletVersion = "v1.37.2" }, true},
		"older kubelet":          {func(v *Versions) { v.KubeletVersion = "v1.34.10" }, false},
		"no change":              {func(*Versions) {}, false},
		"newer kubelet and more": {func(v *Versions) { v.KubeletVersion, v.Kruise = "v1.37.2", "v1.9.1" }, false},
		"two digits":             {func(v *Versions) { v.KubeletVersion = "v1.36.10" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			other := current
			test.change(&other)
			if got := current.UpgradesKubelets(other); got != test.want {
				t.Errorf("upgrades kubelets is %t", got)
			}
		})
	}
}

func TestGainsAddons(t *testing.T) {
	none := Versions{Kubernetes: "v1.37.2"}
	one, two := none, none
	one.With, two.With = "jobset", "jobset,kueue"
	other := two
	other.Kruise = "v1.9.1"
	for name, test := range map[string]struct {
		from, to Versions
		want     bool
	}{
		"first":         {none, one, true},
		"more":          {one, two, true},
		"none":          {one, one, false},
		"fewer":         {two, one, false},
		"all gone":      {one, none, false},
		"more and more": {one, other, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.from.GainsAddons(test.to); got != test.want {
				t.Errorf("gains addons is %t", got)
			}
		})
	}
}

// Each version of OpenKruise has a tool module.
func TestModulesExist(t *testing.T) {
	var tools []Tool
	for _, version := range kruiseVersions {
		if version != WithoutKruise {
			tools = append(tools, Kruise(version))
		}
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
