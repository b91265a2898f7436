// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

// policyStates is what PolicyReconciler and PrePullReconciler remember about policies between reconciles. PolicyReconciler forgets
// a policy that is gone.
type policyStates struct {
	mu       sync.Mutex
	policies map[resolve.PolicyRef]policyState
}

// policyState is what the operator remembers about one policy. A restarted operator lacks it: it may write a status too soon and
// retries a denied pull job sooner.
type policyState struct {
	// notBefore is the earliest time of the next status write.
	notBefore time.Time
	// unanswered is the last write of the status, if its outcome is unknown.
	unanswered *statusWrite
	// pullDenial is the error of a denied pull job. No object holds it.
	pullDenial string
}

// statusWrite is a write of a policy's status. It adds to totals, so writing it twice would count pods twice.
type statusWrite struct {
	resourceVersion string // the policy's version before the write
	status          v1alpha1.PolicyStatus
	tally           rollup.Tally
}

// appliedTo reports whether the status has the totals of the write.
func (w *statusWrite) appliedTo(status v1alpha1.PolicyStatus) bool {
	return status.TerminatedPods == w.status.TerminatedPods && status.FailedAttempts == w.status.FailedAttempts &&
		equality.Semantic.DeepEqual(status.LastTerminationTime, w.status.LastTerminationTime) &&
		equality.Semantic.DeepEqual(status.RecentTerminations, w.status.RecentTerminations)
}

// get returns the policy's state; the zero state if there is none.
func (s *policyStates) get(ref resolve.PolicyRef) policyState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policies[ref]
}

func (s *policyStates) forget(ref resolve.PolicyRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.policies, ref)
}

func (s *policyStates) update(ref resolve.PolicyRef, change func(*policyState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.policies[ref]
	change(&state)
	if state == (policyState{}) {
		delete(s.policies, ref)
		return
	}
	if s.policies == nil {
		s.policies = map[resolve.PolicyRef]policyState{}
	}
	s.policies[ref] = state
}

// delay puts the next status write off until the given time, unless it is put off further already.
func (s *policyStates) delay(ref resolve.PolicyRef, until time.Time) {
	s.update(ref, func(state *policyState) {
		if until.After(state.notBefore) {
			state.notBefore = until
		}
	})
}

func (s *policyStates) setUnanswered(ref resolve.PolicyRef, write *statusWrite) {
	s.update(ref, func(state *policyState) { state.unanswered = write })
}

// setPullDenial reports whether the denial is a new one. An empty one means that nothing is denied.
func (s *policyStates) setPullDenial(ref resolve.PolicyRef, denial string) (changed bool) {
	s.update(ref, func(state *policyState) { changed, state.pullDenial = state.pullDenial != denial, denial })
	return changed
}
