// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// installations returns the kustomizations that install the operator for the whole cluster. namespaced_test.go tests the other one.
func installations() []string {
	overlays, err := filepath.Glob("overlays/*")
	if err != nil {
		panic(err)
	}
	overlays = slices.DeleteFunc(overlays, func(overlay string) bool { return overlay == namespacedOverlay })
	return append([]string{"default"}, overlays...)
}

// Policies that exist before the admission policies are never checked.
func TestAdmissionPoliciesPrecedeCRDs(t *testing.T) {
	for _, directory := range installations() {
		admission, first := 0, ""
		for _, object := range render(t, directory) {
			switch object.GetKind() {
			case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
				if admission++; first != "" {
					t.Errorf("%s: %s %s comes after a %s", directory, object.GetKind(), object.GetName(), first)
				}
			case "CustomResourceDefinition", "ClusterRole", "Deployment":
				first = cmp.Or(first, object.GetKind())
			}
		}
		if admission == 0 || first != "CustomResourceDefinition" {
			t.Errorf("%s: %d admission policies and bindings, then a %s", directory, admission, first)
		}
	}
}

func TestGOMEMLIMITBelowMemoryLimit(t *testing.T) {
	container := only[appsv1.Deployment](t, render(t, "default"), "Deployment").Spec.Template.Spec.Containers[0]
	// GOMEMLIMIT has unit MiB, Kubernetes Mi.
	limit := slices.IndexFunc(container.Env, func(variable corev1.EnvVar) bool { return variable.Name == "GOMEMLIMIT" })
	soft := resource.MustParse(strings.TrimSuffix(container.Env[limit].Value, "B"))
	hard := container.Resources.Limits.Memory()
	if ratio := soft.AsApproximateFloat64() / hard.AsApproximateFloat64(); ratio < 0.8 || ratio > 0.95 {
		t.Errorf("GOMEMLIMIT %s is %.2f of the memory limit %s, want 0.8 to 0.95", &soft, ratio, hard)
	}
	if _, limited := container.Resources.Limits[corev1.ResourceCPU]; limited {
		t.Error("the operator has a CPU limit")
	}
}

// Without the outcome policy, the operator must be quick. An API server before 1.36 does not know its kind.
func TestOutcomePolicyIsInstalled(t *testing.T) {
	for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
		for _, directory := range installations() {
			if got, want := render(t, directory).has(kind, "sidecar-termination-outcome"), directory != "overlays/before-1.36"; got != want {
				t.Errorf("%s has a %s: %t, want %t", directory, kind, got, want)
			}
		}
	}
	without := withComponents(t, "no-admission")
	for _, object := range without {
		if strings.Contains(object.GetKind(), "AdmissionPolicy") {
			t.Errorf("component no-admission keeps the %s %s", object.GetKind(), object.GetName())
		}
	}
}

// The pod security level restricted, which the API server enforces, does not include these.
func TestInstalledOperator(t *testing.T) {
	for _, directory := range installations() {
		level := "restricted"
		if directory == "overlays/local" {
			level = "privileged"
		}
		const operator = "Deployment/" + deployment + " "
		rendered := render(t, directory)
		requireFields(t, rendered, fields{
			"Namespace/" + namespace + ` {.metadata.labels.pod-security\.kubernetes\.io/enforce}`:   level,
			operator + "{.spec.template.spec.containers[0].securityContext.readOnlyRootFilesystem}": "true",
			operator + "{.spec.template.spec.volumes}":                                              "",
			operator + "{.spec.template.spec.containers[0].ports[*]['name','containerPort']}":       "8081 8443 health metrics",
			operator + "{.spec.template.spec.containers[0].livenessProbe.httpGet['path','port']}":   "/healthz health",
			operator + "{.spec.template.spec.containers[0].readinessProbe.httpGet['path','port']}":  "/readyz health",
			operator + "{.spec.template.spec['automountServiceAccountToken','serviceAccountName']}": deployment + " true",
			"ServiceAccount/" + deployment + " {.automountServiceAccountToken}":                     "false",
		})
	}
}

// The API server requires the same of the Deployment's own selector.
func TestSelectorsMatchOperatorPods(t *testing.T) {
	rendered := withComponents(t, "service-monitor", "network-policy")
	operator := only[appsv1.Deployment](t, rendered, "Deployment")
	budget := only[policyv1.PodDisruptionBudget](t, rendered, "PodDisruptionBudget")
	service := only[corev1.Service](t, rendered, "Service")
	spread := operator.Spec.Template.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0]
	for what, selector := range map[string]map[string]string{
		"PodDisruptionBudget": budget.Spec.Selector.MatchLabels,
		"pod anti-affinity":   spread.PodAffinityTerm.LabelSelector.MatchLabels,
		"Service":             service.Spec.Selector,
		"NetworkPolicy":       only[networkingv1.NetworkPolicy](t, rendered, "NetworkPolicy").Spec.PodSelector.MatchLabels,
	} {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(operator.Spec.Template.Labels)) {
			t.Errorf("the selector %v of the %s does not match the operator's pods", selector, what)
		}
	}
	// With minAvailable, a smaller number of replicas would block the drain of nodes.
	if unavailable := budget.Spec.MaxUnavailable; unavailable == nil || unavailable.IntValue() != 1 {
		t.Errorf("the budget is %+v, want maxUnavailable 1", budget.Spec)
	}
	requireFields(t, rendered, fields{
		"Service/" + service.Name + " {range .spec.ports[*]}{.name}:{.targetPort}{end}":                "metrics:metrics",
		"Service/" + service.Name + ` {.metadata.labels.app\.kubernetes\.io/component}`:                "metrics",
		"ServiceMonitor/" + deployment + ` {.spec.selector.matchLabels.app\.kubernetes\.io/component}`: "metrics",
		"ServiceMonitor/" + deployment + " {.metadata.namespace} {.spec.endpoints[*].port}":            "metrics " + service.Namespace,
		"NetworkPolicy/" + deployment + " {.spec.policyTypes[*]}":                                      "Egress Ingress",
		// Only labelled namespaces reach the metrics.
		"NetworkPolicy/" + deployment + " {range .spec.ingress[*]}{.ports[*].port}:{.from} {end}": `health: metrics:[{"namespaceSelector":{"matchLabels":{"metrics":"enabled"}}}]`,
		"NetworkPolicy/" + deployment + " {.spec.egress[*].ports[*].port}":                        "443 6443",
	})
}

func TestInstalledKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(slices.Sorted(maps.Keys(scheme.KnownTypes(v1alpha1.GroupVersion))), func(kind string) bool {
		return !strings.HasSuffix(kind, "Policy")
	})
	var installed, listed []string
	for _, crd := range ofKind[apiextensionsv1.CustomResourceDefinition](t, render(t, "default"), "CustomResourceDefinition") {
		installed = append(installed, crd.Spec.Names.Kind)
	}
	var project struct{ Resources []struct{ Kind string } }
	if err := yaml.Unmarshal(readConfig(t, "../PROJECT"), &project); err != nil {
		t.Fatal(err)
	}
	for _, resource := range project.Resources {
		listed = append(listed, resource.Kind)
	}
	slices.Sort(installed)
	slices.Sort(listed)
	if !slices.Equal(installed, want) || !slices.Equal(listed, want) {
		t.Errorf("CRDs of %v are installed, and PROJECT lists %v; want %v", installed, listed, want)
	}
}
