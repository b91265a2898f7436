//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// Nodes on which no Kruise daemon can run: one that virtual-kubelet serves, whose sidecars are ended by mode Image, and one
// with a kubelet and the label of AWS Fargate, whose sidecars are ended by mode PodPhase.
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
		requireEndedByModeOf(test, node, 7)
	})
}

// A declared mode that the node does not have is replaced.
func TestCRRPolicyWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
		job := harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(3))
		test.Create(harness.Policy(v1alpha1.ModeCRR), onNode(job, node))
		requireEndedByModeOf(test, node, 7)
		requireFallback(test)
	})
}

// Both variables leave the mode to the node, and the one with the image declares mode Image.
func TestEnvWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	t.Run("both", func(t *testing.T) {
		t.Parallel()
		forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
			test.Create(onNode(jobWithEnv(restartPolicy, bothVariables...), node))
			requireEndedByModeOf(test, node, 0)
		})
	})
	t.Run("image", func(t *testing.T) {
		t.Parallel()
		forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
			test.Create(onNode(jobWithEnv(restartPolicy, v1alpha1.EnvTerminateWithImage, harness.QuickExitImage), node))
			requireEndedByImage(test)
		})
	})
}

// OpenKruise leaves such a pod running for ever.
func TestEnvWithoutImageWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
		test.Create(onNode(jobWithEnv(restartPolicy, v1alpha1.EnvTerminate, "true"), node))
		requireEndedByModeOf(test, node, 0)
		requireFallback(test)
	})
}

// An image of a policy goes before that of the operator. This one cannot be pulled, and so shows whose it is.
func TestEnvWithImageOfPolicyOnVirtualNode(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	policy := harness.Policy("")
	policy.Spec.Image = missingImage
	policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](3)
	test.Create(policy, onNode(jobWithEnv(corev1.RestartPolicyNever, v1alpha1.EnvTerminate, "true"), virtualNode))
	test.WaitForMain("job")
	requireFallback(test)
	var record *harness.PodRecord
	test.EventuallySeen("the image to be swapped", harness.FinishTimeout, func(seen harness.Seen) error {
		record = seen.Pods("job")[0]
		if image := record.Image(harness.SidecarName); image != missingImage {
			return fmt.Errorf("the sidecar has the image %s", image)
		}
		return nil
	})
	if event := test.WaitForEvent(record.Pod, v1alpha1.ReasonStuck); !strings.Contains(event.Message, harness.SidecarName) {
		test.Errorf("The event says %q", event.Message)
	}
	requireStillRunning(test)
}

// Where no image is set at any level the pod says so, and goes on when a policy brings one.
func TestEnvWithoutAnyImageOnVirtualNode(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.SetOperatorVariable("QUICK_EXIT_IMAGE", "")
	test.Create(onNode(jobWithEnv(corev1.RestartPolicyNever, v1alpha1.EnvTerminate, "true"), virtualNode))
	test.WaitForMain("job")
	var pod *corev1.Pod
	test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods("job")[0].Pod })
	if event := test.WaitForEvent(pod, v1alpha1.ReasonNoUsableMode); !strings.Contains(event.Message, "no quick-exit image is set") {
		test.Errorf("The event says %q", event.Message)
	}
	requireStillRunning(test)
	policy := harness.Policy("")
	policy.Spec.Image = harness.QuickExitImage
	test.Create(policy)
	requireEndedByImage(test)
}

