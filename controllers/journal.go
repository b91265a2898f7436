// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

const (
	// teardownLag is how long a pod whose phase was written may be missing from both caches before the server is asked for
	// it, and teardownPoll how often it is looked for meanwhile.
	teardownLag  = 10 * time.Second
	teardownPoll = time.Second

	// sharedClaims is how many claims are kept to be shared.
	sharedClaims = 1024
)

// journal reports: events and metrics at transitions, and a tally for each policy's status. It remembers what it has
// reported of live pods. No decision depends on it.
type journal struct {
	recorder events.EventRecorder
	// log has one line for each pod whose sidecars have ended, for each failed attempt, and for each pod that becomes stuck.
	log   logr.Logger
	clock clock.PassiveClock
	// notify asks for a policy's status to be written.
	notify func(policy resolve.PolicyRef)

	mu      sync.Mutex
	pods    map[types.NamespacedName]*entry
	tallies map[resolve.PolicyRef]rollup.Tally
	// shared has the claims that many pods have in common, by their id.
	shared *lru.Cache
}

// claims are the policies that bear on a pod. They are shared by pods and never changed.
type claims struct {
	policies  []resolve.PolicyRef // all that select the pod, sorted
	governing []resolve.PolicyRef // those that decide over one of its containers, in the order of the containers
	losses    uint64              // lossesID: there may be as many as policies
	sidecars  []string            // sorted
}

func (c *claims) equal(other *claims) bool {
	return slices.Equal(c.policies, other.policies) && slices.Equal(c.governing, other.governing) &&
		slices.Equal(c.sidecars, other.sidecars) && c.losses == other.losses
}

// noClaims are those of a new entry.
var noClaims = &claims{}

// entry is what has been reported of one pod. There is one for each live pod that a declaration concerns, so that what few
// pods have is made when it is needed.
type entry struct {
	*claims
	uid    types.UID
	stage  plan.Stage
	reason v1alpha1.Reason
	warned map[uint64]bool // by warningID
	failed map[attempt]bool
	dryRun plan.Stage
	// dryRunSaid is true once it has been reported what DryRun policies would have done.
	dryRunSaid bool

	mode         v1alpha1.Mode // of the last attempt; empty when there was none
	number       int           // of that attempt
	mainsDone    time.Time
	phaseWritten time.Time // or when it was last found so; zero again once a cache has the pod with its terminal phase
	deleted      bool
	finished     bool
	// doubtful is true once a write has failed, which may have come about all the same.
	doubtful bool
	// refused are the modes of which a write was refused and none has succeeded since, each with the answer.
	refused map[v1alpha1.Mode]string

	// known is true once the pod has been recorded. What had come about before is not counted: it was when it happened.
	known bool
}

// attempt identifies one attempt on a pod, as a whole or as far as it concerns a policy's containers.
type attempt struct {
	mode   v1alpha1.Mode
	number int
	policy resolve.PolicyRef
}

func newJournal(recorder events.EventRecorder, clock clock.PassiveClock, notify func(resolve.PolicyRef)) *journal {
	return &journal{
		recorder: recorder, log: ctrl.Log.WithName("pods"), clock: clock, notify: notify,
		pods: map[types.NamespacedName]*entry{}, tallies: map[resolve.PolicyRef]rollup.Tally{}, shared: lru.New(sharedClaims),
	}
}

