//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// Labels and annotations of JobSet.
const (
	jobSetName        = "set"
	jobSetAttemptPath = "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']"
)

// What JobSet writes to status.terminalState, and the reasons of its condition Failed.
const (
	jobSetCompleted   = "Completed"
	jobSetFailed      = "Failed"
	jobSetFailedByFPA = "FailJobSetFailurePolicyAction"
)

// newJobSet returns a JobSet. Its pods and Jobs are named JOBSET-REPLICATEDJOB-INDEX.
func newJobSet(name string, policies map[string]any, replicatedJobs ...any) *unstructured.Unstructured {
	spec := map[string]any{"replicatedJobs": replicatedJobs}
	for field, policy := range policies {
		spec[field] = policy
	}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}}
	object.SetName(name)
	return object
}

// replicatedJob returns a part of a JobSet: Jobs of one pod that is never retried.
func replicatedJob(name string, replicas int64, template corev1.PodTemplateSpec) map[string]any {
	return replicatedJobOf(name, replicas, batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: template})
}

func replicatedJobOf(name string, replicas int64, job batchv1.JobSpec) map[string]any {
	return map[string]any{"name": name, "replicas": replicas, "template": map[string]any{"spec": harness.ToMap(job)}}
}

// failsFirst returns the main container that exits with the code in the JobSet's first attempt, and succeeds in the next.
func failsFirst(exitCode int) corev1.Container {
	main := harness.Container(harness.MainName, fmt.Sprintf(`sleep 1; [ "$ATTEMPT" != 0 ] || exit %d`, exitCode))
	main.Env = []corev1.EnvVar{{Name: "ATTEMPT", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: jobSetAttemptPath}}}}
	return main
}

// jobSetResult is how a JobSet ended.
type jobSetResult struct {
	State string
	// Reason comes from the condition Failed, if the JobSet has failed.
	Reason                    string
	Restarts, CountTowardsMax int64
}

// requireJobSet waits until the JobSet has ended, and requires its result.
func requireJobSet(test *harness.Test, name string, want jobSetResult) {
	test.Helper()
	object, got := newJobSet(name, nil), jobSetResult{}
	object.SetNamespace(test.Namespace)
	test.EventuallyGet(object, "JobSet "+name+" to end", harness.FinishTimeout, func() error {
		status := struct {
			Status struct {
				State      string             `json:"terminalState"`
				Restarts   int64              `json:"restarts"`
				Counted    int64              `json:"restartsCountTowardsMax"`
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &status); err != nil {
			return err
		}
		got = jobSetResult{State: status.Status.State, Restarts: status.Status.Restarts, CountTowardsMax: status.Status.Counted}
		if condition := meta.FindStatusCondition(status.Status.Conditions, jobSetFailed); condition != nil && condition.Status == metav1.ConditionTrue {
			got.Reason = condition.Reason
		}
		if got.State == "" {
			return fmt.Errorf("its status is %v", object.Object["status"])
		}
		return nil
	})
	if got != want {
		test.Errorf("JobSet %s ended with %+v, want %+v", name, got, want)
	}
}

// requireInjected fails the test unless the pod has the main container and the injected sidecar.
func requireInjected(test *harness.Test, record *harness.PodRecord) {
	test.Helper()
	if len(record.Pod.Spec.Containers) != 2 {
		test.Errorf("Nothing injected a sidecar into pod %s", record.Pod.Name)
	}
}

// The preset ends the sidecars of every Job of a JobSet.
func TestToolsJobSetCompletes(t *testing.T) {
	harness.Shared(t)
	for _, restart := range jobRestartPolicies {
		t.Run(string(restart), func(t *testing.T) {
			t.Parallel()
			test := newPresetTool(t, "jobset", "jobset")
			test.Create(newJobSet(jobSetName, nil,
				replicatedJob("driver", 1, injected(harness.PodTemplate(restart, harness.Main(3)))),
				replicatedJob("workers", 2, injected(harness.PodTemplate(restart, harness.Main(1))))))
			requireJobSet(test, jobSetName, jobSetResult{State: jobSetCompleted})
			for _, job := range []string{"set-driver-0", "set-workers-0", "set-workers-1"} {
				requireInjected(test, test.RequireCompleted(job))
			}
		})
	}
}

// The Jobs fail by their podFailurePolicy for exit code 7 of any container, and the failurePolicy of the JobSet acts on that. The
// sidecar exits 7 in every case.
func TestToolsJobSetFailurePolicy(t *testing.T) {
	harness.Shared(t)
	for name, c := range map[string]struct {
		main corev1.Container
		want jobSetResult
	}{
		"main succeeds": {harness.Main(2), jobSetResult{State: jobSetCompleted}},
		"main exits 7":  {failsFirst(7), jobSetResult{State: jobSetFailed, Reason: jobSetFailedByFPA}},
		"main exits 1":  {failsFirst(1), jobSetResult{State: jobSetCompleted, Restarts: 1, CountTowardsMax: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := newInjectedTool(t, harness.ExitsSevenOnTerm, "jobset")
			job := batchv1.JobSpec{
				BackoffLimit: ptr.To[int32](0),
				Template:     injected(harness.PodTemplate(corev1.RestartPolicyNever, c.main)),
				PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
					Action: batchv1.PodFailurePolicyActionFailJob,
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
						Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{7},
					},
				}}},
			}
			policy := map[string]any{"maxRestarts": int64(3), "rules": []any{map[string]any{
				"name": "fail", "action": "FailJobSet", "onJobFailureReasons": []any{batchv1.JobReasonPodFailurePolicy},
			}}}
			test.Create(harness.Policy(v1alpha1.ModeAuto), newJobSet(jobSetName, map[string]any{"failurePolicy": policy}, replicatedJobOf("driver", 1, job)))
			requireJobSet(test, jobSetName, c.want)
		})
	}
}

