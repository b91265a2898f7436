//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	// podsOfMatrix is how many cells of modes run at once.
	podsOfMatrix = 40
	// nativeOfMatrix is how many cells of column Native run at once. Many of them wait until the kubelet restarts the sidecar.
	nativeOfMatrix = 24
	// cellTimeout is for one cell on a busy node.
	cellTimeout = 5 * time.Minute
)

// In every combination, the main container decides the Job's outcome, except where Kubernetes decides it before the operator can
// act.
func TestOutcomeMatrix(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	for _, column := range columnsOf(modes) {
		policy := columnPolicy(column)
		policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](10)
		test.Create(policy)
	}
	all := slices.Concat(cells(), cellsWithBackoffLimit())
	results := make([]outcome, len(all))
	modeSlots, nativeSlots := make(chan struct{}, podsOfMatrix), make(chan struct{}, nativeOfMatrix)
	t.Run("cells", func(t *testing.T) {
		for i, c := range all {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				slots := modeSlots
				if c.column == columnNative {
					slots = nativeSlots
				}
				slots <- struct{}{}
				defer func() { <-slots }()
				results[i] = runCell(harness.Within(t, test), c, fmt.Sprintf("cell-%03d", i))
			})
		}
	})
	if !t.Failed() && allRan(results) {
		withoutLimit := len(cells())
		test.RequireSection("docs/outcome-matrix.md", "matrix", matrixTable(all[:withoutLimit], results))
		test.RequireSection("docs/outcome-matrix.md", "backoff-limit", limitTable(all[withoutLimit:], results[withoutLimit:]))
	}
}

// runCell runs the cell's Job, requires the expected outcome and returns it. The operator must not write to pods of column Native.
func runCell(test *harness.Test, c cell, name string) outcome {
	test.Helper()
	createCell(test, c, c.job(name))
	wanted, exception := c.expect()
	requireCell(test, name, wanted, exception)
	if c.column == columnNative {
		requireLeftAlone(test, name)
	}
	return wanted
}

// createCell creates the Job of the cell. It skips the test if kubelets ignore the sidecar's restartPolicy: it is then a sidecar
// that has exited 1.
func createCell(test *harness.Test, c cell, job *batchv1.Job) {
	test.Helper()
	if c.needsOwnRestartPolicy() && !test.KubeletIsAtLeast(restartsContainersByOwnPolicy) {
		test.Skip("Needs a kubelet of Kubernetes " + restartsContainersByOwnPolicy + " or later, which acts on container restartPolicy")
	}
	test.Create(job)
}

// requireCell requires the outcome of the Job.
func requireCell(test *harness.Test, name string, wanted outcome, exception *exception) {
	test.Helper()
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
		test.Errorf("The outcome of %s is %+v, want %+v", name, got, wanted)
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
}

// requireLeftAlone requires that the operator has not written to the Job's pods.
func requireLeftAlone(test *harness.Test, name string) {
	test.Helper()
	var records []harness.PodRecord
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.Pods(name) {
			records = append(records, *record)
		}
	})
	for i := range records {
		requireUnwritten(test, &records[i])
	}
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
	case len(pods) == 1 && mainCannotStart(pods[0]):
		return blockedBySidecar.outcome, nil
	default:
		return got, fmt.Errorf("the Job has not finished: %s", seen.Describe(name))
	}
	for _, record := range pods {
		got.pod = string(record.Pod.Status.Phase)
		if record.Deleted {
			got.pod = "Deleted"
		} else if running := record.Running(); len(running) > 0 || record.Pod.DeletionTimestamp != nil {
			return got, fmt.Errorf("containers are running: %s", seen.Describe(name))
		} else if !record.Finished() {
			// The watches of Jobs and pods are not in step.
			return got, fmt.Errorf("a pod has not finished: %s", seen.Describe(name))
		}
		if main := record.Container(harness.MainName); main != nil && main.ContainerID != "" {
			got.runs += 1 + main.RestartCount
		}
	}
	return got, nil
}

// mainCannotStart reports whether the main container waits for a native sidecar whose image cannot be pulled.
func mainCannotStart(record *harness.PodRecord) bool {
	main, sidecar := record.Container(harness.MainName), nativeStatus(record)
	return main != nil && main.State.Waiting != nil && main.State.Waiting.Reason == "PodInitializing" &&
		sidecar.State.Waiting != nil && sidecar.State.Waiting.Reason == "ErrImageNeverPull"
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

// nativeStatus returns the status of the sidecar as an init container, or an empty one.
func nativeStatus(record *harness.PodRecord) corev1.ContainerStatus {
	for _, status := range record.Pod.Status.InitContainerStatuses {
		if status.Name == harness.SidecarName {
			return status
		}
	}
	return corev1.ContainerStatus{}
}
