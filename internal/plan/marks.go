// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Mark is what the operator writes to a pod, so that admission policy sidecar-termination-outcome decides the pod's outcome
// (config/admission/outcome.yaml).
type Mark struct {
	// IgnoredExitCodes are the containers whose exit codes do not count, sorted by name.
	IgnoredExitCodes []string
	// End is a value of v1alpha1.AnnotationEnd, without the pod's UID, or empty.
	End string
	// Record is what the write records, and the admission policy has not: v1alpha1.MainsSucceeded, v1alpha1.MainsDecided, with which it sets
	// phase Succeeded, or empty.
	Record string
}

// Phase is the phase by which the mark ends a pod, or "".
func (m Mark) Phase() corev1.PodPhase {
	switch m.End {
	case v1alpha1.EndPodPhase:
		return corev1.PodSucceeded
	case v1alpha1.EndFailed:
		return corev1.PodFailed
	}
	return ""
}

// WrittenPhase is the phase that the write of the mark sets itself, or "": phase Succeeded comes from the admission policy, unless the mark
// records what that has not.
func (m Mark) WrittenPhase() corev1.PodPhase {
	switch {
	case m.End == v1alpha1.EndFailed:
		return corev1.PodFailed
	case m.Record == v1alpha1.MainsDecided:
		return corev1.PodSucceeded
	}
	return ""
}

// Annotations returns the annotations that mark the pod. An end that is no longer wanted is empty, because the admission policy would
// restore a missing one. So are the end and the record of a pod that is not marked yet, even where it was read without them: anyone who may
// patch pods could have put them there.
func (m Mark) Annotations(pod *corev1.Pod) map[string]string {
	annotations := map[string]string{v1alpha1.AnnotationIgnoredExitCodes: ownedBy(pod, strings.Join(m.IgnoredExitCodes, ","))}
	if _, found := pod.Annotations[v1alpha1.AnnotationEnd]; found || m.End != "" || !IsMarked(pod) {
		annotations[v1alpha1.AnnotationEnd] = ownedBy(pod, m.End)
	}
	if !IsMarked(pod) {
		annotations[v1alpha1.AnnotationMainContainers] = ""
	}
	if m.Record != "" {
		annotations[v1alpha1.AnnotationMainContainers] = ownedBy(pod, m.Record)
	}
	return annotations
}

// written returns the pod as a write of the mark changes it. It shares everything but labels and annotations with the pod. The admission
// policy removes annotations of a mark that stood on the pod before the label.
func (m Mark) written(pod *corev1.Pod) *corev1.Pod {
	written := *pod
	written.Labels = map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}
	written.Annotations = map[string]string{}
	if IsMarked(pod) {
		maps.Copy(written.Annotations, pod.Annotations)
	}
	for key, value := range m.Annotations(pod) {
		if IsMarked(pod) || value != pod.Annotations[key] {
			written.Annotations[key] = value
		}
	}
	return &written
}

// ownedBy returns the value of an annotation that counts for this pod alone, or "" for no value.
func ownedBy(pod *corev1.Pod, value string) string {
	if value == "" {
		return ""
	}
	return value + "/" + string(pod.UID)
}

// ownValue returns the annotation's value without the UID. It returns "" if the value is for another pod, or if the pod is not marked:
// nothing protects the annotations of such a pod.
func ownValue(pod *corev1.Pod, annotation string) string {
	if value, own := strings.CutSuffix(pod.Annotations[annotation], "/"+string(pod.UID)); own && IsMarked(pod) {
		return value
	}
	return ""
}

// IsMarked reports whether the pod has the label of the mark.
func IsMarked(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.LabelOutcome] == v1alpha1.OutcomeMainContainers
}

// IgnoredExitCodes returns the containers of a marked pod whose exit codes do not count. It returns nil if every exit code counts.
func IgnoredExitCodes(pod *corev1.Pod) []string {
	if !IsMarked(pod) {
		return nil
	}
	return ParseIgnoredExitCodes(pod.Annotations[v1alpha1.AnnotationIgnoredExitCodes], pod.UID)
}

// ParseIgnoredExitCodes returns the containers in a value of the annotation. It returns nil if the value is for another pod.
func ParseIgnoredExitCodes(value string, uid types.UID) []string {
	list, own := strings.CutSuffix(value, "/"+string(uid))
	if !own || list == "" {
		return nil
	}
	return strings.SplitN(list, ",", MaxContainers+1) // as the admission policy does
}

// orderedEnds are the ends that a mark in advance can give a pod. Each permits what those before it permit.
var orderedEnds = []string{"", v1alpha1.EndExited, v1alpha1.EndRestarted, v1alpha1.EndWaiting, v1alpha1.EndPodPhase}

// markedInAdvance returns the end that a mark in advance has given the pod, one of orderedEnds.
func markedInAdvance(pod *corev1.Pod) string {
	return orderedEnds[max(slices.Index(orderedEnds, ownValue(pod, v1alpha1.AnnotationEnd)), 0)]
}

// MarkedToEnd reports whether the admission policy or the kubelet ends the pod by its phase without another write of the operator.
func MarkedToEnd(pod *corev1.Pod) bool {
	return Mark{End: ownValue(pod, v1alpha1.AnnotationEnd)}.Phase() != ""
}

// MainsRecorded reports whether the pod has the record that its main containers have succeeded.
func MainsRecorded(pod *corev1.Pod) bool {
	record := ownValue(pod, v1alpha1.AnnotationMainContainers)
	return record == v1alpha1.MainsSucceeded || record == v1alpha1.MainsDecided
}

// OutcomeUndecided reports whether the pod is marked and the admission policy has not answered: it is not installed. Its first
// answer comes with the write of the mark.
func OutcomeUndecided(pod *corev1.Pod) bool {
	return IsMarked(pod) && ownValue(pod, v1alpha1.AnnotationMainContainers) == ""
}
