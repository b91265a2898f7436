// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// podStates is what the operator remembers about unfinished pods between reconciles. PodReconciler owns it; PolicyReconciler reads
// denied writes from it. It passes each transition on to the reporter once.
//
// Five parts feed decisions: how long a pod has been stable, which writes were denied, which outcome is unknown, whether a
// phase was reverted, and which kubelets ignore phases. A restarted operator lacks them. It then waits one more stabilization window,
// repeats a denied write, trusts the phase guard and kubelets again, but acts no differently on the pod.
type podStates struct {
	reporter *reporter
	clock    clock.PassiveClock
	kubelets *kubelets

	mu     sync.Mutex
	pods   map[types.NamespacedName]*podState
	shared sharedRefs
	// reverted is when a phase that this process had written was last seen reverted.
	reverted time.Time
}

// podState is what the operator remembers about one pod. Every unfinished pod with a declaration has one, so that fields which few
// pods need are allocated on demand.
type podState struct {
	*policyRefs
	uid       types.UID
	stability *stabilityTracker // of a pod with an ended container

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
	phaseWritten   time.Time // when the phase was written or last read live; zero once a cache has the terminal phase
	writtenPhase   int       // one more than the number of the attempt whose phase this process wrote last, until it was reverted
	deleted        bool
	outcomeUnknown bool                     // a write failed and may still have been applied
	denied         map[v1alpha1.Mode]string // the denied write of each mode, until one succeeds, with the error
	trial          *plan.PhaseTrial         // of a phase that this process wrote; nil once the kubelet has shown what it does
}

// attempt identifies a failed attempt on a pod, or, with a policy, its failure for that policy's containers.
type attempt struct {
	mode   v1alpha1.Mode
	number int
	policy resolve.PolicyRef
}

func newPodStates(reporter *reporter, clock clock.PassiveClock) *podStates {
	return &podStates{
		reporter: reporter, clock: clock, kubelets: &kubelets{clock: clock}, pods: map[types.NamespacedName]*podState{}, shared: newSharedRefs(),
	}
}

// record updates the pod's state by a decision, whose Actions are those that were carried out, and reports the transitions. After
// an error of a write the outcome is unknown.
func (s *podStates) record(resolved resolvedPod, decision plan.Decision, actErr error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, state := client.ObjectKeyFromObject(resolved.pod), s.update(resolved)
	state.mainsDone, state.deleted = decision.MainsDone, decision.Reason == v1alpha1.ReasonPodDeleted
	if decision.Tried != "" {
		state.mode, state.attempt = decision.Tried, decision.TriedNumber
	}
	if plan.HasTerminalPhase(resolved.pod) {
		state.phaseWritten = time.Time{}
	}
	state.denied = deniedAfter(state.denied, decision)
	s.recordActions(state, decision)
	s.recordFailures(key, state, resolved, decision.Failures)
	changed := state.changes(decision)
	if changed {
		s.reporter.stageChanged(key, state, decision)
		state.stage, state.reason = decision.Stage, decision.Reason
	}
	s.reporter.decided(resolved.pod, state, decision, changed)
	for _, warning := range resolved.resolution.Warnings {
		if addTo(&state.warned, warningID(warning)) {
			s.reporter.event(resolved.pod, corev1.EventTypeWarning, warning.Reason, warning.Message, warning.Policy)
		}
	}
	if decision.Stage == plan.StageTerminated {
		s.finish(key, state)
	}
	if changed || len(decision.Actions) > 0 || len(decision.Failures) > 0 {
		s.notify(state)
	}
	state.known = true
	state.outcomeUnknown = state.outcomeUnknown || actErr != nil
}

// recordActions counts each attempt when it starts.
func (s *podStates) recordActions(state *podState, decision plan.Decision) {
	for _, action := range decision.Actions {
		if action.ReleasePhase {
			continue
		}
		state.mode, state.attempt = action.For, action.Attempt
		if action.Mode == v1alpha1.ModePodPhase {
			state.phaseWritten, state.writtenPhase = s.clock.Now(), action.Attempt+1
		}
		s.reporter.attemptStarted(action.Mode, decision.Reason == v1alpha1.ReasonFallback)
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

// changes reports whether the decision changes the pod's reported state. A pod that is stuck because of a denied write remains
// stuck while its retry waits for a stable pod.
func (p *podState) changes(decision plan.Decision) bool {
	if p.stage == plan.StageStuck && decision.Reason == v1alpha1.ReasonStabilizing && len(p.denied) > 0 {
		return false
	}
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
	if state.dryRunReported || len(decision.Actions) == 0 {
		return
	}
	state.dryRunReported = true
	s.reporter.dryRun(resolved, decision)
	s.notify(state)
}

// forgetMissing forgets a pod that is in no cache: it has finished or was deleted. It returns the requeue delay while a cache may
// still be behind, and otherwise zero.
func (s *podStates) forgetMissing(key types.NamespacedName) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.pods[key]
	if state == nil {
		return 0
	}
	state.stability = nil
	if !state.phaseWritten.IsZero() && s.clock.Since(state.phaseWritten) < podcache.TeardownLag {
		return podcache.TeardownPoll
	}
	s.finishAndForget(key, state)
	return 0
}

// deniedWrites returns the modes whose last write to the pod was denied, with the errors. The result must not be changed.
func (s *podStates) deniedWrites(pod *corev1.Pod) map[v1alpha1.Mode]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[client.ObjectKeyFromObject(pod)]; state != nil && state.uid == pod.UID {
		return state.denied
	}
	return nil
}

