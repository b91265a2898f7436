//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	manyJobs        = 100
	manyJobsTimeout = 12 * time.Minute
)

// A hundred Jobs at once, whose sidecars exit non-zero or need SIGKILL.
func TestManyJobsAtOnce(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.Create(harness.Policy(v1alpha1.ModeAuto))
	for i := range manyJobs {
		script, grace := harness.ExitsSevenOnTerm, 2
		if i%2 == 1 {
			script, grace = harness.IgnoresTerm, 5
		}
		job := harness.Job(jobName(i), corev1.RestartPolicyNever, harness.Sidecar(script), harness.Main(3))
		job.Spec.BackoffLimit = ptr.To[int32](0)
		job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(grace))
		test.Create(job)
	}
	test.EventuallySeen(fmt.Sprintf("%d Jobs to finish", manyJobs), manyJobsTimeout, func(seen harness.Seen) error {
		finished := 0
		for i := range manyJobs {
			job := seen.Job(jobName(i))
			gone := !anyRunning(seen.Pods(jobName(i)))
			if gone && (hasCondition(job, batchv1.JobComplete) || hasCondition(job, batchv1.JobFailed)) {
				finished++
			}
		}
		if finished < manyJobs {
			return fmt.Errorf("%d of %d have finished", finished, manyJobs)
		}
		return nil
	})
	test.Recorder.Look(func(seen harness.Seen) {
		for i := range manyJobs {
			if !hasCondition(seen.Job(jobName(i)), batchv1.JobComplete) {
				test.Errorf("Job %s is not Complete: %s", jobName(i), seen.Describe(jobName(i)))
			}
		}
		for _, record := range seen.AllPods() {
			test.RequireNoReversal(record)
			if record.Pod.Status.Phase != corev1.PodSucceeded {
				test.Errorf("Pod %s is %s", record.Pod.Name, record.Pod.Status.Phase)
			}
		}
		if pods := len(seen.AllPods()); pods != manyJobs {
			test.Errorf("%d Jobs made %d pods", manyJobs, pods)
		}
	})
}

func jobName(i int) string { return fmt.Sprintf("job-%03d", i) }

func anyRunning(records []*harness.PodRecord) bool {
	for _, record := range records {
		if len(record.Running()) > 0 {
			return true
		}
	}
	return false
}
