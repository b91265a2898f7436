// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestModernizeReplacesDeprecatedFields(t *testing.T) {
	content, err := modernize([]byte(`
namePrefix: kruise-
resources: [a.yaml]
bases: [../crd]
patchesStrategicMerge: [patch.yaml]
vars:
`))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	if err := yaml.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"namePrefix": "kruise-",
		"resources":  []any{"a.yaml", "../crd"},
		"patches":    []any{map[string]any{"path": "patch.yaml"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("kustomization is %v, want %v", got, want)
	}
}
