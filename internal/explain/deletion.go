// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// Deletion says when Kubernetes deletes a Job, and its pods, after the Job has finished.
type Deletion struct {
	// Field is the field of the Job or CronJob that says so.
	Field string
	After time.Duration
}

// fromDeletion says which sidecars may still be ending when their pod is deleted. Where the operator writes the phase, the
// Job counts the pod as finished while its sidecars use up their grace period, and the API server deletes a finished pod
// without a grace period (pkg/registry/core/pod/strategy.go, CheckGracefulDelete). docs/teardown.md has what was measured.
func (x *explainer) fromDeletion() []Finding {
	grace := plan.GracePeriod(x.Pod.Pod)
	if x.Deletion == nil || x.Deletion.After >= grace {
		return nil
	}
	var names []string
	for _, target := range x.view.Targets {
		if slices.ContainsFunc(x.ways(target), Way.writesPhase) {
			names = append(names, target.Container)
		}
	}
	if len(names) == 0 {
		return nil
	}
	container := ""
	if len(names) == 1 {
		container = names[0]
	}
	when := "as soon as"
	if x.Deletion.After > 0 {
		when = x.Deletion.After.String() + " after"
	}
	return []Finding{finding(SeverityNote, v1alpha1.ReasonDeletedWhileEnding, container, fmt.Sprintf(
		"%s deletes the pod %s it reads as finished, while %s may still use the grace period of %s: "+
			"the pod's token and log go with the pod, and if a finalizer keeps the pod, the grace period may be cut to 2s",
		x.Deletion.Field, when, strings.Join(names, ", "), grace))}
}

// writesPhase reports whether the first usable mode writes the pod's phase.
func (w Way) writesPhase() bool {
	return len(w.Modes) > 0 && (w.Modes[0] == v1alpha1.ModePodPhase || w.Modes[0] == v1alpha1.ModeCRR && w.PhaseFirst)
}
