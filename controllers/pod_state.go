// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// podStates is what the operator remembers about pods between reconciles. PodReconciler owns it; PolicyReconciler decides by what
// recall returns. It passes each transition on to the reporter once.
//
// Decisions depend on four parts: since when sidecars drain, when the pod was marked, which writes were denied, and since when
// a pod ends by its phase. A restarted operator lacks them. It then takes the node's clock for a drain, repeats a mark that somebody
// has removed and a denied write, and does not look after pods that had a terminal phase before.
type podStates struct {
	reporter *reporter
	clock    clock.PassiveClock

	mu     sync.Mutex
	pods   map[types.NamespacedName]*podState
	marks  markLimits
	shared sharedRefs
}

// podState is what the operator remembers about one pod. Every unfinished pod with a declaration has one, so that fields which few
// pods need are allocated on demand.
type podState struct {
	*policyRefs
	uid         types.UID
	drainsSince time.Time // zero while a main container may run again
	markedAt    time.Time // when the pod was marked last
	markSlot    time.Time // the time that its namespace's limit has reserved for the next mark
	markVersion string    // the resourceVersion that the last mark gave the pod
	crr         int       // the attempt of the last CRR, or zero
	crrAt       time.Time // when it was created
	endsByPhase bool      // the pod is marked to end by its phase
	unanswered  bool      // the admission policy may not decide the pod's outcome, and the operator has not
	substituted bool      // instead of by a declared mode
	phaseSince  time.Time // when such a pod left the cache

	// What was reported.
	known          bool // this process has recorded the pod. Transitions before that were counted before a restart
	stage          plan.Stage
	reason         v1alpha1.Reason
	warned         map[uint64]bool // by warningID
	failed         map[attempt]bool
	finished       bool
	dryRunStage    plan.Stage
	dryRunReported bool

	// The last attempt and its outcome.
	mode           v1alpha1.Mode // empty without an attempt
	attempt        int
	mainsDone      time.Time
	ended          time.Time // when the last sidecar ended, by the node's clock
	deleted        bool
	outcomeUnknown bool                     // a write failed and may still have been applied
	denied         map[v1alpha1.Mode]string // the denied write of each mode, until one succeeds, with the error
}

// attempt identifies a failed attempt on a pod, or, with a policy, its failure for that policy's containers.
type attempt struct {
	mode   v1alpha1.Mode
	number int
	policy resolve.PolicyRef
}

func newPodStates(reporter *reporter, clock clock.PassiveClock) *podStates {
	return &podStates{
		reporter: reporter, clock: clock, pods: map[types.NamespacedName]*podState{}, marks: newMarkLimits(), shared: newSharedRefs(),
	}
}

// record updates the pod's state by a decision and what came of its writes, and reports the transitions.
func (s *podStates) record(resolved resolvedPod, decision plan.Decision, done execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, state := client.ObjectKeyFromObject(resolved.Pod), s.update(resolved)
	state.mainsDone, state.ended, state.deleted = decision.MainsDone, decision.SidecarsEnded, resolved.Pod.DeletionTimestamp != nil
	denied := deniedAfter(state.denied, done)
	answered := !maps.Equal(denied, state.denied)
	state.denied = denied
	s.recordMark(state, resolved.Pod, decision, done)
	if decision.MarkWaits {
		s.marks.wait(resolved.Pod, state, s.clock.Now())
	}
	began := done.began()
	s.recordAttempts(state, resolved.Pod, decision, began)
	s.recordFailures(key, state, resolved, decision.Failures)
	changed := state.changes(decision)
	if changed {
		s.reporter.stageChanged(key, state, decision)
		state.stage, state.reason = decision.Stage, decision.Reason
	}
	s.reporter.decided(resolved.Pod, state, decision, len(began) > 0, changed)
	for _, warning := range resolved.resolution.Warnings {
		if addTo(&state.warned, warningID(warning)) {
			s.reporter.event(resolved.Pod, corev1.EventTypeWarning, warning.Reason, warning.Message, warning.Policy)
		}
	}
	if decision.OrderNotKept != "" && len(done.done) > 0 && addTo(&state.warned, warningID(resolve.Warning{Reason: v1alpha1.ReasonOrderNotKept})) {
		s.reporter.event(resolved.Pod, corev1.EventTypeWarning, v1alpha1.ReasonOrderNotKept, decision.OrderNotKept, state.first())
	}
	if decision.Stage == plan.StageTerminated {
		s.finish(key, state)
	}
	if changed || answered || len(began) > 0 || len(decision.Failures) > 0 {
		s.notify(state)
	}
	state.known = true
	state.outcomeUnknown = state.outcomeUnknown || done.err != nil
}

