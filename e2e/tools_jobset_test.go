//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/e2e/harness"
)

const jobSetName = "set"

// newJobSet returns a JobSet. Its pods and Jobs are named JOBSET-REPLICATEDJOB-INDEX.
func newJobSet(name string, replicatedJobs ...any) *unstructured.Unstructured {
	kind := schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}
	return harness.Object(kind, name, map[string]any{"replicatedJobs": replicatedJobs})
}

// replicatedJob returns a part of a JobSet: Jobs of one pod that is never retried.
func replicatedJob(name string, replicas int64, template corev1.PodTemplateSpec) map[string]any {
	return replicatedJobOf(name, replicas, batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: template})
}

func replicatedJobOf(name string, replicas int64, job batchv1.JobSpec) map[string]any {
	return map[string]any{"name": name, "replicas": replicas, "template": map[string]any{"spec": harness.ToMap(&job)}}
}

// requireJobSetCompleted waits until the JobSet has ended, and requires that it has completed without a restart.
func requireJobSetCompleted(test *harness.Test, name string) {
	test.Helper()
	object, state := newJobSet(name), ""
	object.SetNamespace(test.Namespace)
	test.EventuallyGet(object, "JobSet "+name+" to end", harness.FinishTimeout, func() error {
		if state, _, _ = unstructured.NestedString(object.Object, "status", "terminalState"); state == "" {
			return fmt.Errorf("its status is %v", object.Object["status"])
		}
		return nil
	})
	if restarts, _, _ := unstructured.NestedInt64(object.Object, "status", "restarts"); state != "Completed" || restarts != 0 {
		test.Errorf("JobSet %s is %s after %d restarts", name, state, restarts)
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
			test.Create(newJobSet(jobSetName,
				replicatedJob("driver", 1, injected(harness.PodTemplate(restart, harness.Main(3)))),
				replicatedJob("workers", 2, injected(harness.PodTemplate(restart, harness.Main(1))))))
			requireJobSetCompleted(test, jobSetName)
			for _, job := range []string{"set-driver-0", "set-workers-0", "set-workers-1"} {
				requireInjected(test, test.RequireCompleted(job))
			}
		})
	}
}

// inPlace has two workers that JobSet restarts in place. The agent runs the worker's command in a shell, which its image does not have, and
// needs the API server. The first worker fails in its first run, and the second one is still at work then.
const inPlace = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set}
spec:
  failurePolicy: {maxRestarts: 1, restartStrategy: InPlaceRestart}
  replicatedJobs:
  - name: workers
    template:
      spec:
        completions: 2
        parallelism: 2
        backoffLimit: 2147483647
        podReplacementPolicy: Failed
        template:
          spec:
            restartPolicy: Never
            hostNetwork: true
            terminationGracePeriodSeconds: 3
            volumes: [{name: shell, emptyDir: {}}]
            initContainers:
            - name: shell
              image: localhost/busybox:1
              command: [sh, -c, '[ -e /shell/sh ] || { cp /bin/busybox /shell; /shell/busybox --install /shell; }']
              volumeMounts: [{name: shell, mountPath: /shell}]
            containers:
            - name: main
              image: localhost/in-place-restart-agent:v0.11.0
              restartPolicy: Never
              restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0]}}]
              volumeMounts: [{name: shell, mountPath: /shell}]
              env:
              - {name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1}
              - {name: KUBERNETES_SERVICE_PORT, value: "6443"}
              - {name: SHELL, value: /shell/sh}
              - {name: PATH, value: /shell:/bin}
              - {name: JOBSET_NAME, value: set}
              - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
              - {name: IN_PLACE_RESTART_EXIT_CODE, value: "75"}
              - name: WORKER_COMMAND
                value: |
                  [ -e /shell/restarted ] && exec sleep 2
                  touch /shell/restarted
                  [ "$JOB_COMPLETION_INDEX" = 0 ] && { sleep 2; exit 3; }
                  sleep 3600
            - name: istio-proxy
              image: localhost/busybox:1
              command: [sh, -c, "trap 'exit 7' TERM; sleep 3600 & wait"]
`

// The sidecars start again with the workers, and end after the workers' last run.
func TestToolsJobSetRestartsInPlace(t *testing.T) {
	harness.Shared(t)
	test := newPresetTool(t, "jobset", "jobset")
	if !harness.KubeletIsAtLeast(t, restartsAllContainers) {
		t.Skip("kubelets before 1.36 do not restart all containers of a pod")
	}
	permitPods(test,
		rbacv1.PolicyRule{APIGroups: []string{"jobset.x-k8s.io"}, Resources: []string{"jobsets"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}})
	createManifest(test, inPlace)
	requireJobSetCompleted(test, jobSetName)
	test.WaitForComplete("set-workers-0")
	for _, record := range test.RequireAllFinished("set-workers-0", 2) {
		if restarts := record.Container(harness.MainName).RestartCount; restarts != 1 {
			t.Errorf("The worker of pod %s has restarted %d times, want once: %s", record.Pod.Name, restarts, record.PhaseLog())
		}
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
	for _, record := range test.RequireAllFinished(job, pods) {
		requireInjected(test, record)
		if record.Pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure || record.Pod.Status.Phase != corev1.PodSucceeded {
			test.Errorf("Pod %s with restartPolicy %s: %s", record.Pod.Name, record.Pod.Spec.RestartPolicy, record.PhaseLog())
		}
	}
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
	test.Create(newJobSet("train",
		ancestor(trainerJob(dataset, 1, harness.Container(dataset, "sleep 2")), dataset),
		ancestor(trainerJob(model, 1, harness.Container(model, "sleep 2")), model),
		training))
	requireJobSetCompleted(test, "train")
	for job, pods := range map[string]int{"train-dataset-initializer-0": 1, "train-model-initializer-0": 1, "train-node-0": 2} {
		requireTrained(test, job, pods)
	}
}
