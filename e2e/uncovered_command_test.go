//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// The quick-exit image does not have the sidecar's command, so the operator falls back to another mode.
func TestUncoveredCommandFallsBack(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		job := jobWithRealSidecar(test, registry, restartPolicy)
		sidecar := &job.Spec.Template.Spec.Containers[0]
		sidecar.Command = []string{sidecarProgram}
		policy := harness.Policy(v1alpha1.ModeImage)
		test.Create(policy, job)
		record := test.RequireCompleted("job")
		requireUntouchedSidecar(test, record, sidecar.Image)
		requireEventOfPolicy(test, test.WaitForEvent(record.Pod, v1alpha1.ReasonFallback), policy)
	})
}

// Without fallback, the sidecar keeps running, and the pod and the policy report the reason. An image with the command is not
// enough: quickExitPaths must list the command.
func TestUncoveredCommandWithoutFallback(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		job := jobWithRealSidecar(test, registry, restartPolicy)
		sidecar := &job.Spec.Template.Spec.Containers[0]
		sidecar.Command = []string{sidecarProgram}
		original := sidecar.Image
		image := pushQuickExit(test, registry, "quick-exit:"+test.Namespace)
		policy := harness.Policy(v1alpha1.ModeImage)
		policy.Spec.Fallback = v1alpha1.FallbackDisabled
		test.Create(policy, job)
		requireStuckForCommand(test, policy, harness.QuickExitImage, 1)
		requireSidecarRunning(test, original)

		test.MergePatch(policy, `{"spec":{"image":"`+image+`"}}`)
		requireStuckForCommand(test, policy, image, 2)
		requireSidecarRunning(test, original)

		test.MergePatch(policy, `{"spec":{"quickExitPaths":["default","`+sidecarProgram+`"]}}`)
		requireEndedByRealImage(test, image)
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

// requireStuckForCommand waits until the policy, at the generation, and the pod of the Job named job report that the image does not
// cover the sidecar's command.
func requireStuckForCommand(test *harness.Test, policy *v1alpha1.SidecarTerminationPolicy, image string, generation int64) {
	test.Helper()
	const reason = v1alpha1.ReasonCommandNotCovered
	test.EventuallyStatus(policy, "the pod to be stuck because of its command", func(status v1alpha1.PolicyStatus) error {
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
	pod := test.PodOf("job")
	event := test.WaitForEvent(pod, reason)
	requireEventOfPolicy(test, event, policy)
	if !strings.Contains(event.Message, "quickExitPaths: [default, "+sidecarProgram+"] in the spec of SidecarTerminationPolicy/"+policy.Name) {
		test.Errorf("The event does not suggest quickExitPaths: %s", event.Message)
	}
}

// requireSidecarRunning requires that the Job named job has one pod with an untouched, running sidecar.
func requireSidecarRunning(test *harness.Test, image string) {
	test.Helper()
	requireStillRunning(test)
	test.Recorder.Look(func(seen harness.Seen) {
		record := seen.Pods("job")[0]
		requireUntouchedSidecar(test, record, image)
		if status := record.Container(harness.SidecarName); status == nil || status.State.Running == nil {
			test.Errorf("The sidecar is not running: %+v", status)
		}
	})
}

// requireUntouchedSidecar requires that the sidecar has its image and did not restart.
func requireUntouchedSidecar(test *harness.Test, record *harness.PodRecord, image string) {
	test.Helper()
	test.RequireImage(record, harness.SidecarName, image)
	if swap := record.Pod.Annotations[v1alpha1.AnnotationImageSwap]; swap != "" {
		test.Errorf("An image of pod %s was swapped: %s", record.Pod.Name, swap)
	}
	if status := record.Container(harness.SidecarName); status == nil || status.RestartCount != 0 {
		test.Errorf("The sidecar restarted: %+v", status)
	}
}
