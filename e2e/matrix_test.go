//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

const (
	// podsOfMatrix is how many Jobs of a matrix run at once.
	podsOfMatrix = 16
	// cellTimeout is for one Job on a busy node.
	cellTimeout = 5 * time.Minute
	// labelColumn is the label in the podSelector of the columns' policies.
	labelColumn = "column"
)

var modes = []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase, v1alpha1.ModeAuto}

// matrixColumn is a column of a matrix: a mode, or columnNative.
type matrixColumn string

const (
	columnAuto = matrixColumn(v1alpha1.ModeAuto)
	// columnNative is a manifest with a native sidecar, without a policy.
	columnNative matrixColumn = "Native"
)

// columns are the columns of the tables.
var columns = []matrixColumn{matrixColumn(modes[0]), matrixColumn(modes[1]), matrixColumn(modes[2]), matrixColumn(modes[3]), columnNative}

// outcome is how a Job of a matrix ends. Each matrix reads some of its fields.
type outcome struct {
	// job is Complete, Failed, neverStarts or neverEnds.
	job string
	// pod is the last phase of the last pod, or Deleted.
	pod string
	// runs is how often the main container ran.
	runs int32
	// reason is the reason of the Job's condition.
	reason string
	// pods is how many pods the Job had.
	pods int
	// completed and failed are the indexes of an Indexed Job.
	completed, failed string
}

const (
	// neverStarts is a Job whose main container waits for ever.
	neverStarts = "never starts"
	// neverEnds is a Job that keeps creating pods, because its failures do not count towards backoffLimit.
	neverEnds = "never ends"
)

// exception is an outcome that differs from what the main container says.
type exception struct {
	note    string
	outcome outcome
	// byChance is true if the Job may also end as without the exception.
	byChance bool
	// anyRuns and anyPods are true if their numbers vary.
	anyRuns, anyPods bool
}

// holds reports whether the outcome is the one of the exception, or the expected one if there is no exception.
func (e *exception) holds(got, expected outcome) bool {
	if e == nil || e.byChance && got == expected {
		return got == expected
	}
	if e.anyRuns {
		got.runs = e.outcome.runs
	}
	if e.anyPods {
		got.pods = e.outcome.pods
	}
	return got == e.outcome
}

// matrixRun runs the Jobs of a matrix in one namespace, which has a policy for each mode's column.
type matrixRun struct {
	*harness.Test
	slots chan struct{}
}

// sharedUnlessLong marks a matrix. All its rows together with other tests are more than the node can run.
func sharedUnlessLong(t *testing.T) {
	t.Helper()
	if testenv.Long() {
		harness.Exclusive(t)
	} else {
		harness.Shared(t)
	}
}

func newMatrixRun(t *testing.T, change func(*v1alpha1.PolicySpec)) *matrixRun {
	t.Helper()
	run := &matrixRun{harness.New(t), make(chan struct{}, podsOfMatrix)}
	for _, mode := range modes {
		policy := columnPolicy(mode)
		change(&policy.Spec.PolicySpec)
		run.Create(policy)
	}
	return run
}

// columnPolicy returns a policy for the pods of a mode's column.
func columnPolicy(mode v1alpha1.Mode) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(mode)
	policy.Name = "column-" + strings.ToLower(string(mode))
	policy.Spec.PodSelector.MatchLabels = map[string]string{labelColumn: string(mode)}
	return policy
}

// run runs the Job in the column until it has finished or has too many pods, and returns its outcome. The operator must not have
// written to pods of native sidecars.
func (m *matrixRun) run(t *testing.T, job *batchv1.Job, column matrixColumn, mostPods int) outcome {
	t.Helper()
	m.slots <- struct{}{}
	defer func() { <-m.slots }()
	test := harness.Within(t, m.Test)
	job.Spec.Template.Labels = map[string]string{labelColumn: string(column)}
	if ignoresTerm := slices.ContainsFunc(job.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Command, harness.IgnoresTerm)
	}); ignoresTerm {
		job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](2)
	}
	if column == columnNative {
		makeNative(job)
	}
	test.Create(job)
	var got outcome
	test.EventuallySeen("the Job to finish and its containers to terminate", cellTimeout, func(seen harness.Seen) error {
		var err error
		got, err = observe(seen, job.Name, mostPods)
		return err
	})
	if got.job == neverEnds {
		if err := test.Client.Delete(test.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			test.Errorf("Delete Job %s: %v", job.Name, err)
		}
	}
	var records []harness.PodRecord
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.Pods(job.Name) {
			records = append(records, *record)
		}
	})
	for i := range records {
		test.RequireNoReversal(&records[i])
		if column == columnNative {
			requireUnwritten(test, &records[i])
		}
	}
	return got
}

