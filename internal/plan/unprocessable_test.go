// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestUnprocessable(t *testing.T) {
	sized := func(containers, initContainers, statuses int) *corev1.Pod {
		pod := newPod(never)
		pod.Spec.Containers = make([]corev1.Container, containers)
		pod.Spec.InitContainers = make([]corev1.Container, initContainers)
		pod.Status.ContainerStatuses = make([]corev1.ContainerStatus, statuses)
		return pod
	}
	evicted := newPod(never)
	evicted.Status.Reason = "Evicted"
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want v1alpha1.Reason
	}{
		"most containers":           {sized(plan.MaxContainers-1, 1, plan.MaxContainers), ""},
		"too many containers":       {sized(plan.MaxContainers, 1, 0), v1alpha1.ReasonPodTooLarge},
		"too many statuses":         {sized(1, 0, plan.MaxContainers+1), v1alpha1.ReasonPodTooLarge},
		"stub":                      {plan.Stub(newPod(never), "too many bytes"), v1alpha1.ReasonPodTooLarge},
		"pod with a reason":         {evicted, ""},
		"pod without restartPolicy": {newPod(""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, message := plan.Unprocessable(tc.pod); got != tc.want || (message == "") != (tc.want == "") {
				t.Errorf("got %q (%s), want %q", got, message, tc.want)
			}
		})
	}
}
