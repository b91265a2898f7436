// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"path/filepath"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func TestSamplesRender(t *testing.T) {
	files, err := filepath.Glob("samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Each file except kustomization.yaml has one object.
	if got, want := len(render(t, "samples")), len(files)-1; got != want {
		t.Errorf("%d objects rendered from %d files", got, want)
	}
}

func TestSamplesCoverFeatures(t *testing.T) {
	rendered := render(t, "samples")
	shown := map[string]bool{}
	for _, p := range ofKind[v1alpha1.SidecarTerminationPolicy](t, rendered, "SidecarTerminationPolicy") {
		shown["mode "+string(p.Spec.Mode)] = true
		shown["enforcement "+string(p.Spec.Enforcement)] = true
		shown["mainContainers"] = shown["mainContainers"] || len(p.Spec.MainContainers) > 0
		shown["mainContainersFrom"] = shown["mainContainersFrom"] || p.Spec.MainContainersFrom != nil
		shown["prePull"] = shown["prePull"] || p.Spec.PrePull != nil
		shown["priority"] = shown["priority"] || p.Spec.Priority != 0
		for _, s := range p.Spec.Sidecars {
			shown["mode "+string(s.Mode)] = true
			shown["exitCodes "+string(s.ExitCodes)] = true
			shown["drainSeconds"] = shown["drainSeconds"] || s.DrainSeconds != nil
		}
	}
	for _, p := range ofKind[v1alpha1.ClusterSidecarTerminationPolicy](t, rendered, "ClusterSidecarTerminationPolicy") {
		shown["namespaceSelector"] = shown["namespaceSelector"] || p.Spec.NamespaceSelector != nil
	}
	for _, want := range []string{
		"mode ", "mode CRR", "mode Image", "enforcement DryRun", "exitCodes Respect",
		"mainContainers", "mainContainersFrom", "priority", "drainSeconds", "namespaceSelector", "prePull",
	} {
		if !shown[want] {
			t.Errorf("no sample shows %q", want)
		}
	}
}

func TestMeshSampleSelectsJobSample(t *testing.T) {
	rendered := render(t, "samples")
	template := job(t, rendered, "with-sidecar").Spec.Template
	spec := policy(t, rendered, "mesh").Spec
	selector, err := metav1.LabelSelectorAsSelector(&spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	if !selector.Matches(labels.Set(template.Labels)) {
		t.Errorf("%s does not match the Job's pods, which have %v", selector, template.Labels)
	}
	if names := containerNames(template.Spec); !slices.Contains(names, spec.Sidecars[0].Name) || len(names) < 2 {
		t.Errorf("containers %v: want %s and a main container", names, spec.Sidecars[0].Name)
	}
}

func TestEnvSampleUsesKnownVariables(t *testing.T) {
	containers := job(t, render(t, "samples"), "with-env").Spec.Template.Spec.Containers
	if len(environment(containers[0])) != 0 {
		t.Errorf("main container %s has environment variables", containers[0].Name)
	}
	variables := environment(containers[1])
	for _, name := range []string{v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage, v1alpha1.EnvIgnoreExitCode} {
		if variables[name] == "" {
			t.Errorf("sidecar %s has no %s", containers[1].Name, name)
		}
	}
}

func policy(t *testing.T, rendered resources, name string) v1alpha1.SidecarTerminationPolicy {
	t.Helper()
	return byName[v1alpha1.SidecarTerminationPolicy](t, rendered, "SidecarTerminationPolicy", name)
}

func clusterPolicy(t *testing.T, rendered resources, name string) v1alpha1.ClusterSidecarTerminationPolicy {
	t.Helper()
	return byName[v1alpha1.ClusterSidecarTerminationPolicy](t, rendered, "ClusterSidecarTerminationPolicy", name)
}

func job(t *testing.T, rendered resources, name string) batchv1.Job {
	t.Helper()
	return byName[batchv1.Job](t, rendered, "Job", name)
}

func containerNames(spec corev1.PodSpec) []string {
	var names []string
	for _, container := range spec.Containers {
		names = append(names, container.Name)
	}
	return names
}
