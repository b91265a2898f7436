// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
)

func TestPhaseGuardIsReleasedAfterPolicyChange(t *testing.T) {
	respecify := func(change func(*v1alpha1.PolicySpec)) func(*bench, *v1alpha1.SidecarTerminationPolicy, *corev1.Pod) {
		return func(b *bench, policy *v1alpha1.SidecarTerminationPolicy, _ *corev1.Pod) {
			change(&policy.Spec.PolicySpec)
			b.update(policy)
		}
	}
	for name, meanwhile := range map[string]func(*bench, *v1alpha1.SidecarTerminationPolicy, *corev1.Pod){
		"unchanged policy":                     func(*bench, *v1alpha1.SidecarTerminationPolicy, *corev1.Pod) {},
		"the policy is deleted":                func(b *bench, policy *v1alpha1.SidecarTerminationPolicy, _ *corev1.Pod) { b.remove(policy) },
		"the policy is set to DryRun":          respecify(func(spec *v1alpha1.PolicySpec) { spec.Enforcement = v1alpha1.EnforcementDryRun }),
		"the policy names main instead":        respecify(func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "main" }),
		"the policy names main as well":        respecify(func(spec *v1alpha1.PolicySpec) { spec.Sidecars = append(spec.Sidecars, v1alpha1.Sidecar{Name: "main"}) }),
		"the policy no longer selects the pod": respecify(func(spec *v1alpha1.PolicySpec) { spec.PodSelector.MatchLabels = map[string]string{"team": "web"} }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, clock := newTimedBench(t)
			policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
			pod := b.newPod("job-1", podtest.MainDone)
			b.reconcile(pod)
			b.wrote("PATCH pods/status")
			meanwhile(b, policy, pod)
			result := b.reconcile(pod)
			b.wrote("PATCH pods/status")
			if longest := gracePeriodOf(pod) + 5*time.Minute; result.RequeueAfter <= 0 || result.RequeueAfter > longest {
				t.Fatalf("the pod is requeued after %s, want up to %s", result.RequeueAfter, longest)
			}
			b.events.take()
			clock.SetTime(clock.Now().Add(gracePeriodOf(pod) + 5*time.Minute))
			b.reconcile(pod)
			b.wrote("PATCH pods/status", "PATCH pods/status")
			if b.reload(pod); pod.Annotations[v1alpha1.AnnotationPhaseGuard] != "" {
				t.Errorf("the guard is still on: %v", pod.Annotations)
			}
			told := b.events.take()
			if len(told) != 1 || !strings.Contains(told[0], "the kubelet has not torn the pod down") {
				t.Errorf("events: %q", told)
			}
			b.reconcile(pod)
			b.wrote("PATCH pods/status", "PATCH pods/status")
		})
	}
}

func gracePeriodOf(pod *corev1.Pod) time.Duration {
	return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
}
