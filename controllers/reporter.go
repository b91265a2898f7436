// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

// reporter turns transitions of pods into events, metrics, log lines and tallies for the statuses of policies. podStates calls it
// once per transition. No decision depends on it.
type reporter struct {
	recorder events.EventRecorder
	// log gets one line for each termination, each failed attempt and each pod that becomes stuck.
	log   logr.Logger
	clock clock.PassiveClock
	// notify enqueues a policy, so that its status is written.
	notify func(policy resolve.PolicyRef)

	mu      sync.Mutex
	tallies map[resolve.PolicyRef]rollup.Tally
}

func newReporter(recorder events.EventRecorder, clock clock.PassiveClock, notify func(resolve.PolicyRef)) *reporter {
	return &reporter{
		recorder: recorder, log: ctrl.Log.WithName("pods"), clock: clock, notify: notify, tallies: map[resolve.PolicyRef]rollup.Tally{},
	}
}

// event sends an event on the pod with the policy, if any, as related object.
func (r *reporter) event(pod *corev1.Pod, kind string, reason v1alpha1.Reason, note string, policy *resolve.PolicyRef) {
	var related runtime.Object
	if policy != nil {
		related = &corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: string(policy.Kind), Namespace: policy.Namespace, Name: policy.Name,
		}
	}
	regarding := &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
	}
	r.recorder.Eventf(regarding, related, kind, string(reason), settings.EventAction, "%s", safetext.Truncate(note, safetext.MaxEventNote))
}

// decided emits the events of a decision: that it has begun to end sidecars, that the pod has become stuck, or that it came too late. changed
// says that the decision changes the pod's reported state.
func (r *reporter) decided(pod *corev1.Pod, state *podState, decision plan.Decision, acted, changed bool) {
	stuck, policy := decision.Stage == plan.StageStuck, state.first()
	switch {
	case changed && decision.Reason == v1alpha1.ReasonDecidedTooLate:
		r.decidedTooLate(pod, state, decision)
	case stuck && (acted || changed):
		r.event(pod, corev1.EventTypeWarning, decision.Reason, decision.Message, policy)
	case acted && len(decision.Failures) > 0:
		last := decision.Failures[len(decision.Failures)-1]
		r.event(pod, corev1.EventTypeWarning, decision.Reason, fmt.Sprintf("%s (%s)", decision.Message, last.Message), policy)
	case acted:
		r.event(pod, corev1.EventTypeNormal, decision.Reason, decision.Message, policy)
	}
	if acted && decision.Restarts > 0 {
		r.event(pod, corev1.EventTypeWarning, v1alpha1.ReasonBackoffLimitRisk, fmt.Sprintf(
			"under restartPolicy OnFailure, up to %d restarts of sidecars count towards the Job's backoffLimit", decision.Restarts), policy)
	}
}

// endsByPhase reports a pod whose phase the admission policy has set without a write of the operator.
func (r *reporter) endsByPhase(pod *corev1.Pod, state *podState) {
	reason := v1alpha1.ReasonTerminating
	if state.substituted {
		reason = v1alpha1.ReasonFallback
	}
	r.attemptStarted(v1alpha1.ModePodPhase, state.substituted)
	r.event(pod, corev1.EventTypeNormal, reason,
		fmt.Sprintf("main containers are done; ending %s by mode %s", strings.Join(state.sidecars, ", "), v1alpha1.ModePodPhase), state.first())
}

// stageChanged reports a pod that becomes stuck or stops being stuck. state is the one before the decision.
func (r *reporter) stageChanged(key types.NamespacedName, state *podState, decision plan.Decision) {
	stuckPods.Add(stuckCount(decision.Stage) - stuckCount(state.stage))
	if decision.Stage == plan.StageStuck {
		r.logOf(key, state).Info("Pod is stuck", "reason", decision.Reason, "message", decision.Message)
	}
}

// forgotten reports a pod that the operator no longer tracks.
func (r *reporter) forgotten(state *podState) {
	stuckPods.Sub(stuckCount(state.stage))
}

// decidedTooLate reports a pod that reads Failed although its main containers have succeeded.
func (r *reporter) decidedTooLate(pod *corev1.Pod, state *podState, decision plan.Decision) {
	key := client.ObjectKeyFromObject(pod)
	lateDecisionsTotal.Inc()
	r.logOf(key, state).Info("Outcome was decided too late", "message", decision.Message)
	r.event(pod, corev1.EventTypeWarning, decision.Reason, decision.Message, state.first())
	for _, handle := range state.declaring {
		r.tallyFailure(key, attempt{mode: v1alpha1.ModePodPhase, policy: handle.Value()})
	}
}

