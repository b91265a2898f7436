// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/injectors"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// undeclaredInjections finds containers that a webhook adds to the pods of a template, that nothing declares, and that nobody ends.
func (x *explainer) undeclaredInjections() {
	if len(x.Injected) == 0 {
		return
	}
	after := *x
	after.Pod.Pod = x.Pod.Pod.DeepCopy()
	for _, sidecar := range x.Injected {
		after.Pod.Pod.Spec.Containers = append(after.Pod.Pod.Spec.Containers, corev1.Container{Name: sidecar.Container})
	}
	after.operator.Resolve.Injected = resolve.Injected(after.Pod.Pod, x.JobContainers)
	after.resolution = resolve.Resolve(after.Pod.Pod, x.Policies, after.operator.Resolve)
	after.view = after.resolution.Enforced
	for _, container := range after.undeclared() {
		i := slices.IndexFunc(x.Injected, func(s injectors.Sidecar) bool { return s.Container == container.Name })
		if i >= 0 && !endsByItself(x.Injected[i]) {
			x.addInjection(x.Injected[i])
		}
	}
}

// endsByItself reports whether the sidecar needs no declaration.
func endsByItself(sidecar injectors.Sidecar) bool {
	return sidecar.Injector.Ends != "" || sidecar.Native != nil && *sidecar.Native
}

func (x *explainer) addInjection(sidecar injectors.Sidecar) {
	injector := sidecar.Injector
	severity, native := SeverityProblem, ""
	switch {
	case sidecar.Native != nil:
		// The pod opts out of a native sidecar.
	case injector.Native.Since != "":
		severity = SeverityWarning
		native = fmt.Sprintf(" before %s %s. From %s on it is a native sidecar, if the nodes run Kubernetes %s or later",
			injector.Name, injector.Native.Since, injector.Native.Since, injector.Native.Kubernetes)
	case injector.Native.Setting != "":
		severity = SeverityWarning
		native = " without " + injector.Native.Setting
	}
	found := x.add(severity, v1alpha1.ReasonMayHang, sidecar.Container,
		"%s adds container %s (%s), which is not declared a sidecar: the pod may never finish%s", injector.Name, sidecar.Container, sidecar.Cause, native)
	ways := []string{"list it under sidecars in a SidecarTerminationPolicy"}
	if injector.Preset != "" {
		ways[0] += " (config/presets/" + injector.Preset + ")"
	}
	found.Hint = strings.Join(append(ways, sidecar.Ways()...), ", or ")
}

// isInjected reports whether a webhook adds the container to the pods of the template.
func (x *explainer) isInjected(name string) bool {
	return slices.ContainsFunc(x.Injected, func(s injectors.Sidecar) bool { return s.Container == name })
}