// deniedAfter returns the denied writes after the decision was carried out. It copies the map, which callers of deniedWrites
// may be reading.
func deniedAfter(before map[v1alpha1.Mode]string, decision plan.Decision) map[v1alpha1.Mode]string {
	after := maps.Clone(before)
	if after == nil {
		after = map[v1alpha1.Mode]string{}
	}
	maps.Copy(after, decision.Denied)
	for _, action := range decision.Actions {
		delete(after, action.Mode)
	}
	if len(after) == 0 {
		return nil
	}
	return after
}

// unknownOutcome returns the UID of a pod that is in no cache, and whether it must be read live. That is the case if a write
// without a response may have ended its sidecars, or if the caches have missed its teardown for too long.
func (s *podStates) unknownOutcome(key types.NamespacedName) (types.UID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.pods[key]
	if state == nil || state.deleted {
		return "", false
	}
	unanswered := state.outcomeUnknown && state.mode == ""
	late := !state.phaseWritten.IsZero() && s.clock.Since(state.phaseWritten) >= podcache.TeardownLag
	return state.uid, unanswered || late
}

// resolveUnknownOutcome records a live read of the pod: the mode of the newest attempt, or none, and whether the pod is still in
// teardown, so that the caches need more time.
func (s *podStates) resolveUnknownOutcome(key types.NamespacedName, mode v1alpha1.Mode, inTeardown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.pods[key]
	if state == nil {
		return
	}
	state.mode, state.outcomeUnknown, state.phaseWritten = cmp.Or(mode, state.mode), false, time.Time{}
	if inTeardown {
		state.phaseWritten = s.clock.Now()
	}
}

// forget forgets a pod without declarations.
func (s *podStates) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.pods[key]; state != nil {
		s.forgetState(key, state)
	}
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
	state, refs := s.stateOf(resolved.pod), newPolicyRefs(resolved)
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

// stabilityTracker tracks how long a pod has been unchanged, by the operator's own clock: clocks of nodes may differ.
type stabilityTracker struct {
	resourceVersion string
	unchangedSince  time.Time
	containers      uint64 // containersID
	containersSince time.Time
	drainsSince     time.Time // zero while a main container may run again
}

// unchangedSince returns when the operator first saw the pod's resourceVersion and the current states of its containers. A pod
// without an ended container has no phase to write yet and is not tracked.
func (s *podStates) unchangedSince(pod *corev1.Pod, now time.Time) (unchanged, containersUnchanged time.Time) {
	if !hasEnded(pod) {
		return now, now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.stateOf(pod)
	if state.stability == nil {
		state.stability = &stabilityTracker{unchangedSince: now, containersSince: now}
	}
	return state.stability.see(pod, now)
}

// drainsSince returns since when the pod's sidecars drain: when this process saw the main containers end. If it has not seen them
// run, the node's clock decides, but no drain begins in the future.
func (s *podStates) drainsSince(snapshot plan.Snapshot, now time.Time) time.Time {
	done := plan.MainsDone(snapshot)
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.pods[client.ObjectKeyFromObject(snapshot.Pod)]
	if state == nil || state.uid != snapshot.Pod.UID || state.stability == nil {
		return done
	}
	since := &state.stability.drainsSince
	switch {
	case done.IsZero():
		*since = done
	case !since.IsZero():
	case state.known && state.mainsDone.IsZero(), done.After(now):
		*since = now
	default:
		*since = done
	}
	return *since
}

// hasEnded reports whether a container of the pod has ended.
func hasEnded(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Terminated != nil })
}

// unguardedFor is how long the operator does not trust the phase guard after a phase was reverted.
const unguardedFor = time.Hour

// stabilizationWindow returns how long a pod must be unchanged before its phase is written: what is configured, or at least
// plan.UnguardedWindow if a phase that this process wrote was reverted lately.
func (s *podStates) stabilizationWindow(snapshot plan.Snapshot, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(snapshot.Pod)
	// An older attempt on the pod comes from a stale cache, or from somebody who has forged the annotation.
	if state := s.pods[key]; state != nil && state.uid == snapshot.Pod.UID && state.writtenPhase > 0 &&
		plan.PhaseReverted(snapshot.Pod, snapshot.Attempts) >= state.writtenPhase-1 {
		state.writtenPhase, s.reverted = 0, now
		s.reporter.phaseReverted(key, state)
	}
	if s.reverted.IsZero() || now.Sub(s.reverted) >= unguardedFor {
		return snapshot.StabilizationWindow
	}
	return max(snapshot.StabilizationWindow, plan.UnguardedWindow)
}

// see records this version of the pod in the tracker. It returns the same times as unchangedSince.
func (s *stabilityTracker) see(pod *corev1.Pod, now time.Time) (unchanged, containersUnchanged time.Time) {
	if s.resourceVersion != pod.ResourceVersion {
		s.resourceVersion, s.unchangedSince = pod.ResourceVersion, now
	}
	if containers := containersID(pod); s.containers != containers {
		s.containers, s.containersSince = containers, now
	}
	return s.unchangedSince, s.containersSince
}

// containersID identifies the states of a pod's containers: started, restart count, and ended.
func containersID(pod *corev1.Pod) uint64 {
	hash := newHash()
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		maphash.WriteComparable(hash, struct {
			name                string
			restarts            int32
			running, terminated bool
		}{status.Name, status.RestartCount, status.State.Running != nil, status.State.Terminated != nil})
	}
	return hash.Sum64()
}
