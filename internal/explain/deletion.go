// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// Deletion is when Kubernetes deletes a finished Job and its pods.
type Deletion struct {
	// Field is the field of the Job or CronJob that sets it.
	Field string
	After time.Duration
}

// checkDeletion finds pods that may be deleted while their sidecars are still ending. A written phase counts as finished at
// once, and the API server deletes a finished pod without a grace period (pkg/registry/core/pod/strategy.go,
// CheckGracefulDelete). docs/teardown.md has measurements.
func (x *explainer) checkDeletion() []Finding {
	names := x.sidecarsAfterPhase()
	if len(names) == 0 {
		return nil
	}
	container := ""
	if len(names) == 1 {
		container = names[0]
	}
	grace := plan.GracePeriod(x.Pod.Pod)
	early := x.Deletion != nil && x.Deletion.After < grace
	var all []Finding
	if early {
		when := "as soon as"
		if x.Deletion.After > 0 {
			when = x.Deletion.After.String() + " after"
		}
		all = append(all, finding(SeverityNote, v1alpha1.ReasonDeletedWhileEnding, container, fmt.Sprintf(
			"%s deletes the pod %s it reads as finished, while %s may still use the grace period of %s: the pod's token and log are deleted with the pod",
			x.Deletion.Field, when, strings.Join(names, ", "), grace)))
	}
	if foreign := x.foreignFinalizers(); len(foreign) > 0 {
		severity := SeverityNote
		if early {
			severity = SeverityWarning
		}
		all = append(all, finding(severity, v1alpha1.ReasonForeignFinalizer, container, fmt.Sprintf(
			"finalizer %s keeps the pod: if it is deleted just after its phase is written, the kubelet may kill %s after 2s instead of the grace period of %s",
			strings.Join(foreign, ", "), strings.Join(names, ", "), grace)))
	}
	return all
}

// sidecarsAfterPhase lists the sidecars that still run when the operator has written the pod's phase.
func (x *explainer) sidecarsAfterPhase() []string {
	var names []string
	for _, sidecar := range x.view.Sidecars {
		if slices.ContainsFunc(x.methods(sidecar), Method.writesPhase) {
			names = append(names, sidecar.Container)
		}
	}
	return names
}

// foreignFinalizers lists the pod's finalizers without those of Kubernetes. The Job controller removes its own when it has
// counted the pod, and the garbage collector sets the others with the deletion.
func (x *explainer) foreignFinalizers() []string {
	return slices.DeleteFunc(slices.Clone(x.Pod.Pod.Finalizers), func(name string) bool {
		return name == batchv1.JobTrackingFinalizer || name == metav1.FinalizerDeleteDependents || name == metav1.FinalizerOrphanDependents
	})
}
