//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

var kueueGroupVersion = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}

// Labels and annotations of Kueue.
const (
	queueLabel          = "kueue.x-k8s.io/queue-name"
	priorityLabel       = "kueue.x-k8s.io/priority-class"
	kueueQueue          = "queue"
	workloadFinished    = "Finished"
	workloadAdmitted    = "Admitted"
	lowPriority         = "low"
	highPriority        = "high"
	lingeringPodSeconds = 120
)

func kueueObject(kind, name string, content map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(kueueGroupVersion.WithKind(kind))
	object.SetName(name)
	return object
}

// createQueue makes a queue of the namespace with a quota of CPU for the main container of one Job. Workloads of high priority preempt those of low priority.
func createQueue(test *harness.Test) {
	test.Helper()
	name := test.Namespace
	resources := []any{map[string]any{"name": "cpu", "nominalQuota": "1m"}, map[string]any{"name": "memory", "nominalQuota": "1Gi"}}
	for _, object := range []*unstructured.Unstructured{
		kueueObject("ResourceFlavor", name, map[string]any{}),
		kueueObject("ClusterQueue", name, map[string]any{"spec": map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: test.Namespace}},
			"preemption":        map[string]any{"withinClusterQueue": "LowerPriority"},
			"resourceGroups": []any{map[string]any{
				"coveredResources": []any{"cpu", "memory"},
				"flavors":          []any{map[string]any{"name": name, "resources": resources}},
			}},
		}}),
		kueueObject("WorkloadPriorityClass", name+"-"+lowPriority, map[string]any{"value": int64(1)}),
		kueueObject("WorkloadPriorityClass", name+"-"+highPriority, map[string]any{"value": int64(2)}),
	} {
		test.CreateForCluster(object)
	}
	test.Create(kueueObject("LocalQueue", kueueQueue, map[string]any{"spec": map[string]any{"clusterQueue": name}}))
}

// queued returns a Job of one pod with a sidecar, which waits in the queue.
func queued(test *harness.Test, name, priority string, graceSeconds int64) *batchv1.Job {
	job := harness.Job(name, corev1.RestartPolicyNever, harness.Main(2))
	job.Spec.Template = injected(job.Spec.Template)
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To(graceSeconds)
	job.Labels = map[string]string{queueLabel: kueueQueue, priorityLabel: test.Namespace + "-" + priority}
	return job
}

// workloadOf returns the only Workload of the Job.
func workloadOf(ctx context.Context, test *harness.Test, owner string) (*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kueueGroupVersion.WithKind("WorkloadList"))
	if err := test.Client.List(ctx, list, client.InNamespace(test.Namespace)); err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(list.Items, func(workload unstructured.Unstructured) bool {
		return !slices.ContainsFunc(workload.GetOwnerReferences(), func(reference metav1.OwnerReference) bool { return reference.Name == owner })
	})
	if len(own) != 1 {
		return nil, fmt.Errorf("%s has %d Workloads, want 1", owner, len(own))
	}
	return &own[0], nil
}

// workloadCondition returns the reason and the time of a condition that is True, or "".
func workloadCondition(workload *unstructured.Unstructured, condition string) string {
	conditions, _, _ := unstructured.NestedSlice(workload.Object, "status", "conditions")
	for _, one := range conditions {
		if fields, isMap := one.(map[string]any); isMap && fields["type"] == condition && fields["status"] == "True" {
			return fmt.Sprint(fields["reason"], " at ", fields["lastTransitionTime"])
		}
	}
	return ""
}

// waitForWorkload waits until the Workload of the owner has the condition, and returns the reason and the time.
func waitForWorkload(test *harness.Test, owner, condition string) string {
	test.Helper()
	var since string
	test.Eventually(fmt.Sprintf("the Workload of %s to be %s", owner, condition), harness.FinishTimeout, func(ctx context.Context) error {
		workload, err := workloadOf(ctx, test, owner)
		if err != nil {
			return err
		}
		if since = workloadCondition(workload, condition); since == "" {
			return fmt.Errorf("its status is %v", workload.Object["status"])
		}
		return nil
	})
	return since
}

// requireFinishedOnce fails the test unless the owner's only Workload has been finished since then.
func requireFinishedOnce(test *harness.Test, owner, since string) {
	test.Helper()
	if again := waitForWorkload(test, owner, workloadFinished); again != since {
		test.Errorf("The Workload of %s is finished by %s, and was by %s", owner, again, since)
	}
}

