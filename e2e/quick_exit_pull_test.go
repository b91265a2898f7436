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

// A sidecar with imagePullPolicy Always has the kubelet ask the registry for the quick-exit image at each swap, even where
// the node has it already.
func TestShippedQuickExitImageIsPulled(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			repository := "quick-exit-" + strings.ToLower(string(restartPolicy))
			tag := registry.Reference(repository + ":v1")
			for i, name := range []string{"first", "second"} {
				t.Run(name+" swap", func(t *testing.T) {
					test := harness.New(t)
					job := jobWithRealSidecar(test, registry, restartPolicy)
					job.Spec.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
					image := pushQuickExit(test, tag, job)
					image.Image = tag
					gate := test.Gate(&job.Spec.Template)
					test.Create(policyForImage(image), job)
					test.WaitForRunning("job")
					before := registry.ManifestRequests(repository)
					if i == 0 && before != 0 {
						test.Errorf("The registry was asked for %s before the swap", tag)
					}
					gate.Open()
					requireEndedByShippedImage(test, tag)
					requireKubeletWarnings(test)
					if asked := registry.ManifestRequests(repository) - before; asked == 0 {
						test.Errorf("The registry was never asked for %s", tag)
					}
				})
			}
		})
	}
}

// A real node stops the sidecar before it asks the registry, which is down. Where the container may start again, another
// mode follows. Where it may not, the kubelet takes it for ended, and the pod's outcome is decided by the sidecar's own exit
// code, which docs/quick-exit-image.md warns of.
func TestRegistryIsDown(t *testing.T) {
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
			policy := policyForImage(pushQuickExit(test, registry.Reference("quick-exit:v1"), job))
			policy.Spec.Fallback, policy.Spec.TerminationDeadlineSeconds = v1alpha1.FallbackEnabled, ptr.To[int32](3)
			if c.fallback {
				// Until then a busy node has reported why the image is not there, which the event says.
				policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](20)
			}
			gate := test.Gate(&job.Spec.Template)
			test.Create(job)
			test.WaitForRunning("job")
			registry.Stop()
			test.Create(policy)
			gate.Open()

			if c.phase == corev1.PodFailed {
				test.WaitForFailed("job")
			} else {
				test.WaitForComplete("job")
				test.RequireSucceeded("job")
			}
			record := test.RequireFinished("job")
			if record.Pod.Status.Phase != c.phase {
				test.Errorf("Pod %s was to be %s and is %s", record.Pod.Name, c.phase, record.Pod.Status.Phase)
			}
			if c.fallback {
				event := test.WaitForEvent(record.Pod, v1alpha1.ReasonFallback)
				if !strings.Contains(event.Message, "ErrImagePull") && !strings.Contains(event.Message, "ImagePullBackOff") {
					test.Errorf("The event says %q", event.Message)
				}
				return
			}
			// Nothing was started in its place.
			status := record.Container(harness.SidecarName)
			if status.State.Terminated == nil || status.State.Terminated.ExitCode != c.exitCode || status.RestartCount != 0 {
				test.Errorf("The sidecar was to be ended with its own exit code %d: %+v", c.exitCode, status)
			}
		})
	}
}