func (r *reporter) attemptStarted(mode v1alpha1.Mode, fallback bool) {
	attemptsTotal.WithLabelValues(string(mode)).Inc()
	if fallback {
		fallbacksTotal.WithLabelValues(string(mode)).Inc()
	}
}

func (r *reporter) attemptFailed(key types.NamespacedName, state *podState, failure plan.Failure) {
	attemptFailuresTotal.WithLabelValues(string(failure.Mode)).Inc()
	r.logOf(key, state).Info("Attempt failed",
		"mode", failure.Mode, "attempt", failure.Attempt, "sidecar", failure.Container, "message", failure.Message)
}

// tallyFailure adds a failed attempt to the status of its policy.
func (r *reporter) tallyFailure(key types.NamespacedName, failed attempt) {
	r.addResult(failed.policy, key, rollup.Tally{FailedAttempts: 1}, v1alpha1.RecentTermination{Mode: failed.mode, Outcome: v1alpha1.OutcomeFailed})
}

// terminated reports that the sidecars of a pod have ended.
func (r *reporter) terminated(key types.NamespacedName, state *podState) {
	now := r.clock.Now()
	ended := now
	if !state.ended.IsZero() {
		ended = state.ended
	}
	took := max(ended.Sub(state.mainsDone), 0)
	podsTerminatedTotal.WithLabelValues(string(state.mode)).Inc()
	terminationSeconds.WithLabelValues(string(state.mode)).Observe(took.Seconds())
	r.logOf(key, state).Info("Sidecars terminated", "mode", state.mode, "attempt", state.attempt, "sidecars", state.sidecars,
		"outcome", v1alpha1.OutcomeTerminated, "milliseconds", took.Milliseconds())
	for _, handle := range state.declaring {
		r.addResult(handle.Value(), key, rollup.Tally{Terminated: 1, Last: now}, v1alpha1.RecentTermination{
			Mode: state.mode, Outcome: v1alpha1.OutcomeTerminated, DurationMilliseconds: took.Milliseconds(),
		})
	}
}

// dryRun reports what the pod's DryRun policies would have done.
func (r *reporter) dryRun(resolved resolvedPod, decision plan.Decision) {
	ends := decision.Ends()
	mode := ends[len(ends)-1].Mode
	dryRunAttemptsTotal.WithLabelValues(string(mode)).Inc()
	for _, policy := range resolved.Policies {
		if policy.Spec.Enforcement.Acts() || !slices.Contains(resolved.resolution.DryRun.Policies, policy.Ref) {
			continue
		}
		r.event(resolved.Pod, corev1.EventTypeNormal, v1alpha1.ReasonWouldTerminate,
			"nothing was done because the policy's enforcement is DryRun; with Enforce: "+decision.Message, &policy.Ref)
		r.addResult(policy.Ref, client.ObjectKeyFromObject(resolved.Pod), rollup.Tally{},
			v1alpha1.RecentTermination{Mode: mode, Outcome: v1alpha1.OutcomeWouldTerminate})
	}
}

// addResult adds a tally with a result of now about the pod.
func (r *reporter) addResult(policy resolve.PolicyRef, pod types.NamespacedName, tally rollup.Tally, result v1alpha1.RecentTermination) {
	result.Pod, result.Time = pod.Name, new(rollup.Timestamp(r.clock.Now()))
	if policy.Kind == resolve.KindCluster {
		result.Namespace = pod.Namespace
	}
	tally.Recent = []v1alpha1.RecentTermination{result}
	r.add(policy, tally)
}

// add adds to the tally that the next status of the policy includes.
func (r *reporter) add(policy resolve.PolicyRef, tally rollup.Tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tallies[policy] = tally.Merge(r.tallies[policy])
}

// take returns the policy's tally and clears it. restore undoes that.
func (r *reporter) take(policy resolve.PolicyRef) rollup.Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	tally := r.tallies[policy]
	delete(r.tallies, policy)
	return tally
}

func (r *reporter) restore(policy resolve.PolicyRef, tally rollup.Tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !tally.Empty() {
		r.tallies[policy] = r.tallies[policy].Merge(tally)
	}
}

// logOf returns a logger for the pod.
func (r *reporter) logOf(key types.NamespacedName, state *podState) logr.Logger {
	log := r.log.WithValues("pod", key, "uid", state.uid)
	if policy := state.first(); policy != nil {
		log = log.WithValues("policy", policy.String())
	}
	return log
}

// stuckCount is what a pod in the stage adds to the gauge of stuck pods.
func stuckCount(stage plan.Stage) float64 {
	if stage == plan.StageStuck {
		return 1
	}
	return 0
}
