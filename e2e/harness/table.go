//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Table returns the table of `kubectl get` for a resource of the operator in the test's namespace.
func (t *Test) Table(resource string) metav1.Table {
	t.Helper()
	path := []string{"/apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "namespaces", t.Namespace, resource}
	data, err := t.Clientset.CoreV1().RESTClient().Get().AbsPath(path...).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("Get the table of %s: %v", resource, err)
	}
	table := metav1.Table{}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatalf("Read the table of %s: %v", resource, err)
	}
	return table
}
