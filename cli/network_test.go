// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cli_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// newDaemonSet is a DaemonSet without pods.
func newDaemonSet(namespace, name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: name}}},
			},
		},
	}
}

func TestCheckNetwork(t *testing.T) {
	c, namespace := newNamespace(t)
	out, _ := runCommand(t, "check")
	if strings.Contains(out, "Network") {
		t.Errorf("unexpected network:\n%s", out)
	}
	grant(t, c, "visitor", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"list"}})
	var code int
	testenv.Eventually(t, "the visitor may read policies", func(context.Context) error {
		if out, code = runCommand(t, "check", "--as", "visitor"); code != 0 {
			return errors.New(out)
		}
		return nil
	})
	wantOutput(t, "DaemonSets forbidden", out, code, 0, "warning you may not read DaemonSets, which identify the network plugin")
	if strings.Count(out, "which identify the network") != 1 {
		t.Errorf("the warning is repeated:\n%s", out)
	}

	create(t, c, newDaemonSet(namespace, "calico-node"), newDaemonSet(namespace, "ztunnel"))
	const hint = "set drainSeconds in their policy, or run the operator with --pod-phase=LastResort"
	out, _ = runCommand(t, "check")
	wantOutput(t, "DaemonSets", out, 0, 0, "Network warning found Calico, Istio ambient: a pod loses its network when its phase is written", hint)

	create(t, c, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ciliumendpoints.cilium.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "cilium.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "ciliumendpoints", Singular: "ciliumendpoint", Kind: "CiliumEndpoint", ListKind: "CiliumEndpointList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v2", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				},
			}},
		},
	})
	testenv.Eventually(t, "the CRD is found without permissions", func(context.Context) error {
		if out, _ = runCommand(t, "check", "--as", "visitor"); !strings.Contains(out, "found Cilium") {
			return errors.New(out)
		}
		return nil
	})
	out, _ = runCommand(t, "check")
	wantOutput(t, "all networks", out, 0, 0, "found Calico, Cilium, Istio ambient")
}
