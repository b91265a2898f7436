// SPDX-License-Identifier: Apache-2.0

// Package timeline divides the time from the end of a pod's main containers to the end of its Job into steps, and says who
// had each step. Times are data: the package reads only its arguments.
package timeline

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Resolution is the resolution of the times in Kubernetes objects.
const Resolution = time.Second

// MaxAttempts bounds the attempts of a timeline: the first one and the newest.
const MaxAttempts = 8

// StepName is what a step ends with.
type StepName string

// The steps, in order. If the operator wrote the phase, the pod and the Job finish while the sidecars are still ending.
const (
	StepNoticed        StepName = "Noticed"        // the kubelet noticed the end of the main containers
	StepSeen           StepName = "Seen"           // the operator saw it
	StepDrained        StepName = "Drained"        // drainSeconds passed
	StepAttemptStarted StepName = "AttemptStarted" // the operator wrote the phase, a CRR or an image
	StepSidecarsEnded  StepName = "SidecarsEnded"
	StepPodFinished    StepName = "PodFinished" // the pod got a terminal phase
	StepJobFinished    StepName = "JobFinished"
)

// Party is who had a step.
type Party string

// The parties.
const (
	PartyKubelet       Party = "Kubelet"
	PartyOperator      Party = "Operator"
	PartyPolicy        Party = "Policy"
	PartyNode          Party = "Node"
	PartyOpenKruise    Party = "OpenKruise"
	PartySidecars      Party = "Sidecars"
	PartyJobController Party = "JobController"
	PartyOtherPods     Party = "OtherPods"
)

// Notes on steps without a duration.
const (
	NotRecorded  = "not recorded"
	NotYet       = "not yet"
	InTheFuture  = "recorded time is in the future"
	BeforePod    = "recorded time is before the pod's creation"
	BeforePrior  = "recorded time is before the previous step"
	LaterWritten = "not recorded: the pod's status was written again later"
)

// Moment is when something happened. Without a time, Note says why. The zero Moment means that the step does not apply.
type Moment struct {
	Time time.Time
	Note string
}

// Attempt is the start of an attempt to end sidecars.
type Attempt struct {
	// Mode is the mechanism. For differs from it for a phase patch that is the first step of mode CRR.
	Mode, For v1alpha1.Mode
	// Number counts from 1.
	Number  int
	Started Moment
}

// Facts are the recorded times of the completion of a pod.
type Facts struct {
	MainsDone, Noticed, Seen, Drained Moment
	// Attempts are sorted by start.
	Attempts []Attempt
	// PhaseWritten is true if the pod's terminal phase is the one that the newest attempt of mode PodPhase wrote.
	PhaseWritten               bool
	SidecarsEnded, PodFinished Moment
	// JobFinished is the time of the Job's final condition. OtherPods is true if it depended on other pods too.
	JobFinished Moment
	OtherPods   bool
}

// AddAttempt adds a new attempt. It keeps the first one and the newest.
func (f *Facts) AddAttempt(attempt Attempt) {
	if len(f.Attempts) == MaxAttempts {
		f.Attempts = slices.Delete(f.Attempts, 1, 2)
	}
	f.Attempts = append(f.Attempts, attempt)
}

// Step is one part of the completion.
type Step struct {
	Name StepName `json:"name"`
	// By lists who had the step. Steps of unknown time are part of the next step, which then has several parties.
	By []Party `json:"by"`
	// Mode, PartOf and Attempt describe an attempt. PartOf is set if Mode is only the first step of that mode.
	Mode    v1alpha1.Mode `json:"mode,omitempty"`
	PartOf  v1alpha1.Mode `json:"partOf,omitempty"`
	Attempt int           `json:"attempt,omitempty"`
	// StartTime is the end of the previous step with a known time. A step that is not over has no EndTime.
	StartTime *metav1.Time `json:"startTime,omitempty"`
	EndTime   *metav1.Time `json:"endTime,omitempty"`
	// DurationSeconds has the resolution of the timeline: 0 means less than a second.
	DurationSeconds *int64 `json:"durationSeconds,omitempty"`
	// Note is why the step has no duration.
	Note string `json:"note,omitempty"`
}

// Timeline is the completion of a pod.
type Timeline struct {
	// ResolutionSeconds bounds the error of each time.
	ResolutionSeconds int64 `json:"resolutionSeconds"`
	// StartTime is when the last main container ended.
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// DurationSeconds is the time from then to the end of the Job, or of the pod if no Job is known. It is nil before that.
	DurationSeconds *int64 `json:"durationSeconds,omitempty"`
	Steps           []Step `json:"steps"`
}

