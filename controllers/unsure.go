// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

// unsureWrites are writes of statuses of which the answer was lost. Totals are added up, so that a write that has come
// about after all must not be repeated on top of itself: it would count a pod twice.
type unsureWrites struct {
	mu     sync.Mutex
	writes map[resolve.PolicyRef]unsureWrite
}

type unsureWrite struct {
	resourceVersion string // that the write went out from
	status          v1alpha1.PolicyStatus
	tally           rollup.Tally
}

func (u *unsureWrites) add(ref resolve.PolicyRef, write unsureWrite) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.writes == nil {
		u.writes = map[resolve.PolicyRef]unsureWrite{}
	}
	u.writes[ref] = write
}

func (u *unsureWrites) get(ref resolve.PolicyRef) (unsureWrite, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	write, ok := u.writes[ref]
	return write, ok
}

func (u *unsureWrites) forget(ref resolve.PolicyRef) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.writes, ref)
}

// hasTotals reports whether the write is what the status was last given.
func (w unsureWrite) hasTotals(status v1alpha1.PolicyStatus) bool {
	return status.TerminatedPods == w.status.TerminatedPods && status.FailedAttempts == w.status.FailedAttempts &&
		equality.Semantic.DeepEqual(status.LastTerminationTime, w.status.LastTerminationTime) &&
		equality.Semantic.DeepEqual(status.Recent, w.status.Recent)
}
