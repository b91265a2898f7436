// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// envNames are the environment variables that the operator reads.
var envNames = []string{v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage, v1alpha1.EnvIgnoreExitCode}

// checkEnvNames finds variables that look like those of the operator and have no effect.
func (x *explainer) checkEnvNames() []Finding {
	if x.operator.Resolve.IgnoreEnv {
		return nil
	}
	var all []Finding
	for i := range x.Pod.Pod.Spec.Containers {
		container := &x.Pod.Pod.Spec.Containers[i]
		all = append(all, misspelledEnv(container)...)
		if x.view.Sidecar(container.Name) == nil && !x.declaredDryRun(container.Name) && ignoresExitCodeOnly(container) {
			all = append(all, finding(SeverityWarning, v1alpha1.ReasonIneffectiveEnv, container.Name, fmt.Sprintf(
				"container %s: environment variable %s alone has no effect, because nothing declares the container a sidecar",
				container.Name, v1alpha1.EnvIgnoreExitCode)))
		}
	}
	return all
}

// misspelledEnv finds at most one misspelling of each variable that the container does not have.
func misspelledEnv(container *corev1.Container) []Finding {
	var known []string
	for _, name := range envNames {
		if !hasEnv(container, name) {
			known = append(known, name)
		}
	}
	var all []Finding
	for i := range container.Env {
		name := container.Env[i].Name
		meant := meantEnv(name, known)
		if meant == "" {
			continue
		}
		f := finding(SeverityWarning, v1alpha1.ReasonIneffectiveEnv, container.Name,
			fmt.Sprintf("container %s: environment variable %s has no effect; did you mean %s?", container.Name, name, meant))
		f.Hint = "rename the variable, or name the container in a policy"
		all = append(all, f)
		known = slices.DeleteFunc(known, func(one string) bool { return one == meant })
	}
	return all
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
	return similarTo(upper, known)
}

// ignoresExitCodeOnly reports whether the container has a readable value of the variable for exit codes and none that declares it.
func ignoresExitCodeOnly(container *corev1.Container) bool {
	_, settings := resolve.ReadEnv(container)
	return settings.ExitCodes != "" && !hasEnv(container, v1alpha1.EnvTerminate) && !hasEnv(container, v1alpha1.EnvTerminateWithImage)
}

func hasEnv(container *corev1.Container, name string) bool {
	return slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == name })
}
