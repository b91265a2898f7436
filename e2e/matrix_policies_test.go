//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// wholeMatrix reports whether MATRIX=all asks for every row of the outcome matrix of Job policies.
func wholeMatrix() bool { return os.Getenv("MATRIX") == "all" }

// Jobs with rules for exit codes have the same outcome as without their sidecar, except for known exceptions.
func TestOutcomeMatrixJobPolicies(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	for _, column := range columnsOf(modes) {
		policy := columnPolicy(column)
		// Avoids fallbacks on a busy node.
		policy.Spec.TerminationDeadlineSeconds = ptr.To[int32](120)
		if policy.Spec.Mode != v1alpha1.ModeAuto {
			// Avoids fallbacks after writes that a busy webhook denied.
			policy.Spec.Fallback = v1alpha1.FallbackDisabled
		}
		test.Create(policy)
	}
	whole := wholeMatrix()
	run := &policyRun{test: test, state: t.TempDir(), slots: make(chan struct{}, podsOfMatrix), results: map[policyCell]*jobOutcome{}}
	var rows []policyRow
	for _, row := range policyRows() {
		if whole || row.isBasic() {
			rows = append(rows, row)
			run.add(row.alone(), "")
			for _, column := range columns {
				run.add(row, column)
			}
		}
	}
	t.Run("cells", func(t *testing.T) {
		for i, cell := range run.cells {
			t.Run(cell.String(), func(t *testing.T) {
				t.Parallel()
				run.run(t, cell, fmt.Sprintf("job-%03d", i))
			})
		}
	})
	if t.Failed() {
		return
	}
	for _, row := range rows {
		run.compare(row)
	}
	if whole && !t.Failed() {
		test.RequireSection("docs/outcome-matrix.md", "job-policies", run.table(rows))
	}
}

// policyCell is a row in one column, or without a sidecar.
type policyCell struct {
	policyRow
	column matrixColumn
}

func (c policyCell) String() string {
	if c.column == "" {
		return c.policyRow.String() + "none"
	}
	return c.policyRow.String() + ", " + string(c.column)
}

// policyRun holds the Jobs of the rows and their outcomes.
type policyRun struct {
	test    *harness.Test
	state   string
	slots   chan struct{}
	cells   []policyCell
	results map[policyCell]*jobOutcome
}

// add adds the row in the column unless it exists.
func (r *policyRun) add(row policyRow, column matrixColumn) {
	cell := policyCell{row, column}
	if r.results[cell] == nil {
		r.cells, r.results[cell] = append(r.cells, cell), &jobOutcome{}
	}
}

// run runs the cell's Job until it has finished or has too many pods.
func (r *policyRun) run(t *testing.T, cell policyCell, name string) {
	t.Helper()
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	test := harness.Within(t, r.test)
	job := cell.job(name, cell.column, r.state)
	test.Create(job)
	test.EventuallySeen("the Job to finish", cellTimeout, func(seen harness.Seen) error {
		var err error
		*r.results[cell], err = observeJob(seen, name, cell.mostPods())
		return err
	})
	if r.results[cell].job == neverEnds {
		if err := test.Client.Delete(test.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			test.Errorf("Delete Job %s: %v", name, err)
		}
	}
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.Pods(name) {
			test.RequireNoReversal(record)
		}
	})
}

// observeJob returns the outcome of the Job, or an error while it has none.
func observeJob(seen harness.Seen, name string, mostPods int) (jobOutcome, error) {
	job, got := seen.Job(name), jobOutcome{pods: len(seen.Pods(name))}
	if job == nil {
		return got, fmt.Errorf("there is no Job yet")
	}
	got.completed, got.failed = job.Status.CompletedIndexes, ptr.Deref(job.Status.FailedIndexes, "")
	for _, condition := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if words, ok := harness.JobCondition(job, condition); ok {
			if counted := int(job.Status.Succeeded + job.Status.Failed); got.pods < counted {
				return got, fmt.Errorf("the Job has counted %d pods, the watch of pods has shown %d", counted, got.pods)
			}
			got.job, got.reason = string(condition), strings.Fields(words + " -")[0]
			return got, nil
		}
	}
	if got.pods > mostPods {
		return jobOutcome{job: neverEnds}, nil
	}
	return got, fmt.Errorf("the Job has not finished: %s", seen.Describe(name))
}

// compare requires, in each column of the row, the outcome without a sidecar or the outcome of the exception.
func (r *policyRun) compare(row policyRow) {
	r.test.Helper()
	alone := *r.results[policyCell{row.alone(), ""}]
	for _, column := range columns {
		got, exception := *r.results[policyCell{row, column}], row.expect(column)
		switch {
		case exception == nil && got != alone:
			r.test.Errorf("%s, %s: the outcome is %+v, want %+v as without the sidecar", row, column, got, alone)
		case exception != nil && !exception.holds(got, alone):
			r.test.Errorf("%s, %s: the outcome is %+v, want %+v: %s", row, column, got, exception.outcome, exception.note)
		}
	}
}

// table returns the table of the rows.
func (r *policyRun) table(rows []policyRow) string {
	table := newTable(append([]string{"rule", "names", "main", "sidecar", "alone"}, namesOf(columns)...)...)
	for _, row := range rows {
		fmt.Fprintf(&table.Builder, "| %s | %s | %s | %s | %s |", row.policy, row.ruleNames(), row.main, row.sidecar, r.results[policyCell{row.alone(), ""}].words())
		for _, column := range columns {
			exception := row.expect(column)
			table.cell(inTable(exception), exception.words())
		}
		table.WriteString("\n")
	}
	return table.String()
}

// inTable returns the text of a cell of the table.
func inTable(exception *jobException) string {
	switch {
	case exception == nil:
		return "as alone"
	case exception.byChance:
		return "by chance"
	default:
		return exception.outcome.words()
	}
}