// trainerJob returns a replicated job as the runtimes of Kubeflow Trainer have it. They leave restartPolicy to JobSet, which sets OnFailure.
func trainerJob(name string, pods int32, main corev1.Container) map[string]any {
	return replicatedJobOf(name, 1, batchv1.JobSpec{
		Parallelism: ptr.To(pods), Completions: ptr.To(pods), Template: injected(harness.PodTemplate("", main)),
	})
}

// ancestor sets the label by which Trainer knows what a replicated job is for. Trainer labels the Job, and not its pods.
func ancestor(job map[string]any, step string) map[string]any {
	job["template"].(map[string]any)["metadata"] = map[string]any{"labels": map[string]any{"trainer.kubeflow.org/trainjob-ancestor-step": step}}
	return job
}

// requireTrained waits until the pods of the Job have finished, and fails the test unless all of them succeeded with a sidecar.
func requireTrained(test *harness.Test, job string, pods int) {
	test.Helper()
	test.WaitForComplete(job)
	test.EventuallySeen("the pods of "+job+" to finish", harness.FinishTimeout, func(seen harness.Seen) error {
		records := seen.Pods(job)
		if len(records) != pods || anyRunning(records) {
			return errors.New(seen.Describe(job))
		}
		return nil
	})
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.Pods(job) {
			requireInjected(test, record)
			if record.Pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure || record.Pod.Status.Phase != corev1.PodSucceeded || record.Reversal() != "" {
				test.Errorf("Pod %s with restartPolicy %s: %s", record.Pod.Name, record.Pod.Spec.RestartPolicy, record.PhaseLog())
			}
		}
	})
}

// TestToolsJobSetOfTrainer has the JobSets that Kubeflow Trainer v2.1.0 makes for a TrainJob of two nodes with torchtune (manifests/base/runtimes): the
// replicated jobs, their order, the labels of their Jobs and the names of their containers are the runtime's. Images, volumes and GPUs
// are not.
func TestToolsJobSetOfTrainer(t *testing.T) {
	harness.Shared(t)
	test := newPresetTool(t, "trainer", "jobset")
	const dataset, model, node = "dataset-initializer", "model-initializer", "node"
	training := ancestor(trainerJob(node, 2, harness.Container(node, "sleep 2")), "trainer")
	training["dependsOn"] = []any{
		map[string]any{"name": dataset, "status": "Complete"},
		map[string]any{"name": model, "status": "Complete"},
	}
	test.Create(newJobSet("train", nil,
		ancestor(trainerJob(dataset, 1, harness.Container(dataset, "sleep 2")), dataset),
		ancestor(trainerJob(model, 1, harness.Container(model, "sleep 2")), model),
		training))
	requireJobSet(test, "train", jobSetResult{State: jobSetCompleted})
	for job, pods := range map[string]int{"train-dataset-initializer-0": 1, "train-model-initializer-0": 1, "train-node-0": 2} {
		requireTrained(test, job, pods)
	}
}
