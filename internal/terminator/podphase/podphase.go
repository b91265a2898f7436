// SPDX-License-Identifier: Apache-2.0

// Package podphase ends sidecars by writing the pod's terminal phase (mode PodPhase). The patch also changes an annotation.
// That makes the kubelet treat the pod as updated and tear it down with its full grace period; it would revert a change
// of the status alone (podsDifferSemantically in pkg/kubelet/config/config.go, UpdatePod in pod_workers.go). The package
// writes pods/status only, one patch per attempt.
package podphase

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch,roleName=sidecar-termination-manager-pod-phase-role

// guarded is the value of AnnotationPhaseGuard.
const guarded = "Enabled"

// Record is the value of AnnotationPodPhase.
type Record struct {
	Phase corev1.PodPhase `json:"phase"`
	// Mode is the mode for which the phase was written: PodPhase, or CRR.
	Mode      v1alpha1.Mode `json:"mode"`
	Attempt   int           `json:"attempt"`
	WrittenAt metav1.Time   `json:"writtenAt"`
}

// Terminator carries out mode PodPhase.
type Terminator struct {
	Client client.Client
	Clock  clock.PassiveClock
}

// Mode returns PodPhase.
func (t *Terminator) Mode() v1alpha1.Mode { return v1alpha1.ModePodPhase }

// Observe returns the attempt that the pod's annotation records, or none. It reads only the pod. Every error wraps
// terminator.ErrInvalidAnnotation.
func (t *Terminator) Observe(_ context.Context, pod *corev1.Pod) ([]plan.Attempt, error) {
	var record Record
	if err := terminator.ReadRecord(pod, v1alpha1.AnnotationPodPhase, &record); err != nil || record == (Record{}) {
		return nil, err
	}
	// The mode becomes a metric's label, and users must not be able to invent label values.
	if record.Mode != v1alpha1.ModePodPhase && record.Mode != v1alpha1.ModeCRR {
		return nil, fmt.Errorf("%w: annotation %s: mode %q", terminator.ErrInvalidAnnotation, v1alpha1.AnnotationPodPhase, record.Mode)
	}
	return []plan.Attempt{{
		Mode: v1alpha1.ModePodPhase, For: record.Mode, Number: record.Attempt, Started: record.WrittenAt.Time,
	}}, nil
}

// Terminate writes phase, condition, annotations and label in one patch, or removes the phase guard. It returns a conflict
// when the pod has changed since it was read.
func (t *Terminator) Terminate(ctx context.Context, pod *corev1.Pod, action plan.Action) (bool, error) {
	if action.ReleasePhase {
		return t.release(ctx, pod)
	}
	now := metav1.NewTime(t.Clock.Now().UTC().Truncate(time.Second))
	record, err := json.Marshal(Record{Phase: action.Phase, Mode: action.For, Attempt: action.Attempt, WrittenAt: now})
	if err != nil {
		return false, fmt.Errorf("encode annotation %s: %w", v1alpha1.AnnotationPodPhase, err)
	}
	patch := terminator.NewPodPatch(pod)
	patch.Metadata.Annotations = map[string]*string{
		v1alpha1.AnnotationPodPhase: ptr.To(string(record)), v1alpha1.AnnotationPhaseGuard: ptr.To(guarded),
	}
	patch.Metadata.Labels = map[string]string{v1alpha1.LabelTerminatedBy: string(action.For)}
	patch.Status = &terminator.PodPatchStatus{
		Phase: action.Phase,
		Conditions: []corev1.PodCondition{{
			Type:               v1alpha1.PodConditionSidecarTerminated,
			Status:             corev1.ConditionTrue,
			Reason:             string(v1alpha1.ReasonTerminating),
			Message:            "main containers are done; the phase is their outcome",
			LastTransitionTime: now,
		}},
	}
	if err := t.write(ctx, pod, patch); err != nil {
		return false, fmt.Errorf("write phase of pod: %w", err)
	}
	return true, nil
}

// release removes the guard's annotation. It returns false when there is none.
func (t *Terminator) release(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if pod.Annotations[v1alpha1.AnnotationPhaseGuard] == "" {
		return false, nil
	}
	patch := terminator.NewPodPatch(pod)
	patch.Metadata.Annotations = map[string]*string{v1alpha1.AnnotationPhaseGuard: nil}
	if err := t.write(ctx, pod, patch); err != nil {
		return false, fmt.Errorf("remove the phase guard of pod: %w", err)
	}
	return true, nil
}

func (t *Terminator) write(ctx context.Context, pod *corev1.Pod, patch terminator.PodPatch) error {
	raw, err := patch.Raw()
	if err != nil {
		return err
	}
	return t.Client.Status().Patch(ctx, terminator.PatchTarget(pod), raw)
}
