// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// checkEnv finds variables that look like those of the operator and have no effect, and undeclared containers whose variables may come
// from a ConfigMap or a Secret, where they have none. A single undeclared container is the main container, so its variables do not matter.
func (x *explainer) checkEnv() {
	if x.operator.Resolve.IgnoreEnv {
		return
	}
	undeclared := x.undeclared()
	for i := range x.Pod.Pod.Spec.Containers {
		container := &x.Pod.Pod.Spec.Containers[i]
		name := container.Name
		if len(undeclared) > 1 && slices.Contains(undeclared, name) && !x.hasTerminated(name) && mayDeclareByEnvFrom(container) {
			x.add(SeverityNote, v1alpha1.ReasonInvalidEnv, name,
				"container %s has envFrom, which the operator cannot read: %s and %s have no effect there",
				name, v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage)
		}
		x.checkSpelling(container)
		if x.view.Sidecar(name) == nil && !x.declaredDryRun(name) && ignoresExitCodeOnly(container) {
			x.add(SeverityWarning, v1alpha1.ReasonIneffectiveEnv, name,
				"container %s: environment variable %s alone has no effect, because nothing declares the container a sidecar",
				name, v1alpha1.EnvIgnoreExitCode)
		}
	}
}

// mayDeclareByEnvFrom reports whether a variable that declares the container a sidecar may come from its envFrom.
func mayDeclareByEnvFrom(container *corev1.Container) bool {
	return slices.ContainsFunc([]string{v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage}, func(name string) bool {
		// Variables in env override those in envFrom.
		return !hasEnv(container, name) &&
			slices.ContainsFunc(container.EnvFrom, func(s corev1.EnvFromSource) bool { return strings.HasPrefix(name, s.Prefix) })
	})
}

// checkSpelling finds at most one misspelling of each variable that the container does not have.
func (x *explainer) checkSpelling(container *corev1.Container) {
	known := slices.DeleteFunc(slices.Clone(resolve.EnvNames), func(name string) bool { return hasEnv(container, name) })
	for i := range container.Env {
		name := container.Env[i].Name
		meant := meantEnv(name, known)
		if meant == "" {
			continue
		}
		x.add(SeverityWarning, v1alpha1.ReasonIneffectiveEnv, container.Name,
			"container %s: environment variable %s has no effect; did you mean %s?", container.Name, name, meant).
			Hint = "rename the variable, or name the container in a policy"
		known = slices.DeleteFunc(known, func(one string) bool { return one == meant })
	}
}

// meantEnv returns the known variable that a name is a likely misspelling of, or nothing. The first word may be missing, as in
// SIDECAR_IGNORE_EXIT_CODE, and letters may be small.
func meantEnv(name string, known []string) string {
	upper := strings.ToUpper(name)
	if strings.Contains(upper, "SIDECAR_") {
		if i := slices.IndexFunc(known, func(one string) bool { return one == upper || strings.HasSuffix(one, "_"+upper) }); i >= 0 {
			return known[i]
		}
	}
	return Similar(upper, known)
}

// ignoresExitCodeOnly reports whether the container has a readable value of the variable for exit codes and none that declares it.
func ignoresExitCodeOnly(container *corev1.Container) bool {
	_, settings := resolve.ReadEnv(container)
	return settings.ExitCodePolicy != "" && !hasEnv(container, v1alpha1.EnvTerminate) && !hasEnv(container, v1alpha1.EnvTerminateWithImage)
}

func hasEnv(container *corev1.Container, name string) bool {
	return slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == name })
}
