// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// decide is admission policy sidecar-termination-outcome (config/admission/outcome.yaml, whose variables it names): it returns the pod
// that the API server stores when a client writes a pod's status.
func decide(old, written *corev1.Pod) *corev1.Pod {
	pod := written.DeepCopy()
	marked := func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelOutcome] == v1alpha1.OutcomeMainContainers }
	jobType := old.Spec.RestartPolicy == never || old.Spec.RestartPolicy == onFailure
	if !marked(old) && !marked(written) || !jobType || len(old.Spec.Containers) > plan.MaxContainers {
		return pod
	}
	unprotected := func(key string) bool {
		value, found := old.Annotations[key]
		other, kept := written.Annotations[key]
		return !marked(old) && found && kept && value == other
	}
	believed := func(key string) string {
		value, found := written.Annotations[key]
		switch {
		case unprotected(key):
			return ""
		case !found && marked(old):
			return old.Annotations[key]
		}
		return value
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
	for _, key := range []string{v1alpha1.AnnotationIgnoredExitCodes, v1alpha1.AnnotationEnd} {
		if _, found := old.Annotations[key]; found && marked(old) {
			annotate(pod, key, believed(key))
		}
		if unprotected(key) {
			delete(pod.Annotations, key)
		}
	}
	if unprotected(v1alpha1.AnnotationMainContainers) {
		delete(pod.Annotations, v1alpha1.AnnotationMainContainers)
	}
	record, phase := plan.DecideOutcome(old, pod)
	annotate(pod, v1alpha1.AnnotationMainContainers, record+"/"+string(old.UID))
	pod.Status.Phase = phase
	return pod
}

// isDisrupted reports whether a condition of the pod keeps its main containers from a record.
func isDisrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return (c.Type == corev1.DisruptionTarget || c.Type == corev1.AllContainersRestarting) && c.Status == corev1.ConditionTrue
	})
}
