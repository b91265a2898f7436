// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// standby is what a replica that does not lead remembers about pods whose main containers end. The zero value belongs to a
// replica that leads.
type standby struct {
	delay time.Duration // how long the leader has

	mu   sync.Mutex
	pods map[types.NamespacedName]*standbyPod // nil once the replica leads
}

// standbyPod is one pod with an ended container, or whose main containers are done.
type standbyPod struct {
	uid       types.UID
	overdue   plan.Standby
	stability stabilityTracker
}

// newStandby returns the memory of a replica that does not lead yet. Without a delay the replica does nothing until it leads.
func newStandby(delay time.Duration) *standby {
	s := &standby{delay: delay}
	if delay > 0 {
		s.pods = map[types.NamespacedName]*standbyPod{}
	}
	return s
}

// leads reports whether the replica leads. It then does so until it ends.
func (s *standby) leads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods == nil
}

// lead makes the replica the leader.
func (s *standby) lead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = nil
}

// forget forgets a pod.
func (s *standby) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, key)
}

// see records this version of the pod, and returns what unchangedSince of podStates does.
func (s *standby) see(pod *corev1.Pod, now time.Time) (unchanged, containersUnchanged time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(pod)
	known := s.pods[key]
	if !hasEnded(pod) || s.pods == nil {
		delete(s.pods, key)
		return now, now
	}
	if known == nil || known.uid != pod.UID {
		known = &standbyPod{uid: pod.UID, stability: stabilityTracker{unchangedSince: now, containersSince: now}}
		s.pods[key] = known
	}
	return known.stability.see(pod, now)
}

// overdue reports whether the leader has left the pod of the snapshot waiting for the delay, and otherwise when to ask again.
func (s *standby) overdue(snapshot plan.Snapshot, decision plan.Decision, now time.Time) (bool, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.pods[client.ObjectKeyFromObject(snapshot.Pod)]
	if known == nil {
		return false, 0
	}
	return known.overdue.Overdue(snapshot.View, decision, s.delay, now)
}

// standIn starts the first attempt on a pod that the leader has left waiting. It reports only that: the leader, or the next one,
// reports everything else.
func (r *PodReconciler) standIn(ctx context.Context, resolved resolvedPod, snapshot plan.Snapshot) (ctrl.Result, error) {
	now := r.options.Clock.Now()
	snapshot.UnchangedSince, snapshot.ContainersUnchangedSince = r.standby.see(snapshot.Pod, now)
	decision := plan.Next(snapshot, now)
	overdue, wait := r.standby.overdue(snapshot, decision, now)
	if !overdue {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	// The leader may have acted although this replica's watch does not say so.
	current, err := r.reader.isCurrent(ctx, snapshot.Pod)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read the pod before acting for the leader: %w", err)
	}
	if !current {
		return ctrl.Result{RequeueAfter: r.standby.delay}, nil
	}
	decision, err = r.act(ctx, snapshot)
	r.states.reporter.stoodIn(resolved, decision)
	return ctrl.Result{RequeueAfter: max(decision.RequeueAfter, r.standby.delay)}, err
}

// stoodIn reports the attempts that a replica has started which does not lead.
func (r *reporter) stoodIn(resolved resolvedPod, decision plan.Decision) {
	if len(decision.Actions) == 0 {
		return
	}
	refs := newPolicyRefs(resolved)
	state := &podState{policyRefs: &refs, uid: resolved.pod.UID}
	for _, action := range decision.Actions {
		r.attemptStarted(action.Mode, decision.Reason == v1alpha1.ReasonFallback)
	}
	r.decided(resolved.pod, state, decision, false)
	r.logOf(client.ObjectKeyFromObject(resolved.pod), state).Info("Acted for the leader, which left the pod waiting",
		"mode", decision.Actions[0].For, "mainsDone", decision.MainsDone)
}

// leadWhenElected makes the replica the leader once it holds the lease, and then has it reconcile every pod as after a start. Without
// a delay, the pod controller starts only then, and reconciles every pod by itself.
func leadWhenElected(mgr manager.Manager, r *PodReconciler, enqueueAll func(ctx context.Context)) error {
	if r.standby.leads() {
		return nil
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		r.standby.lead()
		enqueueAll(ctx)
		return nil
	}))
}
