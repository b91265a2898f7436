//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// The sidecar could not start with the quick-exit image, which does not have its command, and so it is ended otherwise.
func TestCommandThatTheImageDoesNotHaveIsEndedByAnotherMode(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			job := jobWithRealSidecar(test, registry, restartPolicy)
			sidecar := &job.Spec.Template.Spec.Containers[0]
			sidecar.Command = []string{sidecarProgram}
			policy := harness.Policy(v1alpha1.ModeImage)
			test.Create(policy, job)
			test.WaitForComplete("job")
			record := test.RequireSucceeded("job")
			requireUntouchedSidecar(test, record, sidecar.Image)
			requireEventOfPolicy(test, test.WaitForEvent(record.Pod, v1alpha1.ReasonFallback), policy)
		})
	}
}

// Without another mode the sidecar runs on, and the pod and the policy say why. An image that has the command is not enough:
// that it has it is to be said, and saying it is enough.
func TestCommandThatTheImageDoesNotHaveWithoutFallback(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			job := jobWithRealSidecar(test, registry, restartPolicy)
			sidecar := &job.Spec.Template.Spec.Containers[0]
			sidecar.Command = []string{sidecarProgram}
			original := sidecar.Image
			image := pushQuickExit(test, registry.Reference("quick-exit:"+test.Namespace), job)
			if !slices.Contains(image.Paths, sidecarProgram) {
				test.Fatalf("The quick-exit image was to have %s: %v", sidecarProgram, image.Paths)
			}
			policy := harness.Policy(v1alpha1.ModeImage)
			policy.Spec.Fallback = v1alpha1.FallbackDisabled
			test.Create(policy, job)
			requireStuckForCommand(test, policy, harness.QuickExitImage, 1)
			requireLeftAlone(test, original)

			patchPolicy(test, policy, `{"spec":{"image":"`+image.Image+`"}}`)
			requireStuckForCommand(test, policy, image.Image, 2)
			requireLeftAlone(test, original)

			patchPolicy(test, policy, `{"spec":{"quickExitPaths":["default","`+sidecarProgram+`"]}}`)
			requireEndedByShippedImage(test, image.Image)
			test.EventuallyStatus(policy, "the policy to be ready again", func(status v1alpha1.PolicyStatus) error {
				if ready := harness.Condition(status, v1alpha1.ConditionReady); status.StuckPods != 0 || ready.Status != metav1.ConditionTrue {
					return fmt.Errorf("stuckPods is %d and ready is %+v", status.StuckPods, ready)
				}
				if degraded := harness.Condition(status, v1alpha1.ConditionDegraded); degraded.Type != "" {
					return fmt.Errorf("degraded is %+v", degraded)
				}
				return nil
			})
		})
	}
}

// requireStuckForCommand waits for the policy, at the generation, to say of the pod of the Job named job that the image does
// not have the sidecar's command, and for the pod to say so.
func requireStuckForCommand(test *harness.Test, policy *v1alpha1.SidecarTerminationPolicy, image string, generation int64) {
	test.Helper()
	const reason = v1alpha1.ReasonCommandNotCovered
	test.EventuallyStatus(policy, "the pod to be stuck for its command", func(status v1alpha1.PolicyStatus) error {
		if status.StuckPods != 1 || status.ObservedGeneration != generation {
			return fmt.Errorf("stuckPods is %d at generation %d", status.StuckPods, status.ObservedGeneration)
		}
		if got := harness.Condition(status, v1alpha1.ConditionReady); got.Status != metav1.ConditionTrue {
			return fmt.Errorf("ready is %+v", got)
		}
		got := harness.Condition(status, v1alpha1.ConditionDegraded)
		if got.Reason != string(reason) || !strings.Contains(got.Message, sidecarProgram) || !strings.Contains(got.Message, image) {
			return fmt.Errorf("degraded is %+v", got)
		}
		return nil
	})
	var pod *corev1.Pod
	test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods("job")[0].Pod })
	event := test.WaitForEvent(pod, reason)
	requireEventOfPolicy(test, event, policy)
	if !strings.Contains(event.Message, "quickExitPaths: [default, "+sidecarProgram+"] in the spec of SidecarTerminationPolicy/"+policy.Name) {
		test.Errorf("The event does not say what to do: %s", event.Message)
	}
}

// requireLeftAlone requires that the Job named job has one pod, whose sidecar runs on as it was started.
func requireLeftAlone(test *harness.Test, image string) {
	test.Helper()
	requireStillRunning(test)
	test.Recorder.Look(func(seen harness.Seen) {
		record := seen.Pods("job")[0]
		requireUntouchedSidecar(test, record, image)
		if status := record.Container(harness.SidecarName); status == nil || status.State.Running == nil {
			test.Errorf("The sidecar was to run on: %+v", status)
		}
	})
}

// requireUntouchedSidecar requires that the sidecar has its own image and was started once.
func requireUntouchedSidecar(test *harness.Test, record *harness.PodRecord, image string) {
	test.Helper()
	test.RequireImage(record, harness.SidecarName, image)
	if swap := record.Pod.Annotations[v1alpha1.AnnotationImageSwap]; swap != "" {
		test.Errorf("An image of pod %s was swapped: %s", record.Pod.Name, swap)
	}
	if status := record.Container(harness.SidecarName); status == nil || status.RestartCount != 0 {
		test.Errorf("The sidecar was to be started once: %+v", status)
	}
}

func patchPolicy(test *harness.Test, policy *v1alpha1.SidecarTerminationPolicy, patch string) {
	test.Helper()
	if err := test.Client.Patch(test.Context(), policy, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		test.Fatalf("Change the policy: %v", err)
	}
}