// marked counts the mark that the pod has got.
func (s *podStates) marked(before, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, now := s.stateOf(pod), s.clock.Now()
	s.marks.use(before, state, now)
	state.markedAt, state.markVersion = now, pod.ResourceVersion
}

// requested remembers the attempt of a new CRR.
func (s *podStates) requested(pod *corev1.Pod, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.stateOf(pod)
	state.crr, state.crrAt = attempt, s.clock.Now()
}

// precedesCRR reports whether the snapshot is older than the pod's last CRR. A decision could create another one for its containers.
func (s *podStates) precedesCRR(snapshot plan.Snapshot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.known(snapshot.Pod)
	return state != nil && state.crr != 0 && s.clock.Since(state.crrAt) < cacheLag &&
		!slices.ContainsFunc(snapshot.Attempts, func(a plan.Attempt) bool { return a.Mode == v1alpha1.ModeCRR && a.Number == state.crr })
}

// cacheLag bounds how long the operator waits for the cache to have a mark, or a CRR.
const cacheLag = 30 * time.Second

// precedesMark reports whether the cached pod is older than its last mark, so that a decision about it would repeat the mark.
func (s *podStates) precedesMark(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.known(pod)
	if state == nil || state.markVersion == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, state.markVersion)
	return err == nil && order < 0 && s.clock.Since(state.markedAt) < cacheLag
}

// recordMark records whether the pod ends by its phase, and who decides its outcome. A stale cache takes nothing back.
func (s *podStates) recordMark(state *podState, pod *corev1.Pod, decision plan.Decision, done execution) {
	state.endsByPhase = state.endsByPhase || plan.MarkedToEnd(pod)
	state.unanswered = state.unanswered || plan.OutcomeUndecided(pod) || !state.known && plan.MainsRecorded(pod)
	for _, write := range done.done {
		if write.Mark != nil {
			state.endsByPhase, state.substituted = write.Mark.Phase() != "", len(decision.Substitutions) > 0
			state.unanswered = write.Mark.Record != v1alpha1.MainsDecided && (state.unanswered || write.Mark.Record != "")
		}
	}
}

// recordAttempts counts each attempt when it starts. One of mode PodPhase that was marked in advance starts without an action.
func (s *podStates) recordAttempts(state *podState, pod *corev1.Pod, decision plan.Decision, began []plan.Write) {
	if decision.Tried == v1alpha1.ModePodPhase && state.mode == "" && state.known {
		s.reporter.endsByPhase(pod, state)
	}
	if decision.Tried != "" {
		state.mode, state.attempt = decision.Tried, decision.TriedNumber
	}
	for _, write := range began {
		state.mode, state.attempt = write.Mode, write.Attempt
		s.reporter.attemptStarted(write.Mode, decision.Reason == v1alpha1.ReasonFallback)
	}
}

