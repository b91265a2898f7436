// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// toolPresets are the main containers of the presets for tools that make pods, by directory, which is also the policy's name. A
// preset without main containers lists sidecars.
var toolPresets = map[string]string{
	"airflow":        "airflow-xcom-sidecar base",
	"argo-workflows": "main wait",
	"spark":          "spark-kubernetes-driver spark-kubernetes-executor",
	"jenkins":        "jnlp",
	"github-arc":     "job",
	"kuberay":        "",
	"jobset":         "",
	"trainer":        "dataset-initializer metrics-collector metrics-logger-and-collector model-initializer node",
	"kueue":          "",
}

// presets are the presets for sidecars: name, drainSeconds, terminationOrder and exitCodePolicy of the sidecar, by directory, which is also the policy's name.
var presets = map[string]string{
	"istio-proxy":     "istio-proxy,0,100,Ignore",
	"linkerd-proxy":   "linkerd-proxy,0,100,Ignore",
	"fluent-bit":      "fluent-bit,10,,Ignore",
	"cloud-sql-proxy": "cloud-sql-proxy,0,50,Ignore",
	"vault-agent":     "vault-agent,0,50,Ignore",
	"dapr":            "daprd,3,,Ignore",
}

// A preset depends on no flag of the operator, and works on every node. Settings of the policy would apply to sidecars that users add.
func TestPresets(t *testing.T) {
	entries, err := os.ReadDir("presets")
	if err != nil {
		t.Fatal(err)
	}
	// The other entry is tests.
	if want := len(presets) + len(toolPresets) + 1; len(entries) != want {
		t.Errorf("presets holds %d entries, want %d", len(entries), want)
	}
	for name, sidecar := range presets {
		directory := filepath.Join("presets", name)
		if used := kustomization(t, filepath.Join(directory, "kustomization.yaml")).Components; !slices.Equal(used, []string{"../../kustomize/component"}) {
			t.Errorf("%s: components %v, so patches would replace its sidecars", name, used)
		}
		id := "SidecarTerminationPolicy/" + name
		requireFields(t, render(t, directory), fields{
			id + " {range .spec.sidecars[*]}{.name},{.drainSeconds},{.terminationOrder},{.exitCodePolicy} {end}": sidecar,
			id + " {.spec.podSelector}": "{}",
			id + " {.spec['mode','image','quickExitPaths','exitCodePolicy','drainSeconds']} {.spec.sidecars[*].mode}": "",
		})
	}
}

// A preset for a tool selects labelled namespaces, and does nothing until users enforce it.
func TestToolPresets(t *testing.T) {
	for name, mains := range toolPresets {
		rendered := render(t, filepath.Join("presets", name))
		id := "ClusterSidecarTerminationPolicy/" + name
		requireFields(t, rendered, fields{
			id + " {.spec.mainContainers[*]}":                      mains,
			id + " {.spec['enforcement','exitCodePolicy','mode']}": "DryRun Ignore",
			id + " {.spec.namespaceSelector.matchLabels}":          `{"` + v1alpha1.GroupName + "/preset-" + name + `":"enabled"}`,
		})
		spec := only[v1alpha1.ClusterSidecarTerminationPolicy](t, rendered, "ClusterSidecarTerminationPolicy").Spec
		if len(spec.PodSelector.MatchLabels)+len(spec.PodSelector.MatchExpressions) == 0 {
			t.Errorf("%s selects every pod of a namespace", name)
		}
		if spec.DrainSeconds == nil || spec.TerminationDeadlineSeconds == nil || (mains == "") != (len(spec.Sidecars) > 0) {
			t.Errorf("%s: %+v: want drainSeconds, terminationDeadlineSeconds, and main containers or sidecars", name, spec)
		}
		if ray := spec.PodSelector.MatchExpressions; name == "kuberay" && !slices.ContainsFunc(ray, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == "ray.io/node-type" && r.Operator == metav1.LabelSelectorOpDoesNotExist
		}) {
			t.Errorf("%s selects nodes of Ray: %v", name, ray)
		}
	}
}
