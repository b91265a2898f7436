//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// failsOnce is a main container whose first run fails and whose second run succeeds.
const failsOnce mainEnd = "fails once"

// Sidecars whose exit code a podFailurePolicy can match.
const (
	exits143 sidecarEnd = "exits 143 on TERM"
	isKilled sidecarEnd = "is killed (137)"
)

// stateMount is the mount path of a directory that the pods of all Jobs share.
const stateMount = "/state"

// jobPolicy is a Job's rule for failures of its pods.
type jobPolicy string

// The four actions of a podFailurePolicy, and other rules of Indexed Jobs.
const (
	ruleIgnore       jobPolicy = "Ignore"
	ruleFailJob      jobPolicy = "FailJob"
	ruleCount        jobPolicy = "Count"
	ruleFailIndex    jobPolicy = "FailIndex"
	successPolicy    jobPolicy = "successPolicy"
	maxFailedIndexes jobPolicy = "maxFailedIndexes"
)

var podFailureRules = []jobPolicy{ruleIgnore, ruleFailJob, ruleCount, ruleFailIndex}

// policyRow is one row of the outcome matrix of Job policies: the same Job in every column and without its sidecar.
type policyRow struct {
	policy jobPolicy
	// namesMain is true if the rule names the main container, and matches no other.
	namesMain bool
	main      mainEnd
	sidecar   sidecarEnd
}

// policyRows returns every row, in the order of the table.
func policyRows() []policyRow {
	var rows []policyRow
	for _, policy := range []jobPolicy{ruleIgnore, ruleFailJob, ruleCount, ruleFailIndex, successPolicy, maxFailedIndexes} {
		for _, namesMain := range []bool{false, true} {
			if namesMain && !slices.Contains(podFailureRules, policy) {
				continue
			}
			for _, main := range []mainEnd{mainFails, failsOnce, mainSucceeds} {
				for _, sidecar := range []sidecarEnd{exits143, isKilled} {
					rows = append(rows, policyRow{policy, namesMain, main, sidecar})
				}
			}
		}
	}
	return rows
}

// isBasic reports whether each test run includes the row.
func (r policyRow) isBasic() bool {
	return slices.Contains([]policyRow{
		{ruleIgnore, false, mainFails, exits143},
		{ruleFailJob, false, failsOnce, exits143},
		{ruleFailJob, false, mainSucceeds, isKilled},
		{ruleFailIndex, false, mainSucceeds, exits143},
	}, r)
}

func (r policyRow) String() string {
	return fmt.Sprintf("%s, rule names %s, main %s, sidecar %s", r.policy, r.ruleNames(), r.main, r.sidecar)
}

func (r policyRow) ruleNames() string {
	switch {
	case !slices.Contains(podFailureRules, r.policy):
		return "-"
	case r.namesMain:
		return "main"
	default:
		return "no container"
	}
}

// alone returns the row without a sidecar.
func (r policyRow) alone() policyRow {
	r.sidecar = ""
	return r
}

// policyCell is a row in one column, or without a sidecar.
type policyCell struct {
	policyRow
	column matrixColumn
}

