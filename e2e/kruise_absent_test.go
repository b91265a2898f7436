//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// The operator notices that OpenKruise is removed, starts without it, and uses it once it is installed, without a restart.
func TestKruiseRemovedAndInstalled(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.RestoreWith("kruise", "install")
	prePull := prePullPolicy(test)
	prePull.Spec.PodSelector.MatchLabels = map[string]string{policyLabel: "none"}
	test.Create(prePull)
	waitForPrePulled(test, prePull, "True PrePulled")
	test.LocalCluster("kruise", "remove")
	waitForPrePulled(test, prePull, "False PrePullUnavailable OpenKruise does not serve ImagePullJobs")
	test.DeleteOperatorPod()
	test.WaitForOperator()
	operator := test.OperatorPod()

	auto, crr := columnPolicy(v1alpha1.ModeAuto), columnPolicy(v1alpha1.ModeCRR)
	crr.Spec.ExitCodes = v1alpha1.ExitCodesRespect

	without := harness.Job("without-kruise", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
	without.Spec.Template.Labels = auto.Spec.PodSelector.MatchLabels
	test.Create(auto, without)
	record := test.RequireCompleted("without-kruise")
	test.RequireCRRs(record, 0)

	test.LocalCluster("kruise", "install")
	with := harness.Job("with-kruise", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
	with.Spec.Template.Labels = crr.Spec.PodSelector.MatchLabels
	test.Create(crr, with)
	requireEndedByCRR(test, "with-kruise")
	waitForPrePulled(test, prePull, "True PrePulled")

	requireNoRestart(test, operator)
}

// requireNoRestart requires that the operator's pod is the same as before and that its container did not restart.
func requireNoRestart(test *harness.Test, before *corev1.Pod) {
	test.Helper()
	now := test.OperatorPod()
	if now.UID != before.UID || restarts(now) != restarts(before) {
		test.Errorf("The operator restarted: pod %s with %d restarts, now pod %s with %d: %+v",
			before.Name, restarts(before), now.Name, restarts(now), now.Status.ContainerStatuses)
	}
}

func restarts(pod *corev1.Pod) int32 {
	var count int32
	for i := range pod.Status.ContainerStatuses {
		count += pod.Status.ContainerStatuses[i].RestartCount
	}
	return count
}
