// SPDX-License-Identifier: Apache-2.0

//go:build integration

package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// TestColumns covers the columns of kubectl get without -o wide.
func TestColumns(t *testing.T) {
	resources := map[string]string{
		"SidecarTerminationPolicy":        "namespaces/default/sidecarterminationpolicies",
		"ClusterSidecarTerminationPolicy": "clustersidecarterminationpolicies",
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			c := newClient(t)
			policy := object(t, kind, valid)
			if err := c.Create(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			ready := map[string]any{
				"type": v1alpha1.ConditionReady, "status": "True", "reason": string(v1alpha1.ReasonIdle),
				"message": "", "lastTransitionTime": "2026-03-01T12:00:00Z",
			}
			if err := unstructured.SetNestedSlice(policy.Object, []any{ready}, "status", "conditions"); err != nil {
				t.Fatal(err)
			}
			if err := c.Status().Update(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			table := tableOf(t, resources[kind]+"/"+policy.GetName())
			for i, column := range table.ColumnDefinitions {
				if column.Priority == 0 && (column.Name == "Ready" || column.Name == "Reason") {
					got[column.Name] = table.Rows[0].Cells[i]
				}
			}
			want := map[string]any{"Ready": "True", "Reason": "Idle"}
			if difference := cmp.Diff(want, got); difference != "" {
				t.Errorf("columns (-want +got):\n%s", difference)
			}
		})
	}
}

// tableOf reads an object as kubectl get does.
func tableOf(t *testing.T, path string) *metav1.Table {
	t.Helper()
	config := rest.CopyConfig(server)
	config.GroupVersion, config.APIPath = &v1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	rc, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	table := &metav1.Table{}
	if err := rc.Get().RequestURI("/apis/"+v1alpha1.GroupVersion.String()+"/"+path).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(t.Context()).Into(table); err != nil {
		t.Fatal(err)
	}
	return table
}
