// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRenderPutsFirstWhatOthersNeed(t *testing.T) {
	directory := t.TempDir()
	const manifests = `apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: a}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: a}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: a}
---
apiVersion: v1
kind: Namespace
metadata: {name: a}
`
	for name, content := range map[string]string{"kustomization.yaml": "resources: [all.yaml]\n", "all.yaml": manifests} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := render(directory)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range objects {
		kinds = append(kinds, object.GetKind())
	}
	want := []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRoleBinding", "Deployment"}
	if !slices.Equal(kinds, want) {
		t.Errorf("order is %v, want %v", kinds, want)
	}
}
