// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// fromEnvFrom says of which undeclared containers a variable may come from a ConfigMap or a Secret, where it has no effect.
// Where only one container is left to be a main one it is no sidecar.
func (x *explainer) fromEnvFrom() []Finding {
	undeclared := x.undeclared()
	if x.operator.Resolve.IgnoreEnv || len(undeclared) < 2 {
		return nil
	}
	var all []Finding
	for _, container := range undeclared {
		if !x.ended(container.Name) && mayDeclareByEnvFrom(container) {
			all = append(all, finding(SeverityNote, v1alpha1.ReasonUnreadableEnv, container.Name, fmt.Sprintf(
				"container %s takes variables from envFrom, which the operator cannot read: if %s or %s is among them, it has no effect",
				container.Name, v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage)))
		}
	}
	return all
}

// mayDeclareByEnvFrom reports whether a variable that makes the container a sidecar may be one of its envFrom.
func mayDeclareByEnvFrom(container *corev1.Container) bool {
	return slices.ContainsFunc([]string{v1alpha1.EnvTerminate, v1alpha1.EnvTerminateWithImage}, func(name string) bool {
		// A variable of env goes before those of envFrom.
		return !slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == name }) &&
			slices.ContainsFunc(container.EnvFrom, func(s corev1.EnvFromSource) bool { return strings.HasPrefix(name, s.Prefix) })
	})
}
