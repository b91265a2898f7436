//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// twoRuns is the timeout for two runs of a CronJob that runs every minute.
const twoRuns = 4 * time.Minute

// A hanging Job blocks a CronJob with concurrencyPolicy Forbid.
func TestCronJobRunsAgain(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	template := harness.PodTemplate(corev1.RestartPolicyOnFailure, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2))
	test.Create(harness.Policy(v1alpha1.ModeAuto), harness.CronJob("cron", template))
	test.Eventually("two Jobs of the CronJob to be Complete", twoRuns, func(ctx context.Context) error {
		jobs := &batchv1.JobList{}
		if err := test.Client.List(ctx, jobs, client.InNamespace(test.Namespace)); err != nil {
			return err
		}
		complete := 0
		for i := range jobs.Items {
			if _, ok := harness.JobCondition(&jobs.Items[i], batchv1.JobComplete); ok {
				complete++
			}
		}
		if complete < 2 {
			return fmt.Errorf("%d of %d Jobs are Complete", complete, len(jobs.Items))
		}
		return nil
	})
}

func TestBroadcastJobCompletes(t *testing.T) {
	harness.Shared(t)
	t.Run("policy", func(t *testing.T) {
		t.Parallel()
		test := harness.New(t)
		test.Create(harness.Policy(v1alpha1.ModeAuto))
		requireBroadcastJobCompletes(test, harness.Sidecar(harness.ExitsZeroOnTerm))
	})
	t.Run("env", func(t *testing.T) {
		t.Parallel()
		test := harness.New(t)
		requireBroadcastJobCompletes(test, harness.WithEnv(harness.Sidecar(harness.ExitsZeroOnTerm), v1alpha1.EnvTerminate, "true"))
	})
}

func requireBroadcastJobCompletes(test *harness.Test, sidecar corev1.Container) {
	test.Helper()
	job := harness.BroadcastJob("broadcast", harness.PodTemplate(corev1.RestartPolicyNever, sidecar, harness.Main(2)))
	test.Create(job)
	waitForBroadcastJob(test, job)
	desired, _, _ := unstructured.NestedInt64(job.Object, "status", "desired")
	succeeded, _, _ := unstructured.NestedInt64(job.Object, "status", "succeeded")
	if succeeded != desired || desired == 0 {
		test.Errorf("%d of %d pods of the BroadcastJob succeeded", succeeded, desired)
	}
	if desired == 1 {
		test.RequireSucceeded("broadcast")
	}
}

func waitForBroadcastJob(test *harness.Test, job *unstructured.Unstructured) {
	test.Helper()
	test.EventuallyGet(job, "the BroadcastJob to complete", harness.FinishTimeout, func() error {
		phase, _, _ := unstructured.NestedString(job.Object, "status", "phase")
		if phase != "completed" {
			return fmt.Errorf("the status is %v", job.Object["status"])
		}
		return nil
	})
}
