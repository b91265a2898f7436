// SPDX-License-Identifier: Apache-2.0

// Package podphase marks pods, so that admission policy sidecar-termination-outcome decides their outcome, and ends sidecars by the
// pod's phase (mode PodPhase). The admission policy sets phase Succeeded in the write that marks the pod, or in a later write of
// the kubelet, which then tears the pod down with its full grace period. Phase Failed is written here.
//
// The package writes pods/status only, one patch per mark or attempt. A patch also changes an annotation: that makes the kubelet
// treat the pod as updated (podsDifferSemantically in pkg/kubelet/config/config.go, UpdatePod in pod_workers.go).
package podphase

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch,roleName=sidecar-termination-manager-outcome-role

// Terminator marks pods and executes mode PodPhase.
type Terminator struct {
	Client client.Client
}

// Mode returns PodPhase.
func (t *Terminator) Mode() v1alpha1.Mode { return v1alpha1.ModePodPhase }

// Observe returns nothing: package plan derives the attempt from the pod.
func (t *Terminator) Observe(context.Context, *corev1.Pod) ([]plan.Attempt, error) { return nil, nil }

// Execute writes the mark to the pod. The answer has the pod as the admission policy has changed it. The result of a mark that records an
// outcome or writes phase Failed is Stale if the pod has changed since it was read.
func (t *Terminator) Execute(ctx context.Context, pod *corev1.Pod, write plan.Write) (terminator.Applied, error) {
	marked, err := t.mark(ctx, pod, *write.Mark)
	applied, err := terminator.Judge(t.Mode(), marked != nil && marked.ResourceVersion != pod.ResourceVersion, err)
	applied.Pod = marked
	return applied, err
}

func (t *Terminator) mark(ctx context.Context, pod *corev1.Pod, mark plan.Mark) (*corev1.Pod, error) {
	status := applycorev1.PodStatus()
	patch := terminator.NewPodPatch(pod)
	patch.WithLabels(map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}).WithAnnotations(mark.Annotations(pod)).WithStatus(status)
	if mark.Phase() != "" {
		status.WithConditions(applycorev1.PodCondition().
			WithType(v1alpha1.PodConditionSidecarTerminated).WithStatus(corev1.ConditionFalse).
			WithReason(string(v1alpha1.ModePodPhase)).WithMessage("the sidecars end by the phase of the pod"))
	}
	switch phase := mark.WrittenPhase(); {
	case phase != "":
		status.WithPhase(phase)
	case mark.Record == "":
		// The admission policy looks at the pod's status, which changes often while the pod starts.
		patch.ResourceVersion = nil
	}
	marked := terminator.PatchTarget(pod)
	if err := t.Client.Status().Patch(ctx, marked, patch); err != nil {
		return nil, fmt.Errorf("mark pod: %w", asConflict(pod, err))
	}
	return marked, nil
}

// asConflict returns a conflict if another pod has the name now: without a resourceVersion, the API server takes the patch for a change
// of the UID.
func asConflict(pod *corev1.Pod, err error) error {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return err
	}
	ofUID := func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" }
	if !slices.ContainsFunc(status.Status().Details.Causes, ofUID) {
		return err
	}
	return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, err)
}
