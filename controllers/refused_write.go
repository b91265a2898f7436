// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

const (
	// refusalRetry is when a pod is looked at again after a write about it was refused and another mode was used. A stuck one
	// is looked at again when it has waited as long again as it has already, within these bounds.
	refusalRetry    = 15 * time.Second
	minRefusalRetry = time.Second
	maxRefusalRetry = time.Minute

	// maxAnswer bounds what is kept of an answer, so that a note has room for those of all modes.
	maxAnswer = 400
)

// writeError is an error of the write that a mode needs.
type writeError struct {
	mode  v1alpha1.Mode
	cause error
}

func (w *writeError) Error() string {
	return fmt.Sprintf("end sidecars by mode %s: %v", w.mode, w.cause)
}

func (w *writeError) Unwrap() error { return w.cause }

// refusalIn returns the error's write if a rule or a webhook, or OpenKruise, does not let the operator make it, so that
// another mode may be used at once; otherwise nil. What the server is too busy or too broken to answer is no refusal.
func refusalIn(err error) *writeError {
	var write *writeError
	if !errors.As(err, &write) {
		return nil
	}
	cause := write.cause
	if errors.Is(cause, crr.ErrRefused) || apierrors.IsForbidden(cause) || apierrors.IsInvalid(cause) || apierrors.IsBadRequest(cause) {
		return write
	}
	return nil
}

// withRefusal adds a refusal to those of a snapshot, which stay as they are.
func withRefusal(refused map[v1alpha1.Mode]string, write *writeError) map[v1alpha1.Mode]string {
	all := maps.Clone(refused)
	if all == nil {
		all = map[v1alpha1.Mode]string{}
	}
	all[write.mode] = bounded(write.cause.Error(), maxAnswer)
	return all
}

// refusalWait is how long to wait before a refused write is tried again, given the decision without it. Nothing but the
// age of the pod's end is needed for that, so that nothing has to be remembered.
func refusalWait(decision plan.Decision, now time.Time) time.Duration {
	waited := now.Sub(decision.MainsDone)
	if decision.Stage != plan.StageStuck || waited < 0 {
		return refusalRetry
	}
	return min(max(waited, minRefusalRetry), maxRefusalRetry)
}
