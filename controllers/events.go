// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

// podEvent is one event on a pod.
type podEvent struct {
	kind    string // corev1.EventTypeNormal or Warning
	reason  v1alpha1.Reason
	note    string
	related *resolve.PolicyRef
}

// emit sends the event with the policy as related object.
func (e podEvent) emit(recorder events.EventRecorder, pod *corev1.Pod) {
	var related runtime.Object
	if e.related != nil {
		reference := &corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: string(e.related.Kind),
			Namespace: e.related.Namespace, Name: e.related.Name,
		}
		related = reference
	}
	reference := &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
	}
	recorder.Eventf(reference, related, e.kind, string(e.reason), settings.EventAction, "%s", safetext.Truncate(e.note, safetext.MaxEventNote))
}

// decisionEvents returns the events of a decision: its actions or, if the pod has just become stuck, that. changed says that the
// decision changes the pod's reported state.
func decisionEvents(decision plan.Decision, changed bool, policy *resolve.PolicyRef) []podEvent {
	acted, stuck := len(decision.Actions) > 0, decision.Stage == plan.StageStuck
	var list []podEvent
	switch {
	case stuck && (acted || changed):
		list = append(list, podEvent{corev1.EventTypeWarning, decision.Reason, decision.Message, policy})
	case acted && len(decision.Failures) > 0:
		last := decision.Failures[len(decision.Failures)-1]
		list = append(list, podEvent{corev1.EventTypeWarning, decision.Reason, fmt.Sprintf("%s (%s)", decision.Message, last.Message), policy})
	case acted:
		list = append(list, podEvent{corev1.EventTypeNormal, decision.Reason, decision.Message, policy})
	}
	if acted && decision.BackoffLimitRisk {
		list = append(list, podEvent{corev1.EventTypeWarning, v1alpha1.ReasonBackoffLimitRisk,
			"mode Image restarts a container, and under restartPolicy OnFailure each restart counts towards the Job's backoffLimit", policy})
	}
	return list
}

// dryRunEvent reports what a DryRun policy would have done.
func dryRunEvent(decision plan.Decision, policy *resolve.PolicyRef) podEvent {
	return podEvent{corev1.EventTypeNormal, v1alpha1.ReasonWouldTerminate,
		"nothing was done because the policy's enforcement is DryRun; with Enforce: " + decision.Message, policy}
}

// warningEvent reports a declaration without effect.
func warningEvent(w resolve.Warning) podEvent {
	return podEvent{corev1.EventTypeWarning, w.Reason, w.Message, w.Policy}
}
