// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/settings"
)

func TestOperatorArguments(t *testing.T) {
	deployment := &appsv1.Deployment{}
	if _, ok := source.OperatorArguments(deployment); ok {
		t.Error("a Deployment without the operator's container has arguments")
	}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "metrics-proxy", Args: []string{"--other"}}, {
		Name:    settings.ContainerName,
		Command: []string{"/sidecar-termination-operator", "--crr=Disabled"},
		Args:    []string{"--quick-exit-image=$(IMAGE)", "--a=$$(IMAGE)", "--b=$(UNKNOWN)", "--c=$(SECRET)", "--d=$5"},
		Env: []corev1.EnvVar{
			{Name: "REGISTRY", Value: "registry.example"},
			{Name: "IMAGE", Value: "$(REGISTRY)/quick-exit:v1"},
			{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{}},
		},
	}}
	got, ok := source.OperatorArguments(deployment)
	want := []string{"--crr=Disabled", "--quick-exit-image=registry.example/quick-exit:v1", "--a=$(IMAGE)", "--b=$(UNKNOWN)", "--c=$(SECRET)", "--d=$5"}
	if !ok || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, ok, want)
	}
}
