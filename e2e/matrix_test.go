//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	// podsOfMatrix is how many cells run at once.
	podsOfMatrix = 40
	// cellTimeout is for one cell on a busy node.
	cellTimeout = 5 * time.Minute
)

// In every combination, the main container decides the Job's outcome, except where Kubernetes decides it before the operator can
// act.
func TestOutcomeMatrix(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	for _, mode := range modes {
		policy := policyForMode(mode)
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
		test.RequireSection("docs/outcome-matrix.md", "matrix", matrixTable(all, results))
	}
}

// policyForMode returns a policy with the mode that selects pods with label mode.
func policyForMode(mode v1alpha1.Mode) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(mode)
	policy.Name = "mode-" + strings.ToLower(string(mode))
	policy.Spec.PodSelector.MatchLabels = map[string]string{"mode": string(mode)}
	return policy
}

// runCell runs the cell's Job, requires the expected outcome and returns it.
func runCell(test *harness.Test, c cell, name string) outcome {
	test.Helper()
	job := c.job(name)
	test.Create(job)
	if own := job.Spec.Template.Spec.Containers[0].RestartPolicy; c.needsOwnRestartPolicy() && own == nil {
		test.Skip("Needs container restartPolicy, which Kubernetes supports since 1.35")
	}
	wanted, exception := c.expect()
	var got outcome
	test.EventuallySeen("the Job to finish and its containers to terminate", cellTimeout, func(seen harness.Seen) error {
		var err error
		got, err = observeCell(seen, name)
		return err
	})
	if exception != nil && exception.anyRuns {
		got.runs = 0
	}
	if got != wanted {
		test.Errorf("The outcome is %+v, want %+v", got, wanted)
	}
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.Pods(name) {
			test.RequireNoReversal(record)
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

// observeCell returns the outcome of the Job and its pods, or an error while it has none.
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
			return got, fmt.Errorf("containers are running: %s", seen.Describe(name))
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

// requireNoWrite requires that the operator has not acted on a pod whose main container can restart.
func requireNoWrite(test *harness.Test, seen harness.Seen, record *harness.PodRecord) {
	test.Helper()
	_, phase := record.Pod.Annotations[v1alpha1.AnnotationPodPhase]
	_, swap := record.Pod.Annotations[v1alpha1.AnnotationImageSwap]
	if crrs := seen.CRRs(record.Pod.Name); phase || swap || len(crrs) > 0 {
		test.Errorf("The operator acted on pod %s although its main container can restart", record.Pod.Name)
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
