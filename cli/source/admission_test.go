// SPDX-License-Identifier: Apache-2.0

package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	header        = "apiVersion: sidecartermination.dev/v1alpha1\nkind: SidecarTerminationPolicy\nmetadata: {name: mesh, namespace: batch}\n"
	clusterHeader = "apiVersion: sidecartermination.dev/v1alpha1\nkind: ClusterSidecarTerminationPolicy\nmetadata: {name: mesh}\n"
)

func TestInvalidPolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		policy string
		fields []string
	}{
		"valid policy":                {header + "spec: {podSelector: {}, sidecars: [{name: proxy, drainSeconds: 5}], mode: CRR}", nil},
		"valid cluster policy":        {clusterHeader + "spec: {podSelector: {}, namespaceSelector: {}, mainContainers: [main]}", nil},
		"unknown field":               {header + "spec: {podSelector: {}, sidecars: [{name: proxy, drain: 5}]}", []string{"spec.sidecars[0].drain"}},
		"field of the other kind":     {header + "spec: {podSelector: {}, namespaceSelector: {}, sidecars: [{name: proxy}]}", []string{"spec.namespaceSelector"}},
		"unknown mode":                {header + "spec: {podSelector: {}, sidecars: [{name: proxy}], mode: Graceful}", []string{"spec.mode"}},
		"sidecars and mainContainers": {header + "spec: {podSelector: {}, sidecars: [{name: proxy}], mainContainers: [main]}", []string{"spec"}},
		"invalid sidecar name":        {clusterHeader + "spec: {podSelector: {}, sidecars: [{name: Proxy}]}", []string{"spec.sidecars[0].name"}},
		"unknown version": {
			"apiVersion: sidecartermination.dev/v1\nkind: SidecarTerminationPolicy\nmetadata: {name: mesh, namespace: batch}\nspec: {}", []string{"apiVersion"},
		},
		"invalid metadata": {
			"apiVersion: sidecartermination.dev/v1alpha1\nkind: SidecarTerminationPolicy\nmetadata: {name: Mesh_1, namespace: batch}\nspec: {podSelector: {}, sidecars: [{name: proxy}]}",
			[]string{"metadata.name"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.policy), &policy.Object); err != nil {
				t.Fatal(err)
			}
			before := policy.DeepCopy()
			problems, err := validate(t.Context(), policy)
			if err != nil {
				t.Fatal(err)
			}
			var fields []string
			for _, problem := range problems {
				fields = append(fields, problem.Field)
			}
			if diff := cmp.Diff(tc.fields, fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s\n%v", diff, problems)
			}
			if diff := cmp.Diff(before, policy); diff != "" {
				t.Errorf("validate modified the policy:\n%s", diff)
			}
		})
	}
}
