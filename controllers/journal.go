// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

const (
	// teardownLag is how long a pod whose phase was written may be missing from both caches, and teardownPoll how often
	// it is looked for meanwhile.
	teardownLag  = 10 * time.Second
	teardownPoll = time.Second

	outcomeStarted = "Started"
)

// journal reports: events and metrics at transitions, and a tally for each policy's status. It remembers what it has
// reported of live pods. No decision depends on it.
type journal struct {
	recorder events.EventRecorder
	clock    clock.PassiveClock
	// notify asks for a policy's status to be written.
	notify func(policy resolve.PolicyRef)

	mu      sync.Mutex
	pods    map[types.NamespacedName]*entry
	tallies map[resolve.PolicyRef]rollup.Tally
}

// entry is what has been reported of one pod.
type entry struct {
	uid       types.UID
	stage     plan.Stage
	reason    v1alpha1.Reason
	policies  []resolve.PolicyRef // all that select the pod, sorted
	governing []resolve.PolicyRef // those that decide over one of its containers, in the order of the containers
	losses    []resolve.Loss
	warned    map[string]bool
	failed    map[attempt]bool
	dryRun    plan.Stage
	// dryRunSaid is true once it has been reported what DryRun policies would have done.
	dryRunSaid bool

	mode         v1alpha1.Mode // of the last attempt; empty when there was none
	mainsDone    time.Time
	phaseWritten time.Time // zero again once the pod has been seen with its terminal phase
	deleted      bool
	finished     bool

	// known is true once the pod has been recorded. What had come about before is not counted: it was when it happened.
	known bool
}

// attempt identifies one attempt on a pod.
type attempt struct {
	mode   v1alpha1.Mode
	number int
}

func newJournal(recorder events.EventRecorder, clock clock.PassiveClock, notify func(resolve.PolicyRef)) *journal {
	return &journal{
		recorder: recorder, clock: clock, notify: notify,
		pods: map[types.NamespacedName]*entry{}, tallies: map[resolve.PolicyRef]rollup.Tally{},
	}
}

// record reports a decision whose Actions are those that were carried out.
func (j *journal) record(subject subject, decision plan.Decision) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entry(subject)
	e.mainsDone, e.deleted = decision.MainsDone, decision.Reason == v1alpha1.ReasonPodDeleted
	e.mode = cmp.Or(decision.Tried, e.mode)
	if plan.HasTerminalPhase(subject.pod) {
		e.phaseWritten = time.Time{}
	}
	j.countStarted(e, decision.Actions)
	j.countFailed(e, subject, decision.Failures)

	moved := e.stage != decision.Stage || e.reason != decision.Reason
	stuckPods.Add(stuckness(decision.Stage) - stuckness(e.stage))
	e.stage, e.reason = decision.Stage, decision.Reason
	for _, event := range decisionEvents(decision, moved, first(e.governing)) {
		event.emit(j.recorder, subject.pod)
	}
	for _, event := range warningEvents(subject.resolution.Warnings) {
		if !e.warned[event.note] {
			e.warned[event.note] = true
			event.emit(j.recorder, subject.pod)
		}
	}
	if decision.Stage == plan.StageTerminated {
		j.finish(client.ObjectKeyFromObject(subject.pod), e)
	}
	if moved || len(decision.Actions) > 0 || len(decision.Failures) > 0 {
		j.notifyAll(e)
	}
	e.known = true
}

// recordDryRun reports what would have been done if the pod's DryRun policies were enforced, once for each pod.
func (j *journal) recordDryRun(subject subject, decision plan.Decision) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entry(subject)
	if e.dryRun != decision.Stage {
		e.dryRun = decision.Stage
		j.notifyAll(e)
	}
	if e.dryRunSaid || len(decision.Actions) == 0 {
		return
	}
	e.dryRunSaid = true
	mode := decision.Actions[len(decision.Actions)-1].For
	attemptsTotal.WithLabelValues(string(mode), string(v1alpha1.OutcomeWouldTerminate)).Inc()
	for _, policy := range subject.policies {
		if policy.Spec.Enforcement != v1alpha1.EnforcementDryRun || !governs(*subject.resolution.DryRun, policy.Ref) {
			continue
		}
		dryRunEvent(decision, &policy.Ref).emit(j.recorder, subject.pod)
		j.add(policy.Ref, rollup.Tally{Recent: []v1alpha1.RecentTermination{
			recent(policy.Ref, client.ObjectKeyFromObject(subject.pod), mode, v1alpha1.OutcomeWouldTerminate, 0),
		}})
	}
	j.notifyAll(e)
}

// gone reports that the pod is in no cache any more: it has finished, or was deleted. It returns when to ask again if
// that is not certain yet, and otherwise zero.
func (j *journal) gone(key types.NamespacedName) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.pods[key]
	if e == nil {
		return 0
	}
	if !e.phaseWritten.IsZero() && j.clock.Since(e.phaseWritten) < teardownLag {
		return teardownPoll
	}
	if !e.deleted {
		j.finish(key, e)
	}
	j.drop(key, e)
	return 0
}

// dismiss forgets a pod that no declaration concerns any more.
func (j *journal) dismiss(key types.NamespacedName) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.pods[key]; e != nil {
		j.drop(key, e)
	}
}

