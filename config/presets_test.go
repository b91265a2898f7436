// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// toolPresets are the main containers of the presets for tools that make pods, by directory, which is also the policy's name. A
// preset without main containers lists sidecars.
var toolPresets = map[string][]v1alpha1.ContainerName{
	"airflow":        {"base", "airflow-xcom-sidecar"},
	"argo-workflows": {"main", "wait"},
	"spark":          {"spark-kubernetes-driver", "spark-kubernetes-executor"},
	"jenkins":        {"jnlp"},
	"github-arc":     {"job"},
	"kuberay":        nil,
	"jobset":         nil,
	"trainer":        {"dataset-initializer", "model-initializer", "node"},
	"kueue":          nil,
}

// presets are the sidecars of the presets for sidecars by directory, which is also the policy's name.
var presets = map[string]string{
	"istio-proxy":     "istio-proxy",
	"linkerd-proxy":   "linkerd-proxy",
	"fluent-bit":      "fluent-bit",
	"cloud-sql-proxy": "cloud-sql-proxy",
	"vault-agent":     "vault-agent",
	"dapr":            "daprd",
}

func TestPresets(t *testing.T) {
	entries, err := os.ReadDir("presets")
	if err != nil {
		t.Fatal(err)
	}
	// The other entry is tests.
	if want := len(presets) + len(toolPresets) + 1; len(entries) != want {
		t.Errorf("presets holds %d entries, want %d", len(entries), want)
	}
	for name, container := range presets {
		rendered := render(t, filepath.Join("presets", name))
		spec := policy(t, rendered, name).Spec.PolicySpec
		if len(rendered) != 1 || !slices.Equal(sidecarNames(spec), []string{container}) {
			t.Errorf("%s: %d objects with sidecars %v, want one policy for %s", name, len(rendered), sidecarNames(spec), container)
		}
		s := sidecar(t, spec, container)
		// Presets must not depend on the operator's flags.
		if s.DrainSeconds == nil || s.ExitCodes != v1alpha1.ExitCodesIgnore {
			t.Errorf("%s: %+v: want drainSeconds and exitCodes Ignore", name, s)
		}
		if s.Mode != "" || spec.Mode != "" {
			t.Errorf("%s: a mode is set, so it does not work on every node", name)
		}
		// Settings of the policy would apply to sidecars that users add.
		if !reflect.DeepEqual(spec.TerminationSettings, v1alpha1.TerminationSettings{}) {
			t.Errorf("%s: the policy has settings %+v", name, spec.TerminationSettings)
		}
		if len(spec.PodSelector.MatchLabels)+len(spec.PodSelector.MatchExpressions) > 0 {
			t.Errorf("%s: selector %v, want every pod until users patch it", name, spec.PodSelector)
		}
	}
}

// A preset for a tool selects labelled namespaces, and does nothing until users enforce it.
func TestToolPresets(t *testing.T) {
	for name, mains := range toolPresets {
		rendered := render(t, filepath.Join("presets", name))
		spec := clusterPolicy(t, rendered, name).Spec
		if len(rendered) != 1 || !slices.Equal(spec.MainContainers, mains) || (len(mains) == 0) != (len(spec.Sidecars) > 0) {
			t.Errorf("%s: %d objects with main containers %v and sidecars %v, want main containers %v", name, len(rendered), spec.MainContainers, sidecarNames(spec.PolicySpec), mains)
		}
		if want := map[string]string{v1alpha1.GroupName + "/preset-" + name: "enabled"}; spec.NamespaceSelector == nil || !maps.Equal(spec.NamespaceSelector.MatchLabels, want) {
			t.Errorf("%s: namespaceSelector is %v, want %v", name, spec.NamespaceSelector, want)
		}
		if spec.Enforcement != v1alpha1.EnforcementDryRun {
			t.Errorf("%s: enforcement is %s, want DryRun until users change it", name, spec.Enforcement)
		}
		if len(spec.PodSelector.MatchLabels)+len(spec.PodSelector.MatchExpressions) == 0 {
			t.Errorf("%s selects every pod of a namespace", name)
		}
		if spec.DrainSeconds == nil || spec.TerminationDeadlineSeconds == nil || spec.ExitCodes != v1alpha1.ExitCodesIgnore || spec.Mode != "" {
			t.Errorf("%s: %+v: want drainSeconds, terminationDeadlineSeconds, exitCodes Ignore and no mode", name, spec.TerminationSettings)
		}
		if ray := spec.PodSelector.MatchExpressions; name == "kuberay" && !slices.ContainsFunc(ray, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == "ray.io/node-type" && r.Operator == metav1.LabelSelectorOpDoesNotExist
		}) {
			t.Errorf("%s selects nodes of Ray: %v", name, ray)
		}
	}
}

