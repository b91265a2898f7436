//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// drains lets the sidecars of a policy drain.
func drains(seconds int32) func(*v1alpha1.PolicySpec) {
	return func(spec *v1alpha1.PolicySpec) { spec.DrainSeconds = ptr.To(seconds) }
}

// Jobs that failed or hung according to public reports: linkerd/linkerd2#14289, dapr/docs#2972, tektoncd/pipeline#6145.
func TestReportedJobs(t *testing.T) {
	harness.Shared(t)
	runBehaviours(t, []behaviour{
		{"sidecar fails by itself after main", with(v1alpha1.ModeAuto, drains(10)), noticesEnd(), completed},
		{"liveness probe kills sidecar in drain", with(v1alpha1.ModeAuto, drains(12)), failsLiveness(), completed},
		{"pod evicted in drain", with(v1alpha1.ModeAuto, drains(20)), replacedWhenFailed("sleep 2"), func(test *harness.Test) {
			needsOutcomePolicy(test)
			evict(test, test.WaitForMain("job"))
			test.RequireCompleted("job")
		}},
		{"pod evicted before main is done", with(v1alpha1.ModeAuto), replacedWhenFailed("trap 'exit 0' TERM; sleep 20 & wait"), func(test *harness.Test) {
			test.WaitForRunning("job")
			evict(test, test.RecordOf("job").Pod)
			test.WaitForComplete("job")
			test.Recorder.Look(func(seen harness.Seen) {
				if pods := seen.Pods("job"); len(pods) != 2 || pods[0].Pod.Status.Phase != corev1.PodFailed || pods[1].Pod.Status.Phase != corev1.PodSucceeded {
					test.Errorf("The main container did not run again: %s", seen.Describe("job"))
				}
			})
		}},
	})
}

// noticesEnd returns a Job whose sidecar finds a file of the main container, and fails three seconds later.
func noticesEnd() *batchv1.Job {
	return sharing(harness.Job("job", corev1.RestartPolicyNever,
		harness.Container(harness.MainName, "sleep 3; touch /shared/done"), harness.Sidecar("until [ -e /shared/done ]; do sleep 0.2; done; sleep 3; exit 2")))
}

// failsLiveness returns a Job whose sidecar fails its liveness probe once, about five seconds after its start.
func failsLiveness() *batchv1.Job {
	sidecar := harness.Sidecar("trap 'exit 143' TERM; touch /tmp/healthy; sleep 5; rm /tmp/healthy; sleep 3600 & wait")
	sidecar.LivenessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/tmp/healthy"}}}, PeriodSeconds: 1, FailureThreshold: 2,
	}
	job := harness.Job("job", corev1.RestartPolicyOnFailure, harness.Main(2), sidecar)
	job.Spec.BackoffLimit = ptr.To[int32](1)
	return job
}

// replacedWhenFailed returns a Job whose pod is replaced only when it has failed.
func replacedWhenFailed(main string) *batchv1.Job {
	job := harness.Job("job", corev1.RestartPolicyNever, harness.Container(harness.MainName, main), harness.Sidecar("trap 'exit 143' TERM; sleep 3600 & wait"))
	job.Spec.PodReplacementPolicy, job.Spec.BackoffLimit = ptr.To(batchv1.Failed), ptr.To[int32](3)
	return job
}

func evict(test *harness.Test, pod *corev1.Pod) {
	test.Helper()
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := test.Client.SubResource("eviction").Create(test.Context(), pod, eviction); err != nil {
		test.Fatalf("Evict pod %s: %v", pod.Name, err)
	}
}
