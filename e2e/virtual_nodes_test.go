//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// Nodes without OpenKruise's daemon: a virtual node, where Auto uses mode Image, and one with a kubelet and the label of AWS
// Fargate, where Auto uses mode PodPhase.
const (
	virtualNode = "virtual-1"
	fargateNode = "fargate-1"
)

var daemonlessNodes = []string{virtualNode, fargateNode}

// onNode schedules the Job's pods to the node, which has taints.
func onNode(job *batchv1.Job, node string) *batchv1.Job {
	job.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	job.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return job
}

// forEachDaemonlessNode runs a parallel subtest for each of daemonlessNodes and each restartPolicy.
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

// The policy needs neither mode nor image: the operator has a default image.
func TestAutoPolicyWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
		job := harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(3))
		test.Create(harness.Policy(v1alpha1.ModeAuto), onNode(job, node))
		requireEndedByModeOf(test, node, 7)
	})
}

// The operator falls back from a mode that the node does not support.
func TestCRRPolicyWithoutDaemon(t *testing.T) {
	harness.Shared(t)
	forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
		job := harness.Job("job", restartPolicy, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(3))
		test.Create(harness.Policy(v1alpha1.ModeCRR), onNode(job, node))
		requireEndedByModeOf(test, node, 7)
		requireFallback(test)
	})
}

// With both variables the node decides the mode. WITH_IMAGE alone declares mode Image.
func TestEnvWithImageWithoutDaemon(t *testing.T) {
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

// With OpenKruise, this pod would run forever.
func TestEnvWithoutImageOrDaemon(t *testing.T) {
	harness.Shared(t)
	forEachDaemonlessNode(t, func(test *harness.Test, node string, restartPolicy corev1.RestartPolicy) {
		test.Create(onNode(jobWithEnv(restartPolicy, v1alpha1.EnvTerminate, "true"), node))
		requireEndedByModeOf(test, node, 0)
		requireFallback(test)
	})
}

// The policy's image takes precedence over the operator's. It cannot be pulled, so the pod gets stuck.
func TestPolicyImageForEnvOnVirtualNode(t *testing.T) {
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
		test.Errorf("The event has message %q", event.Message)
	}
	requireStillRunning(test)
}

// Without an image at any level the pod reports NoUsableMode, and recovers when a policy sets an image.
func TestNoQuickExitImageOnVirtualNode(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.SetOperatorVariable("QUICK_EXIT_IMAGE", "")
	test.Create(onNode(jobWithEnv(corev1.RestartPolicyNever, v1alpha1.EnvTerminate, "true"), virtualNode))
	pod := test.WaitForMain("job")
	if event := test.WaitForEvent(pod, v1alpha1.ReasonNoUsableMode); !strings.Contains(event.Message, "no quick-exit image is set") {
		test.Errorf("The event has message %q", event.Message)
	}
	requireStillRunning(test)
	policy := harness.Policy("")
	policy.Spec.Image = harness.QuickExitImage
	test.Create(policy)
	requireEndedByImage(test)
}

// The swap's record is lost while the old container terminates. The operator must not repeat the swap.
func TestLostSwapRecordOnVirtualNode(t *testing.T) {
	harness.Shared(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		policy := harness.Policy(v1alpha1.ModeAuto)
		test.Create(policy, onNode(harness.Job("job", restartPolicy, harness.Sidecar(harness.IgnoresTerm), harness.Main(2)), virtualNode))
		var pod *corev1.Pod
		test.EventuallySeen("the swap to be recorded", harness.FinishTimeout, func(seen harness.Seen) error {
			if pods := seen.Pods("job"); len(pods) == 1 && pods[0].Pod.Annotations[v1alpha1.AnnotationImageSwap] != "" {
				pod = pods[0].Pod
				return nil
			}
			return errors.New(seen.Describe("job"))
		})
		test.MergePatch(pod.DeepCopy(), `{"metadata":{"annotations":{"`+v1alpha1.AnnotationImageSwap+`":null}}}`)
		record := test.RequireCompleted("job")
		test.RequireImage(record, harness.SidecarName, harness.QuickExitImage)
		// An in-flight status update of the node may restore the record.
		if swap := record.Pod.Annotations[v1alpha1.AnnotationImageSwap]; swap != "" && swap != pod.Annotations[v1alpha1.AnnotationImageSwap] {
			test.Errorf("The swap was repeated: %s", swap)
		}
		if sidecar := record.Container(harness.SidecarName); sidecar.RestartCount != 1 || sidecar.State.Terminated.ExitCode != 0 {
			test.Errorf("The sidecar did not restart once and exit 0: %+v", sidecar)
		}
		test.EventuallyStatus(policy, "one termination and no failure", func(status v1alpha1.PolicyStatus) error {
			if status.TerminatedPods != 1 || status.FailedAttempts != 0 || status.StuckPods != 0 {
				return fmt.Errorf("the status is %+v", status)
			}
			return nil
		})
	})
}

// All sidecars are swapped at once. Under OnFailure each swap is a restart, so backoffLimit must allow them.
func TestThreeSidecarsOnVirtualNode(t *testing.T) {
	harness.Shared(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		job := jobWithThreeSidecars(restartPolicy)
		job.Spec.BackoffLimit = ptr.To[int32](6)
		test.Create(harness.Policy(v1alpha1.ModeAuto, slices.Sorted(maps.Keys(threeSidecars))...), onNode(job, virtualNode))
		record := test.RequireCompleted("job")
		for name := range threeSidecars {
			test.RequireImage(record, name, harness.QuickExitImage)
			if status := record.Container(name); status.RestartCount != 1 || status.State.Terminated.ExitCode != 0 {
				test.Errorf("Container %s did not restart once and exit 0: %+v", name, status)
			}
		}
	})
}

// threeSidecars are scripts of sidecars that handle SIGTERM differently.
var threeSidecars = map[string]string{"exits-zero": harness.ExitsZeroOnTerm, "exits-seven": harness.ExitsSevenOnTerm, "ignores": harness.IgnoresTerm}

// jobWithThreeSidecars returns a Job with threeSidecars, which have the environment variables.
func jobWithThreeSidecars(restartPolicy corev1.RestartPolicy, namesAndValues ...string) *batchv1.Job {
	containers := []corev1.Container{harness.Main(3)}
	for _, name := range slices.Sorted(maps.Keys(threeSidecars)) {
		containers = append(containers, harness.WithEnv(harness.Container(name, threeSidecars[name]), namesAndValues...))
	}
	return harness.Job("job", restartPolicy, containers...)
}

// requireEndedByModeOf waits until the Job named job is Complete and requires that its sidecar was terminated by the mode that Auto
// uses on the node. The exit code is the sidecar's after SIGTERM.
func requireEndedByModeOf(test *harness.Test, node string, exitCode int32) {
	test.Helper()
	if node == virtualNode {
		requireEndedByImage(test)
		return
	}
	requireEndedByPhase(test, map[string]int32{harness.SidecarName: exitCode})
}

// requireFallback requires an event about the fallback on the pod of the Job named job.
func requireFallback(test *harness.Test) {
	test.Helper()
	test.WaitForEvent(test.PodOf("job"), v1alpha1.ReasonFallback)
}
