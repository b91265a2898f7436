// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// mayHang looks for containers that nothing declares and that may keep the pod from finishing. It can only guess:
//
//   - a main container that still runs while another one has ended for good may be a sidecar (live pods only);
//   - a main container whose name or image is that of a well-known sidecar beside another one is probably a sidecar;
//   - of several main containers one may be a sidecar.
//
// A policy whose mainContainers names a container settles the matter for it, and one container alone cannot hang.
func (x *explainer) mayHang() []Finding {
	var undeclared []string
	var all []Finding
	for _, container := range x.undeclared() {
		undeclared = append(undeclared, container.Name)
		if len(x.Pod.Pod.Spec.Containers) == 1 {
			continue
		}
		if known := knownSidecar(container); known != "" && !x.ended(container.Name) {
			all = append(all, finding(SeverityProblem, v1alpha1.ReasonMayHang, container.Name,
				fmt.Sprintf("container %s (%s) usually runs until it is stopped, and nothing declares it a sidecar: the pod may never finish", container.Name, known)))
		}
	}
	switch {
	case len(all) > 0 || len(undeclared) < 2:
		return all
	case x.anyEnded(undeclared):
		return x.leftRunning(undeclared)
	}
	several := finding(SeverityWarning, v1alpha1.ReasonMayHang, "", fmt.Sprintf(
		"%s all count as main containers: the pod may hang unless each of them ends by itself", strings.Join(undeclared, ", ")))
	several.Hint = hintForSeveral
	return []Finding{several}
}

// undeclared lists the containers that nothing declares a sidecar or one to wait for.
func (x *explainer) undeclared() []*corev1.Container {
	var undeclared []*corev1.Container
	for i := range x.Pod.Pod.Spec.Containers {
		container := &x.Pod.Pod.Spec.Containers[i]
		if x.view.Target(container.Name) == nil && x.declaredMain(container.Name) == "" && !x.declaredDryRun(container.Name) {
			undeclared = append(undeclared, container)
		}
	}
	return undeclared
}

// leftRunning names the containers that still run although others have ended for good. Where sidecars are declared, that
// is more likely to be work than an oversight.
func (x *explainer) leftRunning(undeclared []string) []Finding {
	severity := SeverityProblem
	if len(x.view.Targets) > 0 {
		severity = SeverityWarning
	}
	var all []Finding
	for _, name := range undeclared {
		if !x.ended(name) {
			all = append(all, finding(severity, v1alpha1.ReasonMayHang, name,
				fmt.Sprintf("container %s runs on although others have ended, and nothing declares it a sidecar: the pod may never finish", name)))
		}
	}
	return all
}

func (x *explainer) anyEnded(names []string) bool {
	for _, name := range names {
		if x.ended(name) {
			return true
		}
	}
	return false
}

// ended reports whether the container has ended for good.
func (x *explainer) ended(name string) bool {
	return !x.Template && x.snapshot().MainDone(name)
}

// declaredDryRun reports whether a DryRun policy makes the container a sidecar.
func (x *explainer) declaredDryRun(name string) bool {
	return x.resolution.DryRun != nil && x.resolution.DryRun.Target(name) != nil
}

// lintReasons are those of declarations that are missing, come to nothing, or hit what they do not mean.
var lintReasons = []v1alpha1.Reason{
	v1alpha1.ReasonMayHang, v1alpha1.ReasonNoMainContainer, v1alpha1.ReasonUnreadableEnv, v1alpha1.ReasonInvalidEnv,
	v1alpha1.ReasonRestartPolicyAlways, v1alpha1.ReasonCommandNotCovered, v1alpha1.ReasonInvalidSelector,
	v1alpha1.ReasonSidecarMatchesFailurePolicy, v1alpha1.ReasonDeletedWhileEnding,
}

// Lint returns those of a report's findings that are about declarations: missing ones, and ones that come to nothing.
func Lint(findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return !slices.Contains(lintReasons, f.Reason) })
}

// IsJobType reports whether pods of the template are ever acted on.
func IsJobType(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}
