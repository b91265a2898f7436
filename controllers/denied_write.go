// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

const (
	// denialRetry is the requeue delay after a denied write if another mode replaced it. For a stuck pod, the delay doubles
	// with each denial, between minDenialRetry and maxDenialRetry.
	denialRetry    = 15 * time.Second
	minDenialRetry = time.Second
	maxDenialRetry = time.Minute

	// maxAnswer limits the length of a kept error, so that a note has room for the errors of all modes.
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

// denialIn returns the error's write if RBAC, admission or OpenKruise denies it, so that another mode may be used at once. It
// returns nil otherwise. An error of a busy or failing server is no denial.
func denialIn(err error) *writeError {
	var write *writeError
	if !errors.As(err, &write) {
		return nil
	}
	gone := apierrors.IsNotFound(write.cause) && !strings.Contains(write.cause.Error(), "webhook")
	if errors.Is(write.cause, crr.ErrDenied) || optionalkind.IsDenial(write.cause) && !gone {
		return write
	}
	return nil
}

// withDenial returns the denials of a snapshot with one more. It does not change its argument.
func withDenial(denied map[v1alpha1.Mode]string, write *writeError) map[v1alpha1.Mode]string {
	all := maps.Clone(denied)
	if all == nil {
		all = map[v1alpha1.Mode]string{}
	}
	all[write.mode] = safetext.Truncate(write.cause.Error(), maxAnswer)
	return all
}

// denialWait returns the delay before a denied write is tried again, given the decision without it. It derives from the time
// since the mains' end, so that the operator need not remember retries. While main containers run, the next change of the pod is
// soon enough.
func denialWait(decision plan.Decision, now time.Time) time.Duration {
	if decision.MainsDone.IsZero() {
		return 0
	}
	waited := now.Sub(decision.MainsDone)
	if decision.Stage != plan.StageStuck || waited < 0 {
		return denialRetry
	}
	return min(max(waited, minDenialRetry), maxDenialRetry)
}