// Jobs with rules for failures have the same outcome as without their sidecar, except for known exceptions.
func TestOutcomeMatrixJobPolicies(t *testing.T) {
	sharedUnlessLong(t)
	run := newMatrixRun(t, func(spec *v1alpha1.PolicySpec) {
		// Avoids fallbacks on a busy node, and after writes that a busy webhook denied.
		spec.TerminationDeadlineSeconds = ptr.To[int32](120)
		if spec.Mode != v1alpha1.ModeAuto {
			spec.Fallback = v1alpha1.FallbackDisabled
		}
	})
	columns := columns
	if !testenv.Long() {
		// Auto is CRR here, and a native sidecar shows Kubernetes alone.
		columns = slices.DeleteFunc(slices.Clone(columns), func(c matrixColumn) bool { return c == columnAuto || c == columnNative })
	}
	var rows []policyRow
	results := map[policyCell]*outcome{}
	for _, row := range policyRows() {
		if testenv.Long() || row.isBasic() {
			rows = append(rows, row)
			results[policyCell{row.alone(), ""}] = &outcome{}
			for _, column := range columns {
				results[policyCell{row, column}] = &outcome{}
			}
		}
	}
	state, number := t.TempDir(), 0
	t.Run("cells", func(t *testing.T) {
		for cell, result := range results {
			number++
			name := fmt.Sprintf("job-%03d", number)
			t.Run(fmt.Sprintf("%s, %s", cell.policyRow, cell.column), func(t *testing.T) {
				t.Parallel()
				*result = run.run(t, cell.job(name, state), cell.column, cell.mostPods())
				result.pod, result.runs = "", 0
			})
		}
	})
	if t.Failed() {
		return
	}
	table := newTable("rule", "names", "main", "sidecar", "alone")
	for _, row := range rows {
		alone, differs := *results[policyCell{row.alone(), ""}], false
		for _, column := range columns {
			got, exception := *results[policyCell{row, column}], row.expect(column)
			differs = differs || exception != nil
			if !exception.holds(got, alone) {
				t.Errorf("%s, %s: the outcome is %+v, want %+v as without the sidecar, or %+v", row, column, got, alone, exception)
			}
		}
		if differs {
			row.write(table, alone)
		}
	}
	if testenv.Long() && !t.Failed() {
		run.RequireSection("docs/outcome-matrix.md", "job-policies", joinRows(table.String(), 3))
	}
}

// write writes the row of the table.
func (r policyRow) write(table *noteTable, alone outcome) {
	fmt.Fprintf(&table.Builder, "| %s | %s | %s | %s | %s |", r.policy, r.ruleNames(), r.main, r.sidecar, jobWords(alone))
	for _, column := range columns {
		switch exception := r.expect(column); {
		case exception == nil:
			table.cell("as alone", nil)
		case exception.byChance:
			table.cell("by chance", exception)
		default:
			table.cell(jobWords(exception.outcome), exception)
		}
	}
	table.WriteString("\n")
}

// jobWords returns the text of an outcome in the table.
func jobWords(o outcome) string {
	words := o.job
	if o.job == "Failed" {
		words += " (" + o.reason + ")"
	}
	if o.pods > 0 {
		words += fmt.Sprintf(", pods: %d", o.pods)
	}
	return words
}

// job returns the row's Job.
func (r policyRow) job(name, state string) *batchv1.Job {
	containers := []corev1.Container{harness.Container(harness.MainName, r.mainScript(name))}
	switch r.sidecar {
	case exits143:
		containers = slices.Insert(containers, 0, harness.Sidecar(`trap 'exit 143' TERM; sleep 3600 & wait`))
	case isKilled:
		containers = slices.Insert(containers, 0, harness.Sidecar(harness.IgnoresTerm))
	}
	job := harness.Job(name, corev1.RestartPolicyNever, containers...)
	job.Spec.BackoffLimit = ptr.To[int32](1)
	harness.MountHostDirectory(&job.Spec.Template.Spec, harness.MainName, state, stateMount)
	r.setPolicy(&job.Spec)
	return job
}

// mainScript returns the script of the main container. In an Indexed Job only index 0 ends as the row says.
func (r policyRow) mainScript(name string) string {
	others := "exit 0"
	if r.policy == successPolicy {
		others = "exec sleep 3600"
	}
	end := "exit 0"
	switch r.main {
	case mainFails:
		end = "exit 1"
	case failsOnce:
		// The second run outlasts the end of the first pod's sidecar on a busy node: the Job controller then sees its exit code.
		end = fmt.Sprintf("[ -e %[1]s ] && sleep 15 && exit 0; : > %[1]s; exit 1", stateMount+"/"+name)
	}
	return fmt.Sprintf(`sleep 1; [ "${JOB_COMPLETION_INDEX:-0}" = 0 ] || %s; %s`, others, end)
}

