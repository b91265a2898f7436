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

// Without fallback, an image that cannot be pulled leaves the pod stuck. Its Job does not fail, and completes once the image is
// available. TestUnpullableImageUnderNever covers Never on a node with a kubelet.
func TestUnpullableQuickExitImage(t *testing.T) {
	harness.Shared(t)
	for _, c := range []struct {
		node          string
		restartPolicy corev1.RestartPolicy
	}{
		{virtualNode, corev1.RestartPolicyNever},
		{virtualNode, corev1.RestartPolicyOnFailure},
		{fargateNode, corev1.RestartPolicyOnFailure},
	} {
		t.Run(c.node+"/"+string(c.restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(v1alpha1.ModeImage)
			policy.Spec.Image, policy.Spec.Fallback = missingImage, v1alpha1.FallbackDisabled
			policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](3)
			job := harness.Job("job", c.restartPolicy, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
			job.Spec.BackoffLimit = ptr.To[int32](1)
			if c.restartPolicy == corev1.RestartPolicyOnFailure {
				job.Spec.BackoffLimit = ptr.To[int32](3)
			}
			test.Create(policy, onNode(job, c.node))
			pod := test.WaitForMain("job")
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
				test.Fatalf("Set an available image: %v", err)
			}
			test.RequireCompleted("job")
			test.EventuallyStatus(policy, "no pod to be stuck", func(status v1alpha1.PolicyStatus) error {
				if degraded := harness.Condition(status, v1alpha1.ConditionDegraded); status.StuckPods != 0 || degraded.Type != "" {
					return fmt.Errorf("stuckPods is %d and degraded is %+v", status.StuckPods, degraded)
				}
				return nil
			})
		})
	}
}

// requireStillRunning requires that the Job named job has one pod, which is Running.
func requireStillRunning(test *harness.Test) {
	test.Helper()
	test.Recorder.Look(func(seen harness.Seen) {
		pods := seen.Pods("job")
		if len(pods) != 1 || pods[0].Pod.Status.Phase != corev1.PodRunning {
			test.Errorf("The Job does not have one running pod: %s", seen.Describe("job"))
		}
	})
}