// recordFailures counts each failed attempt once, and once for each policy that applies to a container which it left running. Later
// failures of other containers or with other messages belong to the same attempt.
func (s *podStates) recordFailures(key types.NamespacedName, state *podState, resolved resolvedPod, failures []plan.Failure) {
	for _, failure := range failures {
		failed := attempt{mode: failure.Mode, number: failure.Attempt}
		if addTo(&state.failed, failed) && state.known {
			s.reporter.attemptFailed(key, state, failure)
		}
		sidecar := resolved.resolution.Enforced.Sidecar(failure.Container)
		if sidecar == nil || sidecar.Policy == nil {
			continue
		}
		failed.policy = *sidecar.Policy
		if addTo(&state.failed, failed) && state.known {
			s.reporter.tallyFailure(key, failed)
		}
	}
}

// changes reports whether the decision changes the pod's reported state.
func (p *podState) changes(decision plan.Decision) bool {
	return p.stage != decision.Stage || p.reason != decision.Reason
}

// recordDryRun reports once per pod what the pod's DryRun policies would have done if they were enforced.
func (s *podStates) recordDryRun(resolved resolvedPod, decision plan.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.update(resolved)
	if state.dryRunStage != decision.Stage {
		state.dryRunStage = decision.Stage
		s.notify(state)
	}
	if state.dryRunReported || len(decision.Ends()) == 0 {
		return
	}
	state.dryRunReported = true
	s.reporter.dryRun(resolved, decision)
	s.notify(state)
}

// firstLook is when a pod that ends by its phase is first read live after it has left the cache. By then, most sidecars have ended.
// The next look follows when the attempt has failed.
const firstLook = 2 * time.Second

// laterLook is how often a pod with a terminal phase is read live while nothing can end its sidecars.
const laterLook = 10 * time.Minute

// leaving says how to go on with a pod that has left the cache.
type leaving struct {
	read bool // read the pod with this UID from the API server
	uid  types.UID
	wait time.Duration // zero if there is nothing left to do
}

// left handles a pod that has left the cache: it has finished or was deleted. Its sidecars have ended, unless it ends by its phase or a
// write without a response may have ended it. A pod that the admission policy may not have decided is read as well, before its owner removes it.
func (s *podStates) left(key types.NamespacedName) leaving {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.pods[key]
	if state == nil {
		return leaving{}
	}
	mayRun := !state.deleted && (state.endsByPhase || state.outcomeUnknown)
	if !mayRun && !state.unanswered {
		s.finishAndForget(key, state)
		return leaving{}
	}
	if state.phaseSince.IsZero() {
		state.phaseSince = s.clock.Now()
	}
	if wait := firstLook - s.clock.Since(state.phaseSince); mayRun && wait > 0 {
		return leaving{wait: wait}
	}
	return leaving{read: true, uid: state.uid}
}

// missed makes the operator read a pod that had failed before it came into the cache.
func (s *podStates) missed(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stateOf(pod).unanswered = true
}

// gone forgets a pod that no longer exists.
func (s *podStates) gone(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[key]; state != nil {
		s.finishAndForget(key, state)
	}
}

// forgetFinished forgets a pod with a terminal phase, unless a sidecar still runs. It then returns true: no watch delivers the pod any
// more.
func (s *podStates) forgetFinished(pod *corev1.Pod, decision plan.Decision) (kept bool) {
	if !plan.HasTerminalPhase(pod) {
		return false
	}
	if decision.Stage == plan.StageTerminating || decision.Stage == plan.StageStuck {
		return true
	}
	s.gone(client.ObjectKeyFromObject(pod))
	return false
}

// deniedAfter returns the denied writes after an execution. It copies the map, which the snapshots of recall share.
func deniedAfter(before map[v1alpha1.Mode]string, done execution) map[v1alpha1.Mode]string {
	after := merged(before, done.denied)
	for _, write := range done.done {
		delete(after, write.Mode)
	}
	if len(after) == 0 {
		return nil
	}
	return after
}

// forget forgets a pod without declarations.
func (s *podStates) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[key]; state != nil {
		if !state.markedAt.IsZero() {
			// The pod may be declared again.
			s.marks.remember(state.uid)
		}
		s.forgetState(key, state)
	}
}

