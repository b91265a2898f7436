// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/safetext"
)

// Metadata are the labels and annotations of an object.
type Metadata struct{ Labels, Annotations map[string]string }

// writtenByUsers are the keys of the operator that users write. Other keys with its prefix may be for selectors of policies.
var writtenByUsers = []string{v1alpha1.AnnotationSidecars, v1alpha1.LabelIgnore}

// maxIneffective bounds the findings on the labels or the annotations of one object.
const maxIneffective = 5

// checkLabels finds labels and annotations that look like those of the operator and have no effect.
func (x *explainer) checkLabels() {
	x.checkListed()
	pod := "pod"
	if x.Template {
		pod = "pod template"
	}
	x.checkKeys("label", v1alpha1.LabelIgnore, pod, x.Pod.Pod.Labels)
	x.checkKeys("annotation", v1alpha1.AnnotationSidecars, pod, x.Pod.Pod.Annotations)
	x.checkKeys("label", v1alpha1.LabelIgnore, "namespace", x.NamespaceLabels)
	kind := "Job" // with the metadata in Owner
	if x.Template {
		kind = x.Kind
	}
	for _, key := range writtenByUsers {
		if hasKey(x.Owner.Labels, x.Owner.Annotations, key) && !hasKey(x.Pod.Pod.Labels, x.Pod.Pod.Annotations, key) {
			x.add(SeverityWarning, v1alpha1.ReasonIneffectiveLabel, "", "%s of the %s has no effect: the operator reads the metadata of its pods", key, kind).
				Hint = "move it to spec.template.metadata of the Job"
		}
	}
}

// hasKey reports whether the labels or the annotations have the key.
func hasKey(labels, annotations map[string]string, key string) bool {
	_, isLabel := labels[key]
	_, isAnnotation := annotations[key]
	return isLabel || isAnnotation
}

// checkListed finds names in the pod's annotation that none of its containers has. A webhook may add one to a template.
func (x *explainer) checkListed() {
	for _, name := range resolve.Listed(x.Pod.Pod) {
		if name == "" || x.hasContainer(name) {
			continue
		}
		meant := Similar(name, x.undeclared())
		f := x.add(SeverityWarning, v1alpha1.ReasonContainerNotFound, "", "annotation %s names %s, which is %s",
			v1alpha1.AnnotationSidecars, missingEntry{name: name, meant: meant}, x.notInPod())
		f.Hint, f.lint = "correct the annotation", true
		if meant != "" {
			f.Hint = fmt.Sprintf("change %s to %s in the annotation", name, meant)
		} else if x.Template {
			f.Severity = SeverityNote
		}
	}
}

// checkKeys finds keys of labels or annotations that are misspelled, belong elsewhere, or have a value without an effect. Only one of the
// keys that users write is right in this place.
func (x *explainer) checkKeys(place, right, object string, given map[string]string) {
	found := 0
	for _, key := range slices.Sorted(maps.Keys(given)) {
		why, hint := ineffective(place, right, key, given[key])
		if why == "" {
			continue
		}
		if found++; found > maxIneffective {
			return
		}
		f := x.add(SeverityWarning, v1alpha1.ReasonIneffectiveLabel, "", "%s %s of the %s has no effect: %s", place, safetext.Truncate(key, maxLabel), object, why)
		if f.Hint = hint; object == "namespace" {
			x.command(f, "kubectl label namespace %s --overwrite %s=true", x.Pod.Pod.Namespace, right)
		}
	}
}

// ineffective says why a label or an annotation has no effect although it looks like one of the operator's, and what to do.
func ineffective(place, right, key, value string) (why, hint string) {
	meant := Similar(strings.ToLower(key), writtenByUsers)
	switch {
	case key == v1alpha1.LabelIgnore && key == right && value != "true":
		return fmt.Sprintf("its value is %s", shownValue(value)), `set the value to "true"`
	case slices.Contains(writtenByUsers, key) && key != right:
		other := map[string]string{"label": "annotations", "annotation": "labels"}[place]
		return "it is a key of " + other, "make it one of the " + other
	case slices.Contains(writtenByUsers, key), meant == "":
		return "", ""
	}
	return fmt.Sprintf("did you mean %s?", meant), "correct the key"
}