// New divides the time into steps.
func New(facts Facts) Timeline {
	t := Timeline{ResolutionSeconds: int64(Resolution / time.Second)}
	p := path{timeline: &t, at: facts.MainsDone.Time}
	if !p.at.IsZero() {
		t.StartTime = &metav1.Time{Time: p.at}
	}
	p.add(Step{Name: StepNoticed}, facts.Noticed, PartyKubelet)
	p.add(Step{Name: StepSeen}, facts.Seen, PartyOperator)
	p.add(Step{Name: StepDrained}, facts.Drained, PartyPolicy)

	before, after := facts.Attempts, []Attempt(nil)
	if facts.PhaseWritten {
		last := 1 + newestPhase(facts.Attempts)
		before, after = before[:last], before[last:]
	}
	by := p.addAttempts(before, []Party{PartyOperator})
	if len(facts.Attempts) == 0 {
		by = []Party{PartySidecars}
	}
	sidecars := p // the path to the end of the sidecars
	if facts.PhaseWritten {
		p.add(Step{Name: StepPodFinished}, facts.PodFinished, PartyOperator)
		p.addJob(facts)
		by = sidecars.addAttempts(after, by)
		sidecars.add(Step{Name: StepSidecarsEnded}, facts.SidecarsEnded, by...)
	} else {
		p.add(Step{Name: StepSidecarsEnded}, facts.SidecarsEnded, by...)
		p.add(Step{Name: StepPodFinished}, facts.PodFinished, PartyKubelet)
		p.addJob(facts)
	}
	return t
}

// path is a row of steps. Each step starts when the one before it ends.
type path struct {
	timeline *Timeline
	at       time.Time // the end of the last step of known time
	by       []Party   // who had the steps of unknown time since then
	over     bool      // a step is not over yet, so nothing follows
}

// add adds a step that ends at the moment.
func (p *path) add(step Step, end Moment, by ...Party) {
	if p.over || end == (Moment{}) {
		return
	}
	step.By, step.Note = by, end.Note
	for _, party := range by {
		if !slices.Contains(p.by, party) {
			p.by = append(slices.Clip(p.by), party)
		}
	}
	switch {
	case end.Note == NotYet:
		p.over, step.By = true, p.by
		step.StartTime = p.start()
	case end.Time.IsZero():
	case end.Time.Before(p.at.Add(-Resolution)):
		step.Note = BeforePrior
	default:
		if end.Time.Before(p.at) {
			end.Time = p.at
		}
		step.By, step.StartTime, step.EndTime = p.by, p.start(), &metav1.Time{Time: end.Time}
		step.DurationSeconds = between(step.StartTime, step.EndTime)
		p.at, p.by = end.Time, nil
	}
	p.timeline.Steps = append(p.timeline.Steps, step)
}

// start returns the start of the next step, or nil if it is unknown.
func (p *path) start() *metav1.Time {
	if p.at.IsZero() {
		return nil
	}
	return &metav1.Time{Time: p.at}
}

// addAttempts adds the attempts. The parties had the time before the first one. It returns who has the time after the last.
func (p *path) addAttempts(attempts []Attempt, by []Party) []Party {
	for _, attempt := range attempts {
		step := Step{Name: StepAttemptStarted, Mode: attempt.Mode, Attempt: attempt.Number}
		if attempt.For != attempt.Mode {
			step.PartOf = attempt.For
		}
		p.add(step, attempt.Started, by...)
		if by = []Party{PartyNode}; attempt.Mode == v1alpha1.ModeCRR {
			by = []Party{PartyOpenKruise}
		}
	}
	return by
}

// addJob adds the end of the Job, and the duration of the timeline.
func (p *path) addJob(facts Facts) {
	by := []Party{PartyJobController}
	if facts.OtherPods {
		by = append(by, PartyOtherPods)
	}
	p.add(Step{Name: StepJobFinished}, facts.JobFinished, by...)
	last := Step{}
	if steps := p.timeline.Steps; len(steps) > 0 {
		last = steps[len(steps)-1]
	}
	if last.Name == StepJobFinished || facts.JobFinished == (Moment{}) {
		p.timeline.DurationSeconds = between(p.timeline.StartTime, last.EndTime)
	}
}

// newestPhase returns the index of the newest attempt of mode PodPhase.
func newestPhase(attempts []Attempt) int {
	newest := len(attempts) - 1
	for newest > 0 && attempts[newest].Mode != v1alpha1.ModePodPhase {
		newest--
	}
	return newest
}

func between(start, end *metav1.Time) *int64 {
	if start == nil || end == nil {
		return nil
	}
	seconds := int64(end.Sub(start.Time) / time.Second)
	return &seconds
}
