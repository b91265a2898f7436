//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/e2e/harness"
)

// restartsAllContainers is the first version whose kubelets restart all containers of a pod by a rule (KEP-5532).
const restartsAllContainers = "1.36"

// TestRestartOfAllContainers restarts all containers of a pod once, by a rule of the main container, or of a native sidecar as in JobSet's
// in-place restart. Sidecars end after the last run of the main container.
func TestRestartOfAllContainers(t *testing.T) {
	harness.Shared(t)
	if !harness.KubeletIsAtLeast(t, restartsAllContainers) {
		t.Skip("kubelets before 1.36 do not restart all containers of a pod")
	}
	var all []behaviour
	for _, mode := range modes {
		all = append(all, behaviour{string(mode) + ", main exits", with(mode), restartedByMain(), restartedOnce},
			behaviour{string(mode) + ", agent exits", with(mode), restartedByAgent(), restartedOnce})
	}
	runBehaviours(t, all)
}

// restartedOnce requires that the Job completes after one restart of the main container.
func restartedOnce(test *harness.Test) {
	test.Helper()
	test.WaitForComplete("job")
	record := test.RequireFinished("job")
	if main := record.Container(harness.MainName); main.RestartCount != 1 || record.Pod.Status.Phase != corev1.PodSucceeded {
		test.Errorf("The main container has restarted %d times, want once: %s", main.RestartCount, record.PhaseLog())
	}
}

// once restarts all containers when the container exits 75.
func once(container corev1.Container, policy corev1.ContainerRestartPolicy) corev1.Container {
	container.RestartPolicy = &policy
	container.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{75}},
	}}
	return container
}

func restartedByMain() *batchv1.Job {
	main := harness.Container(harness.MainName, "sleep 2; [ -e /shared/restarted ] && exit 0; touch /shared/restarted; exit 75")
	return sharing(harness.Job("job", corev1.RestartPolicyNever, once(main, corev1.ContainerRestartPolicyNever), harness.Sidecar(harness.ExitsSevenOnTerm)))
}

func restartedByAgent() *batchv1.Job {
	job := harness.Job("job", corev1.RestartPolicyNever, harness.Main(8), harness.Sidecar(harness.ExitsSevenOnTerm))
	agent := harness.Container("agent", "trap 'exit 0' TERM; [ -e /shared/restarted ] || { sleep 3; touch /shared/restarted; exit 75; }; sleep 3600 & wait")
	job.Spec.Template.Spec.InitContainers = []corev1.Container{once(agent, corev1.ContainerRestartPolicyAlways)}
	return sharing(job)
}

// sharing gives all containers a directory, and the Job no second pod.
func sharing(job *batchv1.Job) *batchv1.Job {
	job.Spec.BackoffLimit = ptr.To[int32](0)
	harness.ShareDirectory(&job.Spec.Template.Spec, "/shared")
	return job
}