func (r policyRow) setPolicy(spec *batchv1.JobSpec) {
	if !slices.Contains([]jobPolicy{ruleIgnore, ruleFailJob, ruleCount}, r.policy) {
		spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		spec.Completions, spec.Parallelism = ptr.To[int32](2), ptr.To[int32](2)
	}
	if r.policy == ruleFailIndex || r.policy == maxFailedIndexes {
		spec.BackoffLimit, spec.BackoffLimitPerIndex = nil, ptr.To[int32](1)
	}
	switch r.policy {
	case successPolicy:
		spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("0")}}}
	case maxFailedIndexes:
		spec.MaxFailedIndexes = ptr.To[int32](0)
	default:
		spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			r.rule(batchv1.PodFailurePolicyAction(r.policy), 137, 143),
		}}
	}
	if r.policy == ruleCount {
		// Count differs from the default only if a later rule also matches.
		spec.PodFailurePolicy.Rules = append(spec.PodFailurePolicy.Rules, r.rule(batchv1.PodFailurePolicyActionFailJob, 1))
	}
}

func (r policyRow) rule(action batchv1.PodFailurePolicyAction, exitCodes ...int32) batchv1.PodFailurePolicyRule {
	requirement := &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: exitCodes}
	if r.namesMain {
		requirement.ContainerName = ptr.To(harness.MainName)
	}
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: requirement}
}

// mostPods is the number of pods of the Job if every failure counts.
func (r policyRow) mostPods() int {
	switch r.policy {
	case ruleFailIndex, maxFailedIndexes:
		return 4
	case successPolicy:
		return 3
	default:
		return 2
	}
}

// Outcomes of a Job whose rule has matched the sidecar's exit code.
var (
	failedByRule  = outcome{job: "Failed", reason: batchv1.JobReasonPodFailurePolicy, pods: 1}
	failedByLimit = outcome{job: "Failed", reason: batchv1.JobReasonBackoffLimitExceeded, pods: 2}
	failedByIndex = outcome{job: "Failed", reason: batchv1.JobReasonFailedIndexes, pods: 2, completed: "1", failed: "0"}
	retried       = outcome{job: "Complete", reason: batchv1.JobReasonCompletionsReached, pods: 2}
	retriedAlways = outcome{job: neverEnds}
)

// A rule without containerName matches every container that is terminated when the Job controller evaluates it.
const (
	noteSeen = "The main container has failed, and the rule has no `containerName`, so it also matches the sidecar's exit code. Set " +
		"`onExitCodes.containerName` to the main container, or use a mode that makes the sidecar exit 0: `Auto` with a quick-exit image " +
		"that has the sidecar's command, or `Image`."
	noteChance = "Same as the other note, if the sidecar has terminated when the Job controller first syncs the pod, about a second " +
		"after the phase was written."
)

// expect returns the row's exception in the column, or nil if the sidecar does not change the outcome.
func (r policyRow) expect(column matrixColumn) *exception {
	mode := v1alpha1.Mode(column)
	endsWithZero := mode == v1alpha1.ModeImage || mode == v1alpha1.ModeAuto
	if endsWithZero || r.namesMain || r.main == mainSucceeds || !slices.Contains(podFailureRules, r.policy) {
		return nil
	}
	var changed outcome
	switch {
	case r.policy == ruleFailJob:
		changed = failedByRule
	case r.policy == ruleFailIndex:
		changed = failedByIndex
	case r.policy == ruleCount && r.main == mainFails:
		changed = failedByLimit
	case r.policy == ruleCount:
		changed = retried
	case r.main == mainFails:
		changed = retriedAlways
	default:
		// An ignored failure is retried like a counted one.
		return nil
	}
	switch {
	case mode == v1alpha1.ModeCRR || column == columnNative:
		return &exception{note: noteSeen, outcome: changed}
	case r.policy == ruleFailJob:
		// The Job controller evaluates this rule at each sync, so the next pod may already exist.
		changed.pods = 0
		return &exception{note: noteSeen, outcome: changed, anyPods: true}
	default:
		return &exception{note: noteChance, outcome: changed, byChance: true}
	}
}
