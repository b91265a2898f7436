// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestSortForApplyPutsFirstWhatOthersNeed(t *testing.T) {
	var objects []*unstructured.Unstructured
	for _, kind := range []string{"Deployment", "ClusterRoleBinding", "CustomResourceDefinition", "ServiceAccount", "Namespace"} {
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{"kind": kind}})
	}
	sortForApply(objects)
	var kinds []string
	for _, object := range objects {
		kinds = append(kinds, object.GetKind())
	}
	want := []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRoleBinding", "Deployment"}
	if !slices.Equal(kinds, want) {
		t.Errorf("order is %v, want %v", kinds, want)
	}
}
