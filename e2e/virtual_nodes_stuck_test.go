//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const missingImage = "localhost/not-there:1"

// Without another mode an image that cannot be pulled leaves the pod stuck: it says so, its Job does not fail, and it
// ends once the image can be had.
//
// Under Never a kubelet, unlike a virtual one, takes a container that it stopped and could not start again for ended,
// so that the pod finishes with the exit code of the stop; docs/virtual-nodes.md warns of a declared mode Image there.
func TestQuickExitImageCannotBePulled(t *testing.T) {
	harness.Shared(t)
	for _, c := range []struct {
		node          string
		restartPolicy corev1.RestartPolicy
	}{
		{virtualNode, corev1.RestartPolicyNever},
		{virtualNode, corev1.RestartPolicyOnFailure},
		{fargateNode, corev1.RestartPolicyOnFailure},
	} {
		node, restartPolicy := c.node, c.restartPolicy
		t.Run(node+"/"+string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(v1alpha1.ModeImage)
			policy.Spec.Image, policy.Spec.Fallback = missingImage, v1alpha1.FallbackDisabled
			policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](3)
			job := harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
			job.Spec.BackoffLimit = ptr.To[int32](1)
			if restartPolicy == corev1.RestartPolicyOnFailure {
				job.Spec.BackoffLimit = ptr.To[int32](3)
			}
			test.Create(policy, onNode(job, node))
			test.WaitForMain("job")
			var pod *corev1.Pod
			test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods("job")[0].Pod })
			if event := test.WaitForEvent(pod, v1alpha1.ReasonStuck); !strings.Contains(event.Message, harness.SidecarName) {
				test.Errorf("The event says %q", event.Message)
			}
			test.EventuallyStatus(policy, "the pod to be stuck", func(status v1alpha1.PolicyStatus) error {
				if degraded := harness.Condition(status, v1alpha1.ConditionDegraded); status.StuckPods != 1 || degraded.Status != metav1.ConditionTrue {
					return fmt.Errorf("stuckPods is %d and degraded is %+v", status.StuckPods, degraded)
				}
				return nil
			})
			requireStillRunning(test)

			test.Get(pod)
			patch := client.RawPatch("application/strategic-merge-patch+json",
				[]byte(`{"spec":{"containers":[{"name":"`+harness.SidecarName+`","image":"`+harness.QuickExitImage+`"}]}}`))
			if err := test.Client.Patch(test.Context(), pod, patch); err != nil {
				test.Fatalf("Give the sidecar an image that can be had: %v", err)
			}
			test.WaitForComplete("job")
			test.RequireSucceeded("job")
			test.EventuallyStatus(policy, "the pod to be stuck no longer", func(status v1alpha1.PolicyStatus) error {
				if degraded := harness.Condition(status, v1alpha1.ConditionDegraded); status.StuckPods != 0 || degraded.Type != "" {
					return fmt.Errorf("stuckPods is %d and degraded is %+v", status.StuckPods, degraded)
				}
				return nil
			})
		})
	}
}

// requireStillRunning requires that the Job named job has one pod, which has not finished.
func requireStillRunning(test *harness.Test) {
	test.Helper()
	test.Recorder.Look(func(seen harness.Seen) {
		pods := seen.Pods("job")
		if len(pods) != 1 || pods[0].Pod.Status.Phase != corev1.PodRunning {
			test.Errorf("The Job was to have one running pod: %s", seen.Describe("job"))
		}
	})
}

// A mode that the node does not have, and no fallback: the pod says so at once and is left alone.
func TestNoModeIsUsableOnVirtualNode(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	policy := harness.Policy(v1alpha1.ModePodPhase)
	policy.Spec.Fallback = v1alpha1.FallbackDisabled
	test.Create(policy, onNode(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)), virtualNode))
	test.WaitForMain("job")
	var pod *corev1.Pod
	test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods("job")[0].Pod })
	test.WaitForEvent(pod, v1alpha1.ReasonVirtualNode)
	requireStillRunning(test)
}
