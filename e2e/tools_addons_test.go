//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// Tests of tools that make pods are named TestTools…. make e2e-tools runs them on a local cluster that has the tools, and other runs
// skip them. OpenKruise's webhook injects the sidecar, and no tool knows of it.

// injectedLabel is a label of pods that get a sidecar.
const injectedLabel = "sidecar"

// injectedLabels are those of pods that get a sidecar.
func injectedLabels() map[string]string { return map[string]string{injectedLabel: "injected"} }

// newInjectedTool returns a test on a cluster with the addons. OpenKruise injects a sidecar with the script into pods with injectedLabels.
func newInjectedTool(t *testing.T, script string, addons ...string) *harness.Test {
	t.Helper()
	harness.RequireAddons(t, addons...)
	test := harness.New(t)
	injectWhereLabelled(test, injectedLabel, harness.Sidecar(script))
	return test
}

// newPresetTool is newInjectedTool with the preset as the only policy. The sidecar has a name that presets list.
func newPresetTool(t *testing.T, preset string, addons ...string) *harness.Test {
	t.Helper()
	harness.RequireAddons(t, addons...)
	labels := ownLabels()
	test := harness.NewWithLabels(t, labels)
	sidecar := harness.Sidecar(harness.ExitsSevenOnTerm)
	sidecar.Name = "istio-proxy"
	injectWhereLabelled(test, injectedLabel, sidecar)
	enforcePreset(test, preset, labels)
	return test
}

// injectWhereLabelled has OpenKruise inject the container into the pods of the namespace that have the label, and waits until it does.
func injectWhereLabelled(test *harness.Test, label string, sidecar corev1.Container) {
	test.Helper()
	createSidecarSet(test, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: label, Operator: metav1.LabelSelectorOpExists},
	}}, sidecar)
	template := harness.PodTemplate(corev1.RestartPolicyNever, harness.Main(0))
	template.Labels = map[string]string{label: "any"}
	waitForInjection(test, template)
}

// selecting limits the policy to pods that have the labels.
func selecting(policy *v1alpha1.SidecarTerminationPolicy, labels ...string) *v1alpha1.SidecarTerminationPolicy {
	for _, label := range labels {
		policy.Spec.PodSelector.MatchExpressions = append(policy.Spec.PodSelector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: label, Operator: metav1.LabelSelectorOpExists})
	}
	return policy
}

// injected returns a template whose pods get a sidecar.
func injected(template corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	template.Labels = injectedLabels()
	return template
}

// createSidecarSet has OpenKruise inject the sidecar into the pods of the namespace that the selector selects.
func createSidecarSet(test *harness.Test, selector metav1.LabelSelector, sidecar corev1.Container) {
	test.Helper()
	container := harness.ToMap(sidecar)
	container["podInjectPolicy"] = "BeforeAppContainer"
	container["shareVolumePolicy"] = map[string]any{"type": "disabled"}
	test.CreateForCluster(harness.Kruise("SidecarSet", test.Namespace, map[string]any{
		"namespace":      test.Namespace,
		"selector":       harness.ToMap(selector),
		"updateStrategy": map[string]any{"type": "NotUpdate"},
		"containers":     []any{container},
	}))
}

// waitForInjection waits until new pods of the template get a further container.
func waitForInjection(test *harness.Test, template corev1.PodTemplateSpec) {
	test.Helper()
	test.Eventually("new pods to get a sidecar", time.Minute, func(ctx context.Context) error {
		pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
		pod.Namespace, pod.Name, pod.GenerateName = test.Namespace, "", "dry-run-"
		if err := test.Client.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if len(pod.Spec.Containers) == len(template.Spec.Containers) {
			return errors.New("nothing injects it")
		}
		return nil
	})
}
