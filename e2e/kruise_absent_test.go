//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// The absence of Kruise is a state that the operator starts in and leaves while it runs.
func TestKruiseInstalledAfterOperatorStart(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.RestoreWith("kruise", "install")
	test.LocalCluster("kruise", "remove")
	test.DeleteOperatorPod()
	test.WaitForOperator()
	operator := test.OperatorPod()

	auto := harness.Policy(v1alpha1.ModeAuto)
	auto.Name = "auto"
	auto.Spec.PodSelector.MatchLabels = map[string]string{"mode": "auto"}
	crr := harness.Policy(v1alpha1.ModeCRR)
	crr.Name = "crr"
	crr.Spec.ExitCodes = v1alpha1.ExitCodesRespect
	crr.Spec.PodSelector.MatchLabels = map[string]string{"mode": "crr"}

	without := harness.Job("without-kruise", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
	without.Spec.Template.Labels = auto.Spec.PodSelector.MatchLabels
	test.Create(auto, without)
	test.WaitForComplete("without-kruise")
	record := test.RequireSucceeded("without-kruise")
	test.RequireRequests(record, 0)

	test.LocalCluster("kruise", "install")
	with := harness.Job("with-kruise", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
	with.Spec.Template.Labels = crr.Spec.PodSelector.MatchLabels
	test.Create(crr, with)
	requireEndedByRequest(test, "with-kruise")

	if now := test.OperatorPod(); now.UID != operator.UID || restarts(now) != restarts(operator) {
		test.Errorf("The operator was to go on running, and it was started again: %s", strings.Join([]string{operator.Name, now.Name}, " -> "))
	}
}

func restarts(pod *corev1.Pod) int32 {
	var count int32
	for i := range pod.Status.ContainerStatuses {
		count += pod.Status.ContainerStatuses[i].RestartCount
	}
	return count
}
