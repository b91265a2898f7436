//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// jobOutcome is what becomes of a Job with rules for its failures.
type jobOutcome struct {
	// job is Complete, Failed, or neverEnds.
	job string
	// reason is that of the Job's condition.
	reason string
	// pods is how many pods the Job had.
	pods int
	// completed and failed are the indexes of an Indexed Job.
	completed, failed string
}

// neverEnds is a Job that has more pods than it can have when each failure counts, and has not finished.
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

// jobException is an outcome that the Job does not have without its sidecar.
type jobException struct {
	note    string
	outcome jobOutcome
	// byChance is true where the outcome may be that of the Job alone as well.
	byChance bool
	// anyPods is true where chance decides how many pods the Job has.
	anyPods bool
}

// holds reports whether the outcome is the one of the exception.
func (e *jobException) holds(got, alone jobOutcome) bool {
	if e.byChance && got == alone {
		return true
	}
	if e.anyPods {
		got.pods = e.outcome.pods
	}
	return got == e.outcome
}

// words returns the note, or nothing.
func (e *jobException) words() string {
	if e == nil {
		return ""
	}
	return e.note
}

// A rule that names no container sees every container that has ended when the Job controller looks.
const (
	noteSeen = "The main container has failed, and the rule, which names no container, matches the sidecar's exit code beside it. " +
		"Set `onExitCodes.containerName` to the main container, or use a mode that ends the sidecar with 0: `Auto` with a quick-exit " +
		"image that has the sidecar's command, or `Image`."
	noteChance = "As in the other note, if the sidecar has ended by the time that the Job controller first looks at the pod, about a " +
		"second after the phase was written."
)

// expect returns the exception that the row is in the mode, or nil where the outcome is that of the Job alone.
func (r policyRow) expect(mode v1alpha1.Mode) *jobException {
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
		// A failure that is ignored is tried again, as one that is counted is.
		return nil
	}
	switch {
	case mode == v1alpha1.ModeCRR:
		return &jobException{note: noteSeen, outcome: outcome}
	case r.policy == ruleFailJob:
		// The Job controller evaluates such a rule at each sync, when the next pod may exist already.
		outcome.pods = 0
		return &jobException{note: noteSeen, outcome: outcome, anyPods: true}
	default:
		return &jobException{note: noteChance, outcome: outcome, byChance: true}
	}
}