// A preset includes the component.
func TestPatchedPresets(t *testing.T) {
	for name, container := range presets {
		rendered := renderOverlay(t, `
namespace: batch
resources: [CONFIG/presets/`+name+`]
images: [{name: quick-exit, newName: mirror.example/quick-exit, newTag: v2}]
patches:
- patch: |-
    apiVersion: sidecartermination.dev/v1alpha1
    kind: SidecarTerminationPolicy
    metadata: {name: `+name+`}
    spec:
      podSelector: {matchLabels: {team: etl}}
      sidecars:
      - {name: `+container+`, drainSeconds: 7}
      - {name: uploader, mode: Image, image: quick-exit}
`)
		p := policy(t, rendered, name)
		s := sidecar(t, p.Spec.PolicySpec, container)
		if p.Namespace != "batch" || p.Spec.PodSelector.MatchLabels["team"] != "etl" {
			t.Errorf("%s: namespace %s, selector %v", name, p.Namespace, p.Spec.PodSelector)
		}
		if *s.DrainSeconds != 7 || s.ExitCodes == "" {
			t.Errorf("%s: %s is %+v, want drainSeconds 7 and the preset's other fields", name, container, s)
		}
		if got := sidecar(t, p.Spec.PolicySpec, "uploader").Image; got != "mirror.example/quick-exit:v2" {
			t.Errorf("%s: uploader's image is %s", name, got)
		}
	}
}

func TestClusterWidePresets(t *testing.T) {
	rendered := renderOverlay(t, `
namespace: batch
resources: [CONFIG/presets/istio-proxy, CONFIG/presets/dapr]
components: [CONFIG/kustomize/cluster-wide]
patches:
- target: {kind: ClusterSidecarTerminationPolicy, name: dapr}
  patch: |-
    apiVersion: sidecartermination.dev/v1alpha1
    kind: ClusterSidecarTerminationPolicy
    metadata: {name: dapr}
    spec:
      namespaceSelector: {matchLabels: {dapr: enabled}}
      sidecars: [{name: log-shipper}]
`)
	for _, name := range []string{"istio-proxy", "dapr"} {
		if p := clusterPolicy(t, rendered, name); p.Namespace != "" {
			t.Errorf("%s has namespace %s", name, p.Namespace)
		}
	}
	spec := clusterPolicy(t, rendered, "dapr").Spec
	if got := sidecarNames(spec.PolicySpec); !slices.Equal(got, []string{"daprd", "log-shipper"}) || spec.NamespaceSelector == nil {
		t.Errorf("sidecars %v, namespaceSelector %v", got, spec.NamespaceSelector)
	}
}

func TestBatchJobsExample(t *testing.T) {
	rendered := render(t, "examples/batch-jobs")
	spec := policy(t, rendered, "etl-fluent-bit").Spec.PolicySpec
	if got := sidecar(t, spec, "fluent-bit"); *got.DrainSeconds != 30 || *spec.TerminationDeadlineSeconds != 60 {
		t.Errorf("fluent-bit is %+v, want the preset with drainSeconds 30", got)
	}
	if got, want := sidecar(t, spec, "uploader").Image, "mirror.example/quick-exit:v0.1.0"; got != want {
		t.Errorf("uploader's image is %s, want %s", got, want)
	}
	template := only[batchv1.Job](t, rendered, "Job").Spec.Template
	for _, name := range []string{"etl-fluent-bit", "etl-istio-proxy"} {
		if got := policy(t, rendered, name); got.Namespace != "batch" || got.Spec.PodSelector.MatchLabels["team"] != template.Labels["team"] {
			t.Errorf("%s: namespace %s, selector %v", name, got.Namespace, got.Spec.PodSelector)
		}
	}
	if got, want := template.Spec.Containers[1].Image, "mirror.example/fluent-bit:4.0"; got != want {
		t.Errorf("the Job's sidecar has image %s, want %s", got, want)
	}
}
