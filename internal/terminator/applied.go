// SPDX-License-Identifier: Apache-2.0

// Package terminator holds the interface of the modes and what they share: what came of a write, patches of pods, and annotations that
// record attempts. Its subpackages crr, image and podphase are the only code that writes pods or ContainerRecreateRequests, one mode each.
// They execute the writes of package plan and read past attempts. They decide nothing.
package terminator

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/plan"
)

// Terminator executes the writes of one mode, and reads the attempts that they began.
type Terminator interface {
	Mode() v1alpha1.Mode
	// Observe returns the operator's past attempts on the pod. It reads no more than the cache.
	Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error)
	// Execute executes the write. It does not change the pod, and repeating it is safe.
	Execute(ctx context.Context, pod *corev1.Pod, write plan.Write) (Applied, error)
}

// Result is what came of a write.
type Result string

// The results of a write.
const (
	// Changed means that the write has changed an object.
	Changed Result = "Changed"
	// Unchanged means that everything was as wanted.
	Unchanged Result = "Unchanged"
	// Denied means that RBAC, an admission webhook or OpenKruise refuses the write: another mode may be used at once.
	Denied Result = "Denied"
	// Stale means that an object has changed or gone since it was read: the next decision is about the current one.
	Stale Result = "Stale"
)

// Applied is what came of a write.
type Applied struct {
	Result Result
	// Pod is the API server's answer to a mark.
	Pod *corev1.Pod
	// Answer is why the write was denied or is stale. It is nil for other results.
	Answer error
}

// ErrDenied means that a write cannot be made, although no answer of the API server says so.
var ErrDenied = errors.New("denied")

// Judge returns what a write has changed, or what its error means. An error of a busy or failing server is returned, because nothing follows
// from it.
func Judge(mode v1alpha1.Mode, changed bool, err error) (Applied, error) {
	gone := apierrors.IsNotFound(err) && !optionalkind.ByWebhook(err)
	switch {
	case err == nil && changed:
		return Applied{Result: Changed}, nil
	case err == nil:
		return Applied{Result: Unchanged}, nil
	case errors.Is(err, ErrDenied), optionalkind.IsDenial(err) && !gone:
		return Applied{Result: Denied, Answer: err}, nil
	case apierrors.IsConflict(err), gone:
		return Applied{Result: Stale, Answer: err}, nil
	}
	return Applied{}, fmt.Errorf("end sidecars by mode %s: %w", mode, err)
}
