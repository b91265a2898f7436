//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// jobOutcome is the result of a Job with rules for failures.
type jobOutcome struct {
	// job is Complete, Failed, or neverEnds.
	job string
	// reason is the reason of the Job's condition.
	reason string
	// pods is how many pods the Job had.
	pods int
	// completed and failed are the indexes of an Indexed Job.
	completed, failed string
}

// neverEnds is the state of a Job that keeps creating pods, because its failures do not count towards backoffLimit.
const neverEnds = "never ends"

// Outcomes of a Job whose rule has matched the sidecar's exit code.
var (
	failedByRule  = jobOutcome{job: "Failed", reason: batchv1.JobReasonPodFailurePolicy, pods: 1}
	failedByLimit = jobOutcome{job: "Failed", reason: batchv1.JobReasonBackoffLimitExceeded, pods: 2}
	failedByIndex = jobOutcome{job: "Failed", reason: batchv1.JobReasonFailedIndexes, pods: 2, completed: "1", failed: "0"}
	retried       = jobOutcome{job: "Complete", reason: batchv1.JobReasonCompletionsReached, pods: 2}
	retriedAlways = jobOutcome{job: neverEnds}
)

func (o jobOutcome) words() string {
	switch o.job {
	case neverEnds:
		return neverEnds
	case "Complete":
		return fmt.Sprintf("Complete, pods: %d", o.pods)
	}
	words := fmt.Sprintf("%s (%s)", o.job, o.reason)
	if o.pods > 0 {
		words += fmt.Sprintf(", pods: %d", o.pods)
	}
	return words
}

// jobException is an outcome that differs from the Job without its sidecar.
type jobException struct {
	note    string
	outcome jobOutcome
	// byChance is true if the Job may also end as it would without its sidecar.
	byChance bool
	// anyPods is true if the number of pods varies.
	anyPods bool
}

// holds reports whether the outcome matches the exception.
func (e *jobException) holds(got, alone jobOutcome) bool {
	if e.byChance && got == alone {
		return true
	}
	if e.anyPods {
		got.pods = e.outcome.pods
	}
	return got == e.outcome
}

// words returns the note, or "".
func (e *jobException) words() string {
	if e == nil {
		return ""
	}
	return e.note
}

// A rule without containerName matches every container that is terminated when the Job controller evaluates it.
const (
	noteSeen = "The main container has failed, and the rule has no `containerName`, so it also matches the sidecar's exit code. Set " +
		"`onExitCodes.containerName` to the main container, or use a mode that makes the sidecar exit 0: `Auto` with a quick-exit image " +
		"that has the sidecar's command, or `Image`."
	noteChance = "Same as the other note, if the sidecar has terminated when the Job controller first syncs the pod, about a second " +
		"after the phase was written."
)

// expect returns the row's exception in the column, or nil if the sidecar does not change the outcome.
func (r policyRow) expect(column matrixColumn) *jobException {
	mode := v1alpha1.Mode(column)
	endsWithZero := mode == v1alpha1.ModeImage || mode == v1alpha1.ModeAuto
	if endsWithZero || r.namesMain || r.main == mainSucceeds || !slices.Contains(podFailureRules, r.policy) {
		return nil
	}
	var outcome jobOutcome
	switch {
	case r.policy == ruleFailJob:
		outcome = failedByRule
	case r.policy == ruleFailIndex:
		outcome = failedByIndex
	case r.policy == ruleCount && r.main == mainFails:
		outcome = failedByLimit
	case r.policy == ruleCount:
		outcome = retried
	case r.main == mainFails:
		outcome = retriedAlways
	default:
		// An ignored failure is retried like a counted one.
		return nil
	}
	switch {
	case mode == v1alpha1.ModeCRR || column == columnNative:
		return &jobException{note: noteSeen, outcome: outcome}
	case r.policy == ruleFailJob:
		// The Job controller evaluates this rule at each sync, so the next pod may already exist.
		outcome.pods = 0
		return &jobException{note: noteSeen, outcome: outcome, anyPods: true}
	default:
		return &jobException{note: noteChance, outcome: outcome, byChance: true}
	}
}
