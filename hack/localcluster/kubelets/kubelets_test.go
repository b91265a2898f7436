// SPDX-License-Identifier: Apache-2.0

package kubelets_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/hack/localcluster/kubelets"
)

func TestParse(t *testing.T) {
	for _, name := range append(kubelets.Names(), "") {
		if got, err := kubelets.Parse(name); err != nil || got.Name != name {
			t.Errorf("%q is parsed as %q, %v", name, got.Name, err)
		}
	}
	if _, err := kubelets.Parse("fast"); err == nil || !strings.Contains(err.Error(), "ignore-phase, ignore-phase-merge,") {
		t.Errorf("an unknown kubelet gives the error %v", err)
	}
}

func TestVersion(t *testing.T) {
	for name, want := range map[string]string{"": "v1.36.3", "slow": "v1.36.3 (slow)"} {
		if got := (kubelets.Kubelet{Name: name}).Version("v1.36.3"); got != want {
			t.Errorf("the version of kubelet %q is %q, want %q", name, got, want)
		}
	}
}

func TestFeatureGates(t *testing.T) {
	kubelet := kubelets.Kubelet{Gates: []kubelets.Gate{{Name: "A", Since: 35}, {Name: "B", Since: 36}}}
	for version, want := range map[string]map[string]bool{"v1.34.4": {}, "v1.35.8": {"A": true}, "v1.36.3": {"A": true, "B": true}} {
		if got := kubelet.FeatureGates(version); !maps.Equal(got, want) {
			t.Errorf("the feature gates at %s are %v, want %v", version, got, want)
		}
	}
}

// Every kubelet differs from the released one, the README says how, and make test-kubelets runs it.
func TestAll(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../test-kubelets.sh")
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(kubelets.Names(), " "); !strings.Contains(string(script), "set -- "+all+"\n") {
		t.Errorf("hack/test-kubelets.sh does not run %s", all)
	}
	for _, kubelet := range kubelets.All {
		if len(kubelet.Edits)+len(kubelet.Gates) == 0 {
			t.Errorf("kubelet %s does not differ from the released one", kubelet.Name)
		}
		if !strings.Contains(string(readme), "\n| `"+kubelet.Name+"` |") {
			t.Errorf("the README does not describe kubelet %s", kubelet.Name)
		}
	}
}

func TestApply(t *testing.T) {
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "a.go"), []byte("package a\n\nvar one, two = 1, 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		edits []kubelets.Edit
		want  string
		err   string
	}{
		"two edits of a file": {
			edits: []kubelets.Edit{{"a.go", "one", "three"}, {"a.go", "three,", "four,"}},
			want:  "package a\n\nvar four, two = 1, 1\n",
		},
		"formatted":         {edits: []kubelets.Edit{{"a.go", ", two", ",two"}}, want: "package a\n\nvar one, two = 1, 1\n"},
		"missing snippet":   {edits: []kubelets.Edit{{"a.go", "three", ""}}, err: "patch kubelet x: a.go of Kubernetes v1.36.3 has 0 times, not once: three"},
		"ambiguous snippet": {edits: []kubelets.Edit{{"a.go", "1", "2"}}, err: "patch kubelet x: a.go of Kubernetes v1.36.3 has 2 times, not once: 1"},
		"missing file":      {edits: []kubelets.Edit{{"b.go", "1", "2"}}, err: "patch kubelet x: read the source of Kubernetes v1.36.3: open"},
		"invalid code":      {edits: []kubelets.Edit{{"a.go", "var", "vax"}}, err: "patch kubelet x: a.go of Kubernetes v1.36.3 does not parse:"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := kubelets.Kubelet{Name: "x", Edits: test.edits}.Apply(directory, "v1.36.3")
			if got := string(files["a.go"]); got != test.want {
				t.Errorf("the edited file is %q, want %q", got, test.want)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("the error is %v, want %q", err, test.err)
			}
		})
	}
}