// sidecarRuns reads from the API server whether the sidecar of the Job's pod runs.
func sidecarRuns(test *harness.Test, job string) bool {
	test.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: test.Namespace, Name: test.PodOf(job).Name}}
	test.Get(pod)
	record := harness.PodRecord{Pod: pod}
	return slices.Contains(record.Running(), harness.SidecarName)
}

// A queue has room for one of two Jobs.
func TestToolsKueueJobs(t *testing.T) {
	harness.Shared(t)
	test := newPresetTool(t, "kueue", "kueue")
	createQueue(test)
	test.Create(queued(test, "first", lowPriority, 3), queued(test, "second", lowPriority, 3))
	for _, job := range []string{"first", "second"} {
		since := waitForWorkload(test, job, workloadFinished)
		requireInjected(test, test.RequireCompleted(job))
		requireFinishedOnce(test, job, since)
	}
}

// Kueue releases quota when a Job is Complete: with modes that write no phase, after the sidecar has ended.
func TestToolsKueueReleasesQuota(t *testing.T) {
	harness.Shared(t)
	test := newInjectedTool(t, `trap 'sleep 3; exit 0' TERM; sleep 3600 & wait`, "kueue")
	createQueue(test)
	policy := harness.Policy(v1alpha1.ModeCRR)
	policy.Spec.Sidecars[0].ExitCodePolicy = v1alpha1.ExitCodePolicyRespect
	test.Create(policy, queued(test, "first", lowPriority, 30))
	waitForWorkload(test, "first", workloadAdmitted)
	test.Create(queued(test, "second", lowPriority, 30))
	waitForWorkload(test, "second", workloadAdmitted)
	if sidecarRuns(test, "first") {
		test.Error("Kueue released the quota before the sidecar ended")
	}
	test.RequireCompleted("first")
	test.RequireCompleted("second")
}

// With a written phase, Kueue releases the quota while the sidecar ends. It may still evict the Job, in the moment before the Job is
// Complete, which completes nevertheless.
func TestToolsKueuePreemption(t *testing.T) {
	harness.Shared(t)
	t.Run("while the sidecar ends", func(t *testing.T) {
		t.Parallel()
		test := newInjectedTool(t, harness.IgnoresTerm, "kueue")
		createQueue(test)
		test.Create(harness.Policy(v1alpha1.ModePodPhase), queued(test, "low", lowPriority, lingeringPodSeconds))
		test.EventuallySeen("the pod to succeed", harness.FinishTimeout, func(seen harness.Seen) error {
			if pods := seen.Pods("low"); len(pods) != 1 || pods[0].Pod.Status.Phase != corev1.PodSucceeded {
				return errors.New(seen.Describe("low"))
			}
			return nil
		})
		test.Create(queued(test, "high", highPriority, 1))
		waitForWorkload(test, "high", workloadAdmitted)
		if !sidecarRuns(test, "low") {
			test.Error("The sidecar ended before Kueue released the quota")
		}
		since := waitForWorkload(test, "low", workloadFinished)
		test.WaitForComplete("low")
		test.WaitForComplete("high")
		requireFinishedOnce(test, "low", since)
		test.Recorder.Look(func(seen harness.Seen) {
			if pods := seen.Pods("low"); len(pods) != 1 || pods[0].Container(harness.MainName).RestartCount != 0 || pods[0].Reversal() != "" {
				test.Errorf("The main container did not run exactly once: %s", seen.Describe("low"))
			}
		})
	})
	// A sidecar that drains keeps its pod running, so Kueue preempts the Job. Kubernetes counts no pod that it deletes because its Job is
	// suspended, and the main container runs again.
	t.Run("while the sidecar drains", func(t *testing.T) {
		t.Parallel()
		test := newInjectedTool(t, harness.ExitsZeroOnTerm, "kueue")
		createQueue(test)
		policy := harness.Policy(v1alpha1.ModePodPhase)
		policy.Spec.Sidecars[0].DrainSeconds = ptr.To[int32](120)
		test.Create(policy, queued(test, "low", lowPriority, 30))
		test.WaitForMain("low")
		test.Create(queued(test, "high", highPriority, 1))
		waitForWorkload(test, "high", workloadAdmitted)
		test.MergePatch(policy, `{"spec":{"sidecars":[{"name":"sidecar"}]}}`)
		test.WaitForComplete("high")
		test.WaitForComplete("low")
		test.Recorder.Look(func(seen harness.Seen) {
			if pods := seen.Pods("low"); len(pods) != 2 || pods[0].Pod.Status.Phase != corev1.PodSucceeded || pods[1].Pod.Status.Phase != corev1.PodSucceeded {
				test.Errorf("The Job had not two pods that succeeded: %s", seen.Describe("low"))
			}
		})
	})
}
