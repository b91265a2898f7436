//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// restartsContainersByOwnPolicy is the first version whose kubelets act on a container's own restartPolicy. API servers since then
// accept the field, whatever the version of the kubelet.
const restartsContainersByOwnPolicy = "1.35"

// The operator waits for a main container exactly if the kubelet restarts it.
func TestContainerRestartPolicy(t *testing.T) {
	const failsOnce = "[ -e /started/failed ] || { : > /started/failed; sleep 2; exit 1; }; sleep 2"
	type end struct {
		phase    corev1.PodPhase
		restarts int32
	}
	restarted, notRestarted := end{corev1.PodSucceeded, 1}, end{corev1.PodFailed, 0}
	harness.Shared(t)
	for name, c := range map[string]struct {
		pod  corev1.RestartPolicy
		main corev1.ContainerRestartPolicy
		// newer and older are for kubelets that act on the container's restartPolicy, and for older ones.
		newer, older end
	}{
		"OnFailure under Never": {corev1.RestartPolicyNever, corev1.ContainerRestartPolicyOnFailure, restarted, notRestarted},
		"Never under OnFailure": {corev1.RestartPolicyOnFailure, corev1.ContainerRestartPolicyNever, notRestarted, restarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			wanted := c.older
			if test.KubeletIsAtLeast(restartsContainersByOwnPolicy) {
				wanted = c.newer
			}
			main := harness.Container(harness.MainName, failsOnce)
			main.RestartPolicy = ptr.To(c.main)
			template := harness.PodTemplate(c.pod, harness.Sidecar(harness.ExitsZeroOnTerm), main)
			harness.ReportStart(&template.Spec)
			test.Create(harness.Policy(v1alpha1.ModeAuto), harness.Pod("pod", nil, template))

			record := test.RequireFinished("pod")
			if got := (end{record.Pod.Status.Phase, record.Container(harness.MainName).RestartCount}); got != wanted {
				test.Errorf("The pod ended as %+v, want %+v: %s", got, wanted, record.States)
			}
		})
	}
}
