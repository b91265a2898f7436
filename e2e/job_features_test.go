//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// With backoffLimit 0 a single restart fails the Job.
func TestBackoffLimitZero(t *testing.T) {
	harness.Shared(t)
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModePodPhase, v1alpha1.ModeAuto} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			job := harness.Job("job", corev1.RestartPolicyOnFailure, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
			job.Spec.BackoffLimit = ptr.To[int32](0)
			test.Create(harness.Policy(mode), job)
			test.RequireCompleted("job")
		})
	}
}

// Mode Image costs a restart, which counts towards the Job's backoffLimit.
func TestImageUnderOnFailureWarns(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	test.Create(
		harness.Policy(v1alpha1.ModeImage),
		harness.Job("job", corev1.RestartPolicyOnFailure, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)),
	)
	record := test.RequireCompleted("job")
	if warning := test.WaitForEvent(record.Pod, v1alpha1.ReasonBackoffLimitRisk); warning.Type != corev1.EventTypeWarning {
		test.Errorf("Event %s is of type %s", warning.Reason, warning.Type)
	}
}

// A rule without containerName also matches the sidecar's exit code.
func TestPodFailurePolicy(t *testing.T) {
	harness.Shared(t)
	scripts := map[string]string{
		"143": `trap 'exit 143' TERM; sleep 3600 & wait`,
		"137": harness.IgnoresTerm,
	}
	for exitCode, script := range scripts {
		for _, mode := range modes {
			t.Run(exitCode+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				test := harness.New(t)
				job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(script), harness.Main(2))
				job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
					Action: batchv1.PodFailurePolicyActionFailJob,
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
						Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{137, 143},
					},
				}}}
				test.Create(harness.Policy(mode), job)
				test.RequireCompleted("job")
			})
		}
	}
}

func TestActiveDeadlineSeconds(t *testing.T) {
	harness.Shared(t)
	t.Run("not reached", func(t *testing.T) {
		t.Parallel()
		test := harness.New(t)
		job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
		job.Spec.ActiveDeadlineSeconds = ptr.To[int64](90)
		test.Create(harness.Policy(v1alpha1.ModeAuto), job)
		test.RequireCompleted("job")
	})
	t.Run("reached while main runs", func(t *testing.T) {
		t.Parallel()
		test := harness.New(t)
		job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(3600))
		job.Spec.ActiveDeadlineSeconds = ptr.To[int64](15)
		job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
		test.Create(harness.Policy(v1alpha1.ModeAuto), job)
		test.WaitForFailed("job")
		test.Recorder.Look(func(seen harness.Seen) {
			if reason, _ := harness.JobCondition(seen.Job("job"), batchv1.JobFailed); !strings.HasPrefix(reason, batchv1.JobReasonDeadlineExceeded) {
				test.Errorf("The Job failed with %s, want %s", reason, batchv1.JobReasonDeadlineExceeded)
			}
		})
		requireUntouched(test, "job")
	})
}

func TestIndexedJob(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	job := harness.Job("job", corev1.RestartPolicyOnFailure, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
	job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	job.Spec.Completions, job.Spec.Parallelism = ptr.To[int32](3), ptr.To[int32](2)
	test.Create(harness.Policy(v1alpha1.ModeAuto), job)
	test.WaitForComplete("job")
	test.Recorder.Look(func(seen harness.Seen) {
		if status := seen.Job("job").Status; status.CompletedIndexes != "0-2" || status.Failed != 0 {
			test.Errorf("The completed indexes are %q, and %d pods failed", status.CompletedIndexes, status.Failed)
		}
		for _, record := range seen.Pods("job") {
			if reversal := record.Reversal(); reversal != "" || record.Pod.Status.Phase != corev1.PodSucceeded {
				test.Errorf("Pod %s: %s", record.Pod.Name, record.PhaseLog())
			}
		}
	})
}

// With podReplacementPolicy Failed, a pod is replaced only after it has failed.
func TestPodReplacementPolicyFailed(t *testing.T) {
	harness.Shared(t)
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Container(harness.MainName, "sleep 2; exit 1"))
			job.Spec.BackoffLimit, job.Spec.PodReplacementPolicy = ptr.To[int32](1), ptr.To(batchv1.Failed)
			test.Create(harness.Policy(mode), job)
			test.WaitForFailed("job")
			test.EventuallySeen("two failed pods without processes", harness.FinishTimeout, func(seen harness.Seen) error {
				pods := seen.Pods("job")
				if len(pods) != 2 || anyRunning(pods) {
					return fmt.Errorf("there are %d pods: %s", len(pods), seen.Describe("job"))
				}
				return nil
			})
			test.Recorder.Look(func(seen harness.Seen) {
				for _, record := range seen.Pods("job") {
					main := record.Container(harness.MainName)
					if record.Pod.Status.Phase != corev1.PodFailed || record.Reversal() != "" || main.RestartCount != 0 {
						test.Errorf("Pod %s did not fail exactly once: %s", record.Pod.Name, seen.Describe("job"))
					}
				}
			})
		})
	}
}
