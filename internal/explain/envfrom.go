// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// checkEnvFrom finds undeclared containers whose variables may come from a ConfigMap or a Secret, where they have no effect.
// A single undeclared container is the main container, so its variables do not matter.
func (x *explainer) checkEnvFrom() []Finding {
	undeclared := x.undeclared()
	if x.operator.Resolve.IgnoreEnv || len(undeclared) < 2 {
		return nil
	}
	var all []Finding
	for _, container := range undeclared {
		if !x.hasTerminated(container.Name) && mayDeclareByEnvFrom(container) {
			all = append(all, finding(SeverityNote, v1alpha1.ReasonInvalidEnv, container.Name, fmt.Sprintf(
				"container %s has envFrom, which the operator cannot read: %s and %s have no effect there",
				container.Name, v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage)))
		}
	}
	return all
}

// mayDeclareByEnvFrom reports whether a variable that declares the container a sidecar may come from its envFrom.
func mayDeclareByEnvFrom(container *corev1.Container) bool {
	return slices.ContainsFunc([]string{v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage}, func(name string) bool {
		// Variables in env override those in envFrom.
		return !hasEnv(container, name) &&
			slices.ContainsFunc(container.EnvFrom, func(s corev1.EnvFromSource) bool { return strings.HasPrefix(name, s.Prefix) })
	})
}