// take returns what is to be added to the policy's status, and forgets it. putBack undoes that.
func (j *journal) take(policy resolve.PolicyRef) rollup.Tally {
	j.mu.Lock()
	defer j.mu.Unlock()
	tally := j.tallies[policy]
	delete(j.tallies, policy)
	return tally
}

func (j *journal) putBack(policy resolve.PolicyRef, tally rollup.Tally) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !tally.Empty() {
		j.tallies[policy] = j.tallies[policy].Merge(tally)
	}
}

// entry returns the pod's entry, a new one for a new pod, with the policies brought up to date.
func (j *journal) entry(subject subject) *entry {
	key := client.ObjectKeyFromObject(subject.pod)
	e := j.pods[key]
	if e != nil && e.uid != subject.pod.UID {
		j.drop(key, e)
		e = nil
	}
	if e == nil {
		e = &entry{uid: subject.pod.UID, warned: map[string]bool{}, failed: map[attempt]bool{}}
		j.pods[key] = e
	}
	j.follow(e, subject)
	return e
}

// follow brings the entry's policies up to date. When they changed it asks for the statuses of the old and of the new
// ones: a policy that has lost the pod, or a container of it, has to say so.
func (j *journal) follow(e *entry, subject subject) {
	var policies, governing []resolve.PolicyRef
	for _, policy := range subject.policies {
		policies = append(policies, policy.Ref)
	}
	slices.SortFunc(policies, comparePolicies)
	for _, target := range subject.resolution.Enforced.Targets {
		if target.Policy != nil && !slices.Contains(governing, *target.Policy) {
			governing = append(governing, *target.Policy)
		}
	}
	losses := subject.resolution.Losses
	if slices.Equal(policies, e.policies) && slices.Equal(governing, e.governing) && slices.Equal(losses, e.losses) {
		return
	}
	j.notifyAll(e)
	e.policies, e.governing, e.losses = policies, governing, losses
	j.notifyAll(e)
}

func (j *journal) drop(key types.NamespacedName, e *entry) {
	stuckPods.Sub(stuckness(e.stage))
	delete(j.pods, key)
	j.notifyAll(e)
}

func (j *journal) notifyAll(e *entry) {
	for _, policy := range e.policies {
		j.notify(policy)
	}
}

func (j *journal) countStarted(e *entry, actions []plan.Action) {
	for _, action := range actions {
		if action.ReleasePhase {
			continue
		}
		e.mode = action.For
		if action.Mode == v1alpha1.ModePodPhase {
			e.phaseWritten = j.clock.Now()
		}
		if action.Mode == action.For {
			attemptsTotal.WithLabelValues(string(action.Mode), outcomeStarted).Inc()
		}
	}
}

// countFailed counts each failed attempt once, however many containers it left and however its message changes.
func (j *journal) countFailed(e *entry, subject subject, failures []plan.Failure) {
	for _, failure := range failures {
		failed := attempt{failure.Mode, failure.Attempt}
		if e.failed[failed] {
			continue
		}
		e.failed[failed] = true
		if !e.known {
			continue
		}
		attemptsTotal.WithLabelValues(string(failure.Mode), string(v1alpha1.OutcomeFailed)).Inc()
		for _, policy := range e.governing {
			j.add(policy, rollup.Tally{Failed: 1, Recent: []v1alpha1.RecentTermination{
				recent(policy, client.ObjectKeyFromObject(subject.pod), failure.Mode, v1alpha1.OutcomeFailed, 0),
			}})
		}
	}
}

// finish reports the end of the pod's sidecars, once, if the operator had a part in it.
func (j *journal) finish(key types.NamespacedName, e *entry) {
	if e.finished || e.mode == "" || e.mainsDone.IsZero() {
		return
	}
	e.finished = true
	if !e.known {
		return
	}
	now := j.clock.Now()
	took := max(now.Sub(e.mainsDone), 0)
	podsTerminatedTotal.WithLabelValues(string(e.mode)).Inc()
	terminationSeconds.WithLabelValues(string(e.mode)).Observe(took.Seconds())
	for _, policy := range e.governing {
		j.add(policy, rollup.Tally{Terminated: 1, Last: now, Recent: []v1alpha1.RecentTermination{
			recent(policy, key, e.mode, v1alpha1.OutcomeTerminated, took),
		}})
	}
}

func (j *journal) add(policy resolve.PolicyRef, tally rollup.Tally) {
	j.tallies[policy] = tally.Merge(j.tallies[policy])
}

func recent(policy resolve.PolicyRef, pod types.NamespacedName, mode v1alpha1.Mode, outcome v1alpha1.TerminationOutcome, took time.Duration) v1alpha1.RecentTermination {
	result := v1alpha1.RecentTermination{Pod: pod.Name, Mode: mode, Outcome: outcome, Milliseconds: took.Milliseconds()}
	if policy.Kind == resolve.KindCluster {
		result.Namespace = pod.Namespace
	}
	return result
}

func comparePolicies(a, b resolve.PolicyRef) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func stuckness(stage plan.Stage) float64 {
	if stage == plan.StageStuck {
		return 1
	}
	return 0
}

func first(policies []resolve.PolicyRef) *resolve.PolicyRef {
	if len(policies) == 0 {
		return nil
	}
	return &policies[0]
}