// The record of a swap is lost while the old container is still being stopped: the container is neither stopped nor
// swapped once more, and its pod ends as if nothing had been lost.
func TestRecordOfSwapIsLostOnVirtualNode(t *testing.T) {
	harness.Shared(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			policy := harness.Policy(v1alpha1.ModeAuto)
			test.Create(policy, onNode(harness.Job("job", restartPolicy, harness.Sidecar(harness.IgnoresTerm), harness.Main(2)), virtualNode))
			var pod *corev1.Pod
			test.EventuallySeen("the swap to be on record", harness.FinishTimeout, func(seen harness.Seen) error {
				if pods := seen.Pods("job"); len(pods) == 1 && pods[0].Pod.Annotations[v1alpha1.AnnotationImageSwap] != "" {
					pod = pods[0].Pod
					return nil
				}
				return fmt.Errorf("it is not: %s", seen.Describe("job"))
			})
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationImageSwap+`":null}}}`))
			if err := test.Client.Patch(test.Context(), pod.DeepCopy(), patch); err != nil {
				test.Fatalf("Remove the record: %v", err)
			}
			test.WaitForComplete("job")
			record := test.RequireSucceeded("job")
			test.RequireImage(record, harness.SidecarName, harness.QuickExitImage)
			// A status that the node had under way may bring the record back, but not another one.
			if swap := record.Pod.Annotations[v1alpha1.AnnotationImageSwap]; swap != "" && swap != pod.Annotations[v1alpha1.AnnotationImageSwap] {
				test.Errorf("The swap was made once more: %s", swap)
			}
			if sidecar := record.Container(harness.SidecarName); sidecar.RestartCount != 1 || sidecar.State.Terminated.ExitCode != 0 {
				test.Errorf("The sidecar was to be started once more and to exit 0: %+v", sidecar)
			}
			test.EventuallyStatus(policy, "one termination and no failure", func(status v1alpha1.PolicyStatus) error {
				if status.TerminatedPods != 1 || status.FailedAttempts != 0 || status.StuckPods != 0 {
					return fmt.Errorf("the status is %+v", status)
				}
				return nil
			})
		})
	}
}

// All sidecars are swapped at once. Under OnFailure each swap is a restart, of which the Job must allow as many.
func TestThreeSidecarsOnVirtualNode(t *testing.T) {
	harness.Shared(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			job := jobWithThreeSidecars(restartPolicy)
			job.Spec.BackoffLimit = ptr.To[int32](6)
			test.Create(harness.Policy(v1alpha1.ModeAuto, slices.Sorted(maps.Keys(threeSidecars))...), onNode(job, virtualNode))
			test.WaitForComplete("job")
			record := test.RequireSucceeded("job")
			for name := range threeSidecars {
				test.RequireImage(record, name, harness.QuickExitImage)
				if status := record.Container(name); status.RestartCount != 1 || status.State.Terminated.ExitCode != 0 {
					test.Errorf("Container %s was to be started once more and to exit 0: %+v", name, status)
				}
			}
		})
	}
}

// threeSidecars are the scripts of sidecars that end in different ways.
var threeSidecars = map[string]string{"exits-zero": harness.ExitsZeroOnTerm, "exits-seven": harness.ExitsSevenOnTerm, "ignores": harness.IgnoresTerm}

// jobWithThreeSidecars returns a Job with those sidecars, which have the environment variables.
func jobWithThreeSidecars(restartPolicy corev1.RestartPolicy, namesAndValues ...string) *batchv1.Job {
	containers := []corev1.Container{harness.Main(3)}
	for _, name := range slices.Sorted(maps.Keys(threeSidecars)) {
		containers = append(containers, harness.WithEnv(harness.Container(name, threeSidecars[name]), namesAndValues...))
	}
	return harness.Job("job", restartPolicy, containers...)
}

// requireEndedByModeOf waits for the Job named job to be Complete and requires that its sidecar was ended by the mode that
// Auto uses on the node. The exit code is that of the sidecar when it is stopped.
func requireEndedByModeOf(test *harness.Test, node string, exitCode int32) {
	test.Helper()
	if node == virtualNode {
		requireEndedByImage(test)
		return
	}
	requireEndedByPhase(test, map[string]int32{harness.SidecarName: exitCode})
}

// requireFallback requires that the pod of the Job named job has been told that its declared mode was replaced.
func requireFallback(test *harness.Test) {
	test.Helper()
	var pod *corev1.Pod
	test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods("job")[0].Pod })
	test.WaitForEvent(pod, v1alpha1.ReasonFallback)
}
