//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// Nodes on which no Kruise daemon can run: one that virtual-kubelet serves, and one with a kubelet and the label of AWS
// Fargate.
const (
	virtualNode = "virtual-1"
	fargateNode = "fargate-1"
)

var daemonlessNodes = []string{virtualNode, fargateNode}

// onNode has the pods of the Job scheduled to the node, which other pods are kept away from.
func onNode(job *batchv1.Job, node string) *batchv1.Job {
	job.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	job.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return job
}

// forEachDaemonlessNode runs the subtest for each such node and each restartPolicy.
func forEachDaemonlessNode(t *testing.T, run func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy)) {
	t.Helper()
	for _, node := range daemonlessNodes {
		for _, restartPolicy := range jobRestartPolicies {
			t.Run(node+"/"+string(restartPolicy), func(t *testing.T) {
				t.Parallel()
				run(harness.New(t), node, restartPolicy)
			})
		}
	}
}

// A policy that says nothing of modes and images is enough: the operator has an image of its own.
func TestAutoPolicyWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
		job := harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(3))
		test.Create(harness.Policy(v1alpha1.ModeAuto), onNode(job, node))
		requireEndedByImage(test)
	})
}

// A declared mode that the node does not have is replaced.
func TestCRRPolicyWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
		job := harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(3))
		test.Create(harness.Policy(v1alpha1.ModeCRR), onNode(job, node))
		requireEndedByImage(test)
		requireFallback(test)
	})
}

func TestEnvWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	for name, variables := range map[string][]string{
		"image": {v1alpha1.EnvTerminateWithImage, harness.QuickExitImage},
		"both":  bothVariables,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
				test.Create(onNode(jobWithEnv(restartPolicy, variables...), node))
				requireEndedByImage(test)
			})
		})
	}
}

// OpenKruise leaves such a pod running for ever.
func TestEnvWithoutImageWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
		test.Create(onNode(jobWithEnv(restartPolicy, v1alpha1.EnvTerminate, "true"), node))
		requireEndedByImage(test)
		requireFallback(test)
	})
}

// All sidecars are swapped at once. Under OnFailure each swap is a restart, of which the Job must allow as many.
func TestThreeSidecarsWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
		sidecars := map[string]string{"exits-zero": harness.ExitsZeroOnTerm, "exits-seven": harness.ExitsSevenOnTerm, "ignores": harness.IgnoresTerm}
		containers, names := []corev1.Container{harness.Main(3)}, []string{}
		for name, script := range sidecars {
			containers, names = append(containers, harness.Container(name, script)), append(names, name)
		}
		job := harness.Job("job", restartPolicy, containers...)
		job.Spec.BackoffLimit = ptr.To[int32](6)
		test.Create(harness.Policy(v1alpha1.ModeAuto, names...), onNode(job, node))
		test.WaitForComplete("job")
		record := test.RequireSucceeded("job")
		for _, name := range names {
			test.RequireImage(record, name, harness.QuickExitImage)
			if status := record.Container(name); status.RestartCount != 1 || status.State.Terminated.ExitCode != 0 {
				test.Errorf("Container %s was to be started once more and to exit 0: %+v", name, status)
			}
		}
	})
}

// requireFallback requires that the pod of the Job named job has been told that its declared mode was replaced.
func requireFallback(test *harness.Test) {
	test.Helper()
	var pod *corev1.Pod
	test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods("job")[0].Pod })
	test.WaitForEvent(pod, v1alpha1.ReasonFallback)
}
