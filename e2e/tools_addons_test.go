//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// Tests of tools that make pods are named TestTools…. make e2e-tools runs them on a local cluster that has the tools, and other runs
// skip them. OpenKruise's webhook injects the sidecar, and no tool knows of it.

// injectedLabels are those of pods that get a sidecar.
func injectedLabels() map[string]string { return map[string]string{"sidecar": "injected"} }

// newInjectedTool returns a test on a cluster with the addons. OpenKruise injects a sidecar with the script into pods with injectedLabels.
func newInjectedTool(t *testing.T, script string, addons ...string) *harness.Test {
	t.Helper()
	harness.RequireAddons(t, addons...)
	test := harness.New(t)
	inject(test, harness.Sidecar(script))
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
	inject(test, sidecar)
	enforcePreset(test, preset, labels)
	return test
}

func inject(test *harness.Test, sidecar corev1.Container) {
	test.Helper()
	createSidecarSet(test, metav1.LabelSelector{MatchLabels: injectedLabels()}, sidecar)
	test.WaitForInjection(injected(harness.PodTemplate(corev1.RestartPolicyNever, harness.Main(1))))
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
