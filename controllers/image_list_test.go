// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/imagelist"
)

// The images of policies and of pod authors are swapped in and pulled only if the administrator's list has them.
func TestOnlyListedImagesAreUsed(t *testing.T) {
	const unlisted, listed = "registry.example.evil.test/quick-exit:v1", "registry.example/listed:v1"
	entry, err := imagelist.ParseEntry("registry.example/listed")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, newKruise(t), func(o *Options) { o.Capabilities.Images.Entries = []imagelist.Entry{entry} })
	policy := b.newPolicy("mesh", mode(v1alpha1.ModeImage, ""), withPrePull, func(spec *v1alpha1.PolicySpec) {
		spec.Fallback, spec.Image = v1alpha1.FallbackDisabled, unlisted
	})
	b.newPolicy("authors", mode(v1alpha1.ModeImage, ""), func(spec *v1alpha1.PolicySpec) {
		spec.Sidecars[0].Name, spec.Fallback = "agent", v1alpha1.FallbackDisabled
	})
	byPolicy := b.newPod("by-policy", podtest.MainDone)
	byVariable := b.newPod("by-variable", podtest.MainDone, func(p *corev1.Pod) {
		p.Spec.Containers[1].Name, p.Status.ContainerStatuses[1] = "agent", podtest.Running("agent")
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminateWithImage, Value: unlisted}}
	})
	b.pulls(policy)
	b.says(policy, "False ImageNotAllowed nothing is pulled, because quick-exit image "+unlisted+" is not allowed")
	for range 2 {
		b.reconcile(byPolicy)
		b.reconcile(byVariable)
	}
	refused := b.events.take()
	if len(refused) != 2 {
		t.Errorf("events: %q", refused)
	}
	for _, event := range refused {
		if !strings.HasPrefix(event, "Warning ImageNotAllowed ") || !strings.Contains(event, unlisted) {
			t.Errorf("the event does not say that %s is not allowed: %s", unlisted, event)
		}
	}
	b.wrote("PUT sidecarterminationpolicies/status", "PATCH pods/status", "PATCH pods/status")
	b.writes.forget()

	policy.Spec.Image = listed
	b.update(policy)
	b.pulls(policy)
	b.reconcile(byPolicy)
	if b.reload(byPolicy); byPolicy.Spec.Containers[1].Image != listed {
		t.Errorf("the images are %v", images(byPolicy))
	}
	b.wrote("POST imagepulljobs", "PATCH pods")
}
