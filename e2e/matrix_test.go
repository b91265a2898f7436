//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	// podsOfMatrix is how many cells are under way at once.
	podsOfMatrix = 40
	// cellTimeout is for one cell on a node that is busy with the others.
	cellTimeout = 5 * time.Minute
)

// TestOutcomeMatrix runs every combination on the kubelet: the outcome of a Job is that of its main container,
// whatever the sidecar does and however it is ended, but for what Kubernetes itself decides first.
func TestOutcomeMatrix(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	for _, mode := range modes {
		policy := harness.Policy(mode)
		policy.Name = "mode-" + shortName(mode)
		policy.Spec.PodSelector.MatchLabels = map[string]string{"mode": string(mode)}
		policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](10)
		test.Create(policy)
	}
	all := cells()
	results := make([]outcome, len(all))
	slots := make(chan struct{}, podsOfMatrix)
	t.Run("cells", func(t *testing.T) {
		for i, c := range all {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				results[i] = runCell(harness.Within(t, test), c, fmt.Sprintf("cell-%03d", i))
			})
		}
	})
	if !t.Failed() && allRan(results) {
		test.RequireSection("docs/outcome-matrix.md", matrixDocument(all, results))
	}
}

// runCell runs the Job of the cell, requires the expected outcome and returns it.
func runCell(test *harness.Test, c cell, name string) outcome {
	test.Helper()
	job := c.job(name)
	test.Create(job)
	if own := job.Spec.Template.Spec.Containers[0].RestartPolicy; c.needsOwnRestartPolicy() && own == nil {
		test.Skip("The API server drops the restartPolicy of a container; it keeps it from Kubernetes 1.35 on.")
	}
	wanted, exception := c.expect()
	var got outcome
	test.EventuallySeen("the Job to finish and its processes to be gone", cellTimeout, func(seen harness.Seen) error {
		var err error
		got, err = observeCell(seen, name)
		return err
	})
	if exception != nil && exception.anyRuns {
		got.runs = 0
	}
	if got != wanted {
		test.Errorf("The outcome was to be %+v and is %+v", wanted, got)
	}
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.Pods(name) {
			if reversal := record.Reversal(); reversal != "" {
				test.Errorf("Pod %s left a terminal phase: %s", record.Pod.Name, reversal)
			}
			if exception == restartedUntilFailed {
				requireNoWrite(test, seen, record)
			}
		}
		if test.Failed() {
			test.Log(seen.Describe(name))
		}
	})
	return got
}

// observeCell returns what has become of the Job and its pods, or why it is too early to tell.
func observeCell(seen harness.Seen, name string) (outcome, error) {
	var got outcome
	job, pods := seen.Job(name), seen.Pods(name)
	switch {
	case hasCondition(job, batchv1.JobComplete):
		got.job = "Complete"
	case hasCondition(job, batchv1.JobFailed):
		got.job = "Failed"
	default:
		return got, fmt.Errorf("the Job has not finished: %s", seen.Describe(name))
	}
	for _, record := range pods {
		got.pod = string(record.Pod.Status.Phase)
		if record.Deleted {
			got.pod = "Deleted"
		} else if running := record.Running(); len(running) > 0 || record.Pod.DeletionTimestamp != nil {
			return got, fmt.Errorf("processes are left: %s", seen.Describe(name))
		}
		if main := record.Container(harness.MainName); main != nil && main.ContainerID != "" {
			got.runs += 1 + main.RestartCount
		}
	}
	return got, nil
}

func hasCondition(job *batchv1.Job, condition batchv1.JobConditionType) bool {
	_, ok := harness.JobCondition(job, condition)
	return ok
}

// requireNoWrite requires that the operator has not acted on a pod whose main container may run again.
func requireNoWrite(test *harness.Test, seen harness.Seen, record *harness.PodRecord) {
	test.Helper()
	_, phase := record.Pod.Annotations[v1alpha1.AnnotationPodPhase]
	_, swap := record.Pod.Annotations[v1alpha1.AnnotationImageSwap]
	if requests := seen.Requests(record.Pod.Name); phase || swap || len(requests) > 0 {
		test.Errorf("The operator acted on pod %s although its main container may run again", record.Pod.Name)
	}
}

func allRan(results []outcome) bool {
	for _, result := range results {
		if result.job == "" {
			return false
		}
	}
	return true
}