// record reports a decision whose Actions are those that were carried out.
func (j *journal) record(subject subject, decision plan.Decision) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entry(subject)
	e.mainsDone, e.deleted = decision.MainsDone, decision.Reason == v1alpha1.ReasonPodDeleted
	if decision.Tried != "" {
		e.mode, e.number = decision.Tried, decision.TriedNumber
	}
	if plan.HasTerminalPhase(subject.pod) {
		e.phaseWritten = time.Time{}
	}
	e.refused = refusedAfter(e.refused, decision)
	j.countStarted(e, decision)
	j.countFailed(e, subject, decision.Failures)

	moved := e.moves(decision)
	if moved {
		stuckPods.Add(stuckness(decision.Stage) - stuckness(e.stage))
		if decision.Stage == plan.StageStuck {
			j.logOf(client.ObjectKeyFromObject(subject.pod), e).Info("Pod is stuck", "reason", decision.Reason, "message", decision.Message)
		}
		e.stage, e.reason = decision.Stage, decision.Reason
	}
	for _, event := range decisionEvents(decision, moved, first(e.governing)) {
		event.emit(j.recorder, subject.pod)
	}
	for _, warning := range subject.resolution.Warnings {
		if id := warningID(warning); !e.warned[id] {
			if e.warned == nil {
				e.warned = map[uint64]bool{}
			}
			e.warned[id] = true
			warningEvent(warning).emit(j.recorder, subject.pod)
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

// moves reports whether the decision is about another state of the pod than what was reported last. A refused write that
// waits for a quiet pod before it is tried again leaves the pod as stuck as it was.
func (e *entry) moves(decision plan.Decision) bool {
	if e.stage == plan.StageStuck && decision.Reason == v1alpha1.ReasonSettling && len(e.refused) > 0 {
		return false
	}
	return e.stage != decision.Stage || e.reason != decision.Reason
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
	dryRunAttemptsTotal.WithLabelValues(string(mode)).Inc()
	for _, policy := range subject.policies {
		if policy.Spec.Enforcement.Acts() || !governs(*subject.resolution.DryRun, policy.Ref) {
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

// refused returns the modes of which a write about the pod was refused, each with the answer. There is no object that
// could tell a policy's status. The result must not be changed.
func (j *journal) refused(pod *corev1.Pod) map[v1alpha1.Mode]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.pods[client.ObjectKeyFromObject(pod)]; e != nil && e.uid == pod.UID {
		return e.refused
	}
	return nil
}

// refusedAfter returns the refusals that there are after the decision was carried out. Those of before are left as they
// are, for others may read them.
func refusedAfter(before map[v1alpha1.Mode]string, decision plan.Decision) map[v1alpha1.Mode]string {
	after := maps.Clone(before)
	for mode, answer := range decision.Refused {
		if after == nil {
			after = map[v1alpha1.Mode]string{}
		}
		after[mode] = answer
	}
	for _, action := range decision.Actions {
		delete(after, action.Mode)
	}
	if len(after) == 0 {
		return nil
	}
	return after
}

// doubt notes that a write about the pod has failed, and may have come about all the same.
func (j *journal) doubt(key types.NamespacedName) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.pods[key]; e != nil {
		e.doubtful = true
	}
}

// unsure returns the uid of a pod that no cache has, and whether it is not known what has become of it: whether the operator
// has ended its sidecars, or whether those of a pod whose phase was written have ended.
func (j *journal) unsure(key types.NamespacedName) (types.UID, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.pods[key]
	if e == nil || e.deleted {
		return "", false
	}
	doubtful := e.doubtful && e.mode == ""
	late := !e.phaseWritten.IsZero() && j.clock.Since(e.phaseWritten) >= teardownLag
	return e.uid, doubtful || late
}

// settle notes what has become of the pod: the mode is that of an attempt on it, or empty when there was none, and runs says
// that its containers are still to be torn down, so that the caches are waited for.
func (j *journal) settle(key types.NamespacedName, mode v1alpha1.Mode, runs bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.pods[key]
	if e == nil {
		return
	}
	e.mode, e.doubtful, e.phaseWritten = cmp.Or(mode, e.mode), false, time.Time{}
	if runs {
		e.phaseWritten = j.clock.Now()
	}
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
		// It has left the caches without having been missed there, for another one has its name.
		if !e.deleted {
			j.finish(key, e)
		}
		j.drop(key, e)
		e = nil
	}
	if e == nil {
		e = &entry{uid: subject.pod.UID, claims: noClaims}
		j.pods[key] = e
	}
	j.follow(e, subject)
	return e
}

// follow brings the entry's policies up to date. When they changed it asks for the statuses of the old and of the new
// ones: a policy that has lost the pod, or a container of it, has to say so.
func (j *journal) follow(e *entry, subject subject) {
	now := claims{losses: lossesID(subject.resolution.Losses)}
	for _, policy := range subject.policies {
		now.policies = append(now.policies, policy.Ref)
	}
	slices.SortFunc(now.policies, comparePolicies)
	for _, target := range subject.resolution.Enforced.Targets {
		now.sidecars = append(now.sidecars, target.Container)
		if target.Policy != nil && !slices.Contains(now.governing, *target.Policy) {
			now.governing = append(now.governing, *target.Policy)
		}
	}
	if now.equal(e.claims) {
		return
	}
	j.notifyAll(e)
	e.claims = j.share(&now)
	j.notifyAll(e)
}

// share returns what another pod has that is equal, or else the claims themselves.
func (j *journal) share(c *claims) *claims {
	if len(c.policies) == 0 {
		return c
	}
	id := c.id()
	if known, ok := j.shared.Get(id); ok && known.(*claims).equal(c) {
		return known.(*claims)
	}
	j.shared.Add(id, c)
	return c
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

func (j *journal) countStarted(e *entry, decision plan.Decision) {
	for _, action := range decision.Actions {
		if action.ReleasePhase {
			continue
		}
		e.mode, e.number = action.For, action.Attempt
		if action.Mode == v1alpha1.ModePodPhase {
			e.phaseWritten = j.clock.Now()
		}
		attemptsTotal.WithLabelValues(string(action.Mode)).Inc()
		if decision.Reason == v1alpha1.ReasonFallback {
			fallbacksTotal.WithLabelValues(string(action.Mode)).Inc()
		}
	}
}

// countFailed counts each failed attempt once, and once for each policy that governs a container which it left, however many
// those are and however its message changes.
func (j *journal) countFailed(e *entry, subject subject, failures []plan.Failure) {
	for _, failure := range failures {
		failed := attempt{mode: failure.Mode, number: failure.Attempt}
		if e.fails(failed) && e.known {
			attemptFailuresTotal.WithLabelValues(string(failure.Mode)).Inc()
			j.logOf(client.ObjectKeyFromObject(subject.pod), e).Info("Attempt failed",
				"mode", failure.Mode, "attempt", failure.Attempt, "sidecar", failure.Container, "message", failure.Message)
		}
		target := subject.resolution.Enforced.Target(failure.Container)
		if target == nil || target.Policy == nil {
			continue
		}
		failed.policy = *target.Policy
		if e.fails(failed) && e.known {
			j.add(failed.policy, rollup.Tally{Failed: 1, Recent: []v1alpha1.RecentTermination{
				recent(failed.policy, client.ObjectKeyFromObject(subject.pod), failure.Mode, v1alpha1.OutcomeFailed, 0),
			}})
		}
	}
}

// fails notes that the attempt has failed, and reports whether that is new.
func (e *entry) fails(failed attempt) bool {
	if e.failed[failed] {
		return false
	}
	if e.failed == nil {
		e.failed = map[attempt]bool{}
	}
	e.failed[failed] = true
	return true
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
	j.logOf(key, e).Info("Sidecars terminated", "mode", e.mode, "attempt", e.number, "sidecars", e.sidecars,
		"outcome", v1alpha1.OutcomeTerminated, "milliseconds", took.Milliseconds())
	for _, policy := range e.governing {
		j.add(policy, rollup.Tally{Terminated: 1, Last: now, Recent: []v1alpha1.RecentTermination{
			recent(policy, key, e.mode, v1alpha1.OutcomeTerminated, took),
		}})
	}
}

// logOf returns a logger for the pod.
func (j *journal) logOf(key types.NamespacedName, e *entry) logr.Logger {
	log := j.log.WithValues("pod", key, "uid", e.uid)
	if policy := first(e.governing); policy != nil {
		log = log.WithValues("policy", policy.String())
	}
	return log
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
