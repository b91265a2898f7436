// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/sidecars"
)

// mayHang finds undeclared containers that may keep the pod from finishing. It guesses:
//
//   - a container that the kubelet restarts whenever it exits was meant to be a native sidecar;
//   - a container that still runs after another one has terminated may be a sidecar (running pods only);
//   - a container with the name or image of a well-known sidecar is probably a sidecar, if another one may be the main container;
//   - a container that an injector adds is a sidecar (templates only);
//   - one of several other undeclared containers may be a sidecar.
//
// Containers under mainContainers of a policy and containers that are alone in their pod have no finding.
func (x *explainer) mayHang() {
	x.undeclaredInjections()
	restarting := x.alwaysRestarting()
	others := filter(x.undeclared(), func(name string) bool { return !slices.Contains(restarting, name) })
	if slices.ContainsFunc(x.view.Mains, func(name string) bool { return x.knownBy(name) == "" }) {
		others = filter(others, func(name string) bool {
			known := x.knownBy(name)
			if known != "" && !x.hasTerminated(name) {
				x.add(SeverityProblem, v1alpha1.ReasonMayHang, name,
					"container %s (%s) usually runs until it is stopped, and is not declared a sidecar: the pod may never finish", name, known)
			}
			return known == ""
		})
	}
	switch {
	case len(others) < 2:
	case slices.ContainsFunc(others, x.hasTerminated):
		x.leftRunning(others)
	default:
		x.add(SeverityWarning, v1alpha1.ReasonMayHang, "",
			"%s count as main containers: the pod hangs unless each of them exits by itself", strings.Join(others, ", "))
	}
}

// alwaysRestarting finds main containers that the kubelet restarts whenever they exit, next to others that it does not, and returns
// their names. A policy may declare one a main container, so it is not always a sidecar.
func (x *explainer) alwaysRestarting() []string {
	restarts := x.snapshot().AlwaysRestarts
	names := filter(x.view.Mains, func(name string) bool { return restarts(name) && !x.declaredDryRun(name) })
	if len(names) == len(x.view.Mains) {
		return nil
	}
	for _, name := range names {
		f := x.add(SeverityProblem, v1alpha1.ReasonMayHang, name,
			"container %s has restartPolicy Always, but is a regular container: Kubernetes 1.35 and later restart it whenever it exits, and the pod never finishes", name)
		native := "move it to initContainers, where restartPolicy: Always makes it a native sidecar"
		if x.declaredMain(name) {
			f.Container, f.Hint, f.Commands, f.finish = "", native+", or remove its restartPolicy", nil, ""
			continue
		}
		f.Hint = native + orElse + f.Hint
	}
	return names
}

// knownBy returns the name or the image by which the regular container is a known sidecar, or nothing.
func (x *explainer) knownBy(name string) string {
	i := slices.IndexFunc(x.Pod.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return "" // an injector will add it
	}
	return sidecars.KnownBy(&x.Pod.Pod.Spec.Containers[i])
}

// undeclared lists the regular containers without a declaration, except those that end without one.
func (x *explainer) undeclared() []string {
	return filter(RegularContainers(x.Pod.Pod), func(name string) bool {
		return x.view.Sidecar(name) == nil && !x.declaredMain(name) && !x.declaredDryRun(name) &&
			!slices.Contains(x.EndedByOthers, name) && !sidecars.EndedByOthers(name)
	})
}

// leftRunning finds containers that still run after others have terminated. If the pod has declared sidecars, such a container is
// more likely to be at work.
func (x *explainer) leftRunning(undeclared []string) {
	severity := SeverityProblem
	if len(x.view.Sidecars) > 0 {
		severity = SeverityWarning
	}
	for _, name := range undeclared {
		if !x.hasTerminated(name) {
			x.add(severity, v1alpha1.ReasonMayHang, name,
				"container %s is still running after others have terminated, and is not declared a sidecar: the pod may never finish", name)
		}
	}
}

// hasTerminated reports whether the container has terminated and will not restart.
func (x *explainer) hasTerminated(name string) bool {
	return !x.Template && x.snapshot().MainDone(name)
}

// declaredMain reports whether a policy, be it in DryRun, declares the container a main container.
func (x *explainer) declaredMain(name string) bool {
	return slices.ContainsFunc(x.Policies, func(p resolve.Policy) bool { return p.Role(x.Pod.Pod, name, x.operator.Resolve) == resolve.RoleMain })
}

// declaredDryRun reports whether a DryRun policy declares the container a sidecar.
func (x *explainer) declaredDryRun(name string) bool {
	return x.resolution.DryRun != nil && x.resolution.DryRun.Sidecar(name) != nil
}

// undeclaredInjections finds containers that a webhook adds to the pods of a template, that nothing declares, and that nothing ends.
func (x *explainer) undeclaredInjections() {
	if len(x.Injected) == 0 {
		return
	}
	after := *x
	after.Pod.Pod = x.Pod.Pod.DeepCopy()
	for _, injection := range x.Injected {
		after.Pod.Pod.Spec.Containers = append(after.Pod.Pod.Spec.Containers, corev1.Container{Name: injection.Container})
	}
	after.operator.Resolve = after.Options(after.operator.Resolve)
	after.resolution = after.Resolve(after.operator.Resolve)
	after.view = after.resolution.Enforced
	undeclared := after.undeclared()
	for _, injection := range x.Injected {
		if slices.Contains(undeclared, injection.Container) && (injection.IsNative == nil || !*injection.IsNative) {
			x.addInjection(injection)
		}
	}
}

func (x *explainer) addInjection(injection sidecars.Injection) {
	severity, native := SeverityProblem, ""
	switch since := injection.Native.Since; {
	case injection.IsNative != nil:
		// The pod opts out of a native sidecar.
	case since != "":
		severity = SeverityWarning
		native = fmt.Sprintf(" before %s %s. From %s on it is a native sidecar, if the nodes run Kubernetes %s or later",
			injection.Injector, since, since, injection.Native.Kubernetes)
	case injection.Native.Setting != "":
		severity = SeverityWarning
		native = " without " + injection.Native.Setting
	}
	found := x.add(severity, v1alpha1.ReasonMayHang, injection.Container,
		"%s adds container %s (%s), which is not declared a sidecar: the pod may never finish%s", injection.Injector, injection.Container, injection.Cause, native)
	found.Hint = strings.Join(append([]string{"list it under sidecars in a SidecarTerminationPolicy"}, injection.Ways()...), ", or ")
}

// InvalidManifest returns the findings on mistakes in a manifest.
func InvalidManifest(mistakes []string) []Finding {
	var all []Finding
	for _, mistake := range mistakes {
		all = append(all, finding(SeverityProblem, v1alpha1.ReasonInvalidManifest, "", mistake))
	}
	return all
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
	return filter(findings, func(f Finding) bool { return f.lint })
}