// makeNative makes the sidecar of the Job a native one.
func makeNative(job *batchv1.Job) {
	pod := &job.Spec.Template.Spec
	i := slices.IndexFunc(pod.Containers, func(container corev1.Container) bool { return container.Name == harness.SidecarName })
	sidecar := pod.Containers[i]
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	pod.Containers = slices.Delete(pod.Containers, i, i+1)
	pod.InitContainers = append(pod.InitContainers, sidecar)
}

// observe returns the outcome of the Job and its pods, or an error while it has none.
func observe(seen harness.Seen, name string, mostPods int) (outcome, error) {
	job, pods := seen.Job(name), seen.Pods(name)
	unfinished := fmt.Errorf("the Job has not finished: %s", seen.Describe(name))
	got := outcome{pods: len(pods)}
	for _, condition := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if words, ok := harness.JobCondition(job, condition); ok {
			got.job, got.reason = string(condition), strings.Fields(words + " -")[0]
		}
	}
	switch {
	case got.job != "":
	case len(pods) == 1 && mainCannotStart(pods[0]):
		return blockedBySidecar.outcome, nil
	case mostPods > 0 && len(pods) > mostPods:
		return outcome{job: neverEnds}, nil
	default:
		return got, unfinished
	}
	if counted := int(job.Status.Succeeded + job.Status.Failed); got.pods < counted {
		return got, fmt.Errorf("the Job has counted %d pods, the watch of pods has shown %d", counted, got.pods)
	}
	got.completed, got.failed = job.Status.CompletedIndexes, ptr.Deref(job.Status.FailedIndexes, "")
	for _, record := range pods {
		got.pod = string(record.Pod.Status.Phase)
		if record.Deleted {
			got.pod = "Deleted"
		} else if len(record.Running()) > 0 || record.Pod.DeletionTimestamp != nil || !record.Finished() {
			return got, unfinished
		}
		if main := record.Container(harness.MainName); main != nil && main.ContainerID != "" {
			got.runs += 1 + main.RestartCount
		}
	}
	return got, nil
}

// mainCannotStart reports whether the main container waits for a native sidecar whose image cannot be pulled.
func mainCannotStart(record *harness.PodRecord) bool {
	main := record.Container(harness.MainName)
	return main != nil && main.State.Waiting != nil && main.State.Waiting.Reason == "PodInitializing" &&
		slices.ContainsFunc(record.Pod.Status.InitContainerStatuses, func(status corev1.ContainerStatus) bool {
			return status.State.Waiting != nil && status.State.Waiting.Reason == "ErrImageNeverPull"
		})
}

func hasCondition(job *batchv1.Job, condition batchv1.JobConditionType) bool {
	_, ok := harness.JobCondition(job, condition)
	return ok
}

// noteTable is a Markdown table with footnotes.
type noteTable struct {
	strings.Builder
	notes []string
}

// newTable returns a table that ends with the columns of the matrices.
func newTable(header ...string) *noteTable {
	table := &noteTable{}
	for _, column := range columns {
		header = append(header, string(column))
	}
	fmt.Fprintf(&table.Builder, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	return table
}

// joinRows joins adjacent rows of a table that differ only in one column, counted from 0.
func joinRows(table string, column int) string {
	var rows [][]string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if last := len(rows) - 1; last >= 0 && len(cells) > column && len(cells) == len(rows[last]) &&
			slices.Equal(slices.Delete(slices.Clone(cells), column, column+1), slices.Delete(slices.Clone(rows[last]), column, column+1)) {
			rows[last][column] += "; " + cells[column]
			continue
		}
		rows = append(rows, cells)
	}
	var joined strings.Builder
	for _, cells := range rows {
		joined.WriteString(strings.Join(cells, " | "))
	}
	return joined.String()
}

// cell writes a cell, with the number of its note if it is an exception.
func (t *noteTable) cell(words string, e *exception) {
	fmt.Fprintf(&t.Builder, " %s", words)
	if e != nil {
		if !slices.Contains(t.notes, e.note) {
			t.notes = append(t.notes, e.note)
		}
		fmt.Fprintf(&t.Builder, " (%d)", slices.Index(t.notes, e.note)+1)
	}
	t.WriteString(" |")
}

// String returns the table and its notes.
func (t *noteTable) String() string {
	out := t.Builder.String() + "\n"
	for i, note := range t.notes {
		out += fmt.Sprintf("%d. %s\n", i+1, note)
	}
	return strings.TrimSuffix(out, "\n")
}
