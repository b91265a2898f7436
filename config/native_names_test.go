// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// kustomize renames the admission policies, and the policies of their bindings with them. The operator finds both by their labels.
func TestRenamedNativePoliciesAreBound(t *testing.T) {
	rendered := renderOverlay(t, "namePrefix: acme-\nnameSuffix: -blue\nresources: [CONFIG/overlays/native]\n")
	component := native.NewComponent(
		ofKind[admissionv1.MutatingAdmissionPolicy](t, rendered, "MutatingAdmissionPolicy"),
		ofKind[admissionv1.MutatingAdmissionPolicyBinding](t, rendered, "MutatingAdmissionPolicyBinding"),
	)
	for _, why := range []string{component.Incomplete(), component.Unavailable(resolve.KindNamespaced), component.Unavailable(resolve.KindCluster)} {
		if why != "" {
			t.Error(why)
		}
	}
	want := map[string]string{
		native.LabelingPolicy: "acme-sidecar-termination-native-label-blue", native.NamespacedPolicy: "acme-sidecar-termination-native-namespaced-blue",
		native.ClusterPolicy: "acme-sidecar-termination-native-cluster-blue", native.EnvironmentPolicy: "acme-sidecar-termination-native-environment-blue",
	}
	if difference := cmp.Diff(want, component.Bound); difference != "" {
		t.Errorf("bound policies (-want +got):\n%s", difference)
	}
}
