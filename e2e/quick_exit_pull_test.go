//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// With imagePullPolicy Always, the kubelet requests the quick-exit image from the registry at each swap.
func TestQuickExitImageIsPulled(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			repository := "quick-exit-" + strings.ToLower(string(restartPolicy))
			for i, name := range []string{"first", "second"} {
				t.Run(name+" swap", func(t *testing.T) {
					test := harness.New(t)
					job := jobWithRealSidecar(test, registry, restartPolicy)
					job.Spec.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
					image := pushQuickExit(test, registry, repository+":v1")
					gate := test.Gate(&job.Spec.Template)
					test.Create(policyForImage(image), job)
					test.WaitForRunning("job")
					before := registry.ManifestRequests(repository)
					if i == 0 && before != 0 {
						test.Errorf("%s was requested before the swap", image)
					}
					gate.Open()
					requireEndedByRealImage(test, image)
					requireKubeletWarnings(test)
					if registry.ManifestRequests(repository) == before {
						test.Errorf("%s was not requested", image)
					}
				})
			}
		})
	}
}

// The kubelet stops the sidecar before it pulls the image, which fails. Under OnFailure, the operator falls back. Under Never, the
// kubelet treats the container as terminated, so its exit code counts. docs/quick-exit-image.md warns of that.
func TestQuickExitImageRegistryDown(t *testing.T) {
	harness.Shared(t)
	for _, c := range []struct {
		restartPolicy corev1.RestartPolicy
		exitCode      int32
		fallback      bool
		phase         corev1.PodPhase
	}{
		{corev1.RestartPolicyOnFailure, 0, false, corev1.PodSucceeded},
		{corev1.RestartPolicyOnFailure, 7, true, corev1.PodSucceeded},
		{corev1.RestartPolicyNever, 0, false, corev1.PodSucceeded},
		{corev1.RestartPolicyNever, 7, false, corev1.PodFailed},
	} {
		t.Run(fmt.Sprintf("%s, sidecar exits %d", c.restartPolicy, c.exitCode), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			registry := harness.StartRegistry(t)
			job := jobWithRealSidecar(test, registry, c.restartPolicy)
			job.Spec.BackoffLimit = ptr.To[int32](1)
			sidecar := &job.Spec.Template.Spec.Containers[0]
			*sidecar = harness.WithEnv(*sidecar, "EXIT_CODE", fmt.Sprint(c.exitCode))
			sidecar.ImagePullPolicy = corev1.PullAlways
			if c.phase == corev1.PodFailed {
				job.Spec.BackoffLimit = ptr.To[int32](0)
			}
			policy := policyForImage(pushQuickExit(test, registry, "quick-exit:v1"))
			// Leaves a busy node time to stop the sidecar, or to report the pull error, which the event of a fallback contains.
			policy.Spec.Fallback, policy.Spec.TerminationDeadlineSeconds = v1alpha1.FallbackEnabled, ptr.To[int32](20)
			gate := test.Gate(&job.Spec.Template)
			test.Create(job)
			test.WaitForRunning("job")
			registry.Stop()
			test.Create(policy)
			gate.Open()

			if c.phase == corev1.PodFailed {
				test.WaitForFailed("job")
			} else {
				test.RequireCompleted("job")
			}
			record := test.RequireFinished("job")
			if record.Pod.Status.Phase != c.phase {
				test.Errorf("Pod %s is %s, want %s", record.Pod.Name, record.Pod.Status.Phase, c.phase)
			}
			if c.fallback {
				event := test.WaitForEvent(record.Pod, v1alpha1.ReasonFallback)
				if !strings.Contains(event.Message, "ErrImagePull") && !strings.Contains(event.Message, "ImagePullBackOff") {
					test.Errorf("The event has message %q", event.Message)
				}
				return
			}
			requireExit(test, record, harness.SidecarName, c.exitCode)
		})
	}
}