// known returns the pod's state, or nil for a pod that is new or has taken the name of another.
func (s *podStates) known(pod *corev1.Pod) *podState {
	if state := s.pods[client.ObjectKeyFromObject(pod)]; state != nil && state.uid == pod.UID {
		return state
	}
	return nil
}

// stateOf returns the pod's state, or a new one for a pod that is new or has taken the name of another.
func (s *podStates) stateOf(pod *corev1.Pod) *podState {
	key := client.ObjectKeyFromObject(pod)
	state := s.pods[key]
	if state != nil && state.uid != pod.UID {
		s.finishAndForget(key, state)
		state = nil
	}
	if state == nil {
		state = &podState{uid: pod.UID, policyRefs: noPolicyRefs}
		s.pods[key] = state
	}
	return state
}

// update returns the pod's state with current policies. If they changed, it enqueues the old and the new ones: a policy that lost
// the pod or one of its containers must update its status.
func (s *podStates) update(resolved resolvedPod) *podState {
	state, refs := s.stateOf(resolved.Pod), newPolicyRefs(resolved)
	if !refs.equal(state.policyRefs) {
		s.notify(state)
		state.policyRefs = s.shared.share(&refs)
		s.notify(state)
	}
	return state
}

// finishAndForget forgets a pod that is in no cache. Unless it was deleted, its sidecars have ended.
func (s *podStates) finishAndForget(key types.NamespacedName, state *podState) {
	if !state.deleted {
		s.finish(key, state)
	}
	s.forgetState(key, state)
}

func (s *podStates) forgetState(key types.NamespacedName, state *podState) {
	s.reporter.forgotten(state)
	delete(s.pods, key)
	s.notify(state)
}

// finish reports once that the pod's sidecars have ended, if the operator tried to end them.
func (s *podStates) finish(key types.NamespacedName, state *podState) {
	if state.finished || state.mode == "" || state.mainsDone.IsZero() {
		return
	}
	state.finished = true
	if state.known {
		s.reporter.terminated(key, state)
	}
}

// notify enqueues the policies that select the pod.
func (s *podStates) notify(state *podState) {
	for _, policy := range state.policies {
		s.reporter.notify(policy.Value())
	}
}

// addTo adds the key to the set, which it allocates, and reports whether the key is new.
func addTo[K comparable](set *map[K]bool, key K) bool {
	if (*set)[key] {
		return false
	}
	if *set == nil {
		*set = map[K]bool{}
	}
	(*set)[key] = true
	return true
}

// complete is recall, and remembers when the pod's sidecars began to drain.
func (s *podStates) complete(snapshot *plan.Snapshot) {
	done := plan.MainsDone(*snapshot)
	s.mu.Lock()
	state := s.known(snapshot.Pod)
	if state == nil && !done.IsZero() {
		state = s.stateOf(snapshot.Pod)
	}
	if state != nil {
		state.seeDrain(done, s.clock.Now())
	}
	s.mu.Unlock()
	s.recall(snapshot)
}

// recall adds to the snapshot what the operator remembers about the pod. The map of denied writes must not be changed.
func (s *podStates) recall(snapshot *plan.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.known(snapshot.Pod)
	if state == nil {
		state = &podState{}
	}
	snapshot.Denied, snapshot.MarkAfter = state.denied, s.marks.after(snapshot.Pod, state, s.clock.Now())
	snapshot.DrainsSince, snapshot.PhaseSince = state.drainsSince, state.phaseSince
	snapshot.MarkedAt, snapshot.MarkVersion = state.markedAt, state.markVersion
}

// seeDrain keeps since when the pod's sidecars drain: when this process saw the main containers end. If it has not seen them
// run, the node's clock decides, but no drain begins in the future.
func (p *podState) seeDrain(done, now time.Time) {
	switch {
	case done.IsZero():
		p.drainsSince = done
	case !p.drainsSince.IsZero():
	case p.known && p.mainsDone.IsZero(), done.After(now):
		p.drainsSince = now
	default:
		p.drainsSince = done
	}
}
