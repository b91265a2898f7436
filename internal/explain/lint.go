// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// mayHang finds undeclared containers that may keep the pod from finishing. It guesses:
//
//   - a container that still runs after another one has terminated may be a sidecar (running pods only);
//   - a container with the name or image of a well-known sidecar is probably a sidecar;
//   - a container that an injector adds is a sidecar (templates only);
//   - one of several undeclared containers may be a sidecar.
//
// Containers under mainContainers of a policy and containers that are alone in their pod have no finding.
func (x *explainer) mayHang() []Finding {
	var undeclared []string
	all := x.undeclaredInjections()
	for _, container := range x.undeclared() {
		undeclared = append(undeclared, container.Name)
		if len(x.Pod.Pod.Spec.Containers) == 1 {
			continue
		}
		if known := knownSidecar(container); known != "" && !x.hasTerminated(container.Name) {
			all = append(all, finding(SeverityProblem, v1alpha1.ReasonMayHang, container.Name,
				fmt.Sprintf("container %s (%s) usually runs until it is stopped, and is not declared a sidecar: the pod may never finish", container.Name, known)))
		}
	}
	switch {
	case len(all) > 0 || len(undeclared) < 2:
		return all
	case x.anyTerminated(undeclared):
		return x.leftRunning(undeclared)
	}
	several := finding(SeverityWarning, v1alpha1.ReasonMayHang, "", fmt.Sprintf(
		"%s count as main containers: the pod hangs unless each of them exits by itself", strings.Join(undeclared, ", ")))
	several.Hint = hintForSeveral
	return []Finding{several}
}

// undeclared lists the regular containers without a declaration, except those that end without one.
func (x *explainer) undeclared() []*corev1.Container {
	var undeclared []*corev1.Container
	for i := range x.Pod.Pod.Spec.Containers {
		container := &x.Pod.Pod.Spec.Containers[i]
		if x.view.Sidecar(container.Name) == nil && x.declaredMain(container.Name) == "" && !x.declaredDryRun(container.Name) &&
			!slices.Contains(x.EndedByOthers, container.Name) {
			undeclared = append(undeclared, container)
		}
	}
	return undeclared
}

// leftRunning finds containers that still run after others have terminated. If the pod has declared sidecars, such a container is
// more likely to be at work.
func (x *explainer) leftRunning(undeclared []string) []Finding {
	severity := SeverityProblem
	if len(x.view.Sidecars) > 0 {
		severity = SeverityWarning
	}
	var all []Finding
	for _, name := range undeclared {
		if !x.hasTerminated(name) {
			all = append(all, finding(severity, v1alpha1.ReasonMayHang, name,
				fmt.Sprintf("container %s is still running after others have terminated, and is not declared a sidecar: the pod may never finish", name)))
		}
	}
	return all
}

func (x *explainer) anyTerminated(names []string) bool {
	for _, name := range names {
		if x.hasTerminated(name) {
			return true
		}
	}
	return false
}

// hasTerminated reports whether the container has terminated and will not restart.
func (x *explainer) hasTerminated(name string) bool {
	return !x.Template && x.snapshot().MainDone(name)
}

// declaredDryRun reports whether a DryRun policy declares the container a sidecar.
func (x *explainer) declaredDryRun(name string) bool {
	return x.resolution.DryRun != nil && x.resolution.DryRun.Sidecar(name) != nil
}

// lintReasons are the reasons of declarations that are missing, ineffective, or have unintended effects.
var lintReasons = []v1alpha1.Reason{
	v1alpha1.ReasonMayHang, v1alpha1.ReasonNoMainContainer, v1alpha1.ReasonInvalidEnv,
	v1alpha1.ReasonInvalidMainContainers, v1alpha1.ReasonIneffectiveEnv,
	v1alpha1.ReasonRestartPolicyAlways, v1alpha1.ReasonCommandNotCovered, v1alpha1.ReasonInvalidSelector,
	v1alpha1.ReasonSidecarMatchesFailurePolicy, v1alpha1.ReasonDeletedWhileEnding, v1alpha1.ReasonForeignFinalizer,
	v1alpha1.ReasonInvalidManifest, v1alpha1.ReasonNotChecked, v1alpha1.ReasonNamespaceNotWatched,
}

// InvalidManifest is the finding on a mistake in a manifest.
func InvalidManifest(message string) Finding {
	return finding(SeverityProblem, v1alpha1.ReasonInvalidManifest, "", message)
}

// NotChecked is the finding on something that lint could not check.
func NotChecked(message string) Finding {
	return finding(SeverityWarning, v1alpha1.ReasonNotChecked, "", message)
}

// LeftAlone is the finding on something that lint need not check.
func LeftAlone(message string) Finding {
	return Finding{Severity: SeverityNote, Reason: v1alpha1.ReasonNotChecked, Message: message}
}

// Lint returns the findings on missing and ineffective declarations.
func Lint(findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return !slices.Contains(lintReasons, f.Reason) })
}

// IsJobType reports whether the restartPolicy lets the pod finish.
func IsJobType(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever || pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}
