// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// checkModes finds node types where no mode is usable, or not the declared one, and the risks of mode Image.
func (x *explainer) checkModes(report Report) []Finding {
	var all []Finding
	swapped := 0
	for i := range report.Containers {
		container := &report.Containers[i]
		if container.Settings == nil {
			continue
		}
		methods := container.Settings.Methods
		all = append(all, x.noUsableMode(container.Name, methods)...)
		all = append(all, x.substituted(container.Name, methods)...)
		if slices.ContainsFunc(methods, func(m Method) bool { return m.first() == v1alpha1.ModeImage && m.scenario.canAvoidRestart() }) {
			swapped++
		}
		all = append(all, x.imagePullRisk(container)...)
	}
	return append(all, x.backoffLimitRisk(swapped)...)
}

// canAvoidRestart reports whether a mode other than Image is possible. Virtual nodes support no other mode.
func (s scenario) canAvoidRestart() bool {
	return s.node == plan.NodeReal || s.node == plan.NodeDaemonless && s.certain
}

// noUsableMode finds node types without a usable mode. This is a problem if the pod can only run there, or if no real node has
// a usable mode. Otherwise it is a warning.
func (x *explainer) noUsableMode(name string, methods []Method) []Finding {
	onReal := func(m Method) bool { return m.scenario.node == plan.NodeReal }
	usable := slices.ContainsFunc(methods, func(m Method) bool { return onReal(m) && len(m.Modes) > 0 })
	var all []Finding
	for _, method := range methods {
		if len(method.Modes) > 0 {
			continue
		}
		severity := SeverityWarning
		switch {
		case method.scenario.certain, onReal(method) && !usable:
			severity = SeverityProblem
		case !onReal(method) && !method.scenario.present:
			continue
		}
		f := finding(severity, method.Reason, name, method.Message)
		if !method.scenario.certain {
			f.Message = fmt.Sprintf("on a %s: %s", method.NodeType, method.Message)
		}
		if !slices.ContainsFunc(all, func(known Finding) bool { return known.Reason == f.Reason && known.Severity == f.Severity }) {
			all = append(all, f)
		}
	}
	return all
}

// substituted finds sidecars whose declared mode is not usable: on the only node type of the pod, or on every real node.
func (x *explainer) substituted(name string, methods []Method) []Finding {
	if x.view.Sidecar(name).Mode == v1alpha1.ModeAuto {
		return nil
	}
	everywhere := !slices.ContainsFunc(methods, func(m Method) bool { return m.scenario.node == plan.NodeReal && m.options[0].Usable() })
	for _, method := range methods {
		declared := method.options[0]
		if len(method.Modes) == 0 || declared.Usable() || !method.scenario.certain && (!everywhere || method.scenario.node != plan.NodeReal) {
			continue
		}
		substitute := "another mode"
		if method.scenario.certain {
			substitute = string(method.first())
		}
		return []Finding{finding(severityOf(declared.Reason), declared.Reason, name,
			fmt.Sprintf("mode %s is not usable for container %s, so %s is used: %s", declared.Mode, name, substitute, declared.Message))}
	}
	return nil
}

// severityOf returns the severity of using another mode than the declared one. On virtual and daemonless nodes this is
// expected.
func severityOf(reason v1alpha1.Reason) Severity {
	if reason == v1alpha1.ReasonVirtualNode || reason == v1alpha1.ReasonNoKruiseDaemon {
		return SeverityNote
	}
	return SeverityWarning
}

// imagesSwapped counts the images that the actions swap.
func imagesSwapped(actions []plan.Action) int {
	count := 0
	for _, action := range actions {
		count += len(action.Images)
	}
	return count
}

// imagePullRisk finds sidecars whose pod fails if their quick-exit image cannot be pulled. A kubelet stops the old container
// before it pulls the new image. Under restartPolicy Never a container that cannot start again keeps the exit code of the
// stop, and exitCodes has no effect.
func (x *explainer) imagePullRisk(container *Container) []Finding {
	i := slices.IndexFunc(container.Settings.Methods, func(m Method) bool {
		return m.first() == v1alpha1.ModeImage && m.scenario.node != plan.NodeVirtual
	})
	if i < 0 || x.Pod.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever || container.Settings.ExitCodes.Value != v1alpha1.ExitCodesIgnore {
		return nil
	}
	f := finding(SeverityWarning, v1alpha1.ReasonImagePullRisk, container.Name, fmt.Sprintf(
		"under restartPolicy Never the pod fails if the node cannot pull image %s and container %s exits non-zero when it is stopped",
		container.Settings.Image.Value, container.Name))
	f.Hint = x.imagePullHint(container.Name, container.Settings.Methods[i].scenario)
	return []Finding{f}
}

// imagePullHint names a mode setting that avoids mode Image in the scenario, if there is one.
func (x *explainer) imagePullHint(name string, s scenario) string {
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeAuto, v1alpha1.ModePodPhase} {
		sidecar := *x.view.Sidecar(name)
		if sidecar.Mode == mode {
			continue
		}
		sidecar.Mode, sidecar.Fallback = mode, v1alpha1.FallbackEnabled
		switch used := x.method(s, sidecar).first(); used {
		case v1alpha1.ModeImage, "":
		case mode:
			return fmt.Sprintf("set mode to %s, or %s", mode, hintToPrePull)
		default:
			return fmt.Sprintf("set mode to %s, which uses %s there, or %s", mode, used, hintToPrePull)
		}
	}
	return hintToPrePull
}

// backoffLimitRisk compares the restarts that mode Image adds with the Job's backoffLimit.
func (x *explainer) backoffLimitRisk(swapped int) []Finding {
	if swapped == 0 || x.Pod.Pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure || x.tried(v1alpha1.ModeImage) {
		return nil
	}
	restarts := swapped
	for _, status := range x.Pod.Pod.Status.ContainerStatuses {
		restarts += int(status.RestartCount)
	}
	switch limit := x.BackoffLimit; {
	case limit == nil:
		return []Finding{finding(SeverityNote, v1alpha1.ReasonBackoffLimitRisk, "",
			"mode Image restarts each sidecar once; under restartPolicy OnFailure this counts towards the backoffLimit of a Job")}
	case restarts >= int(*limit):
		return []Finding{finding(SeverityProblem, v1alpha1.ReasonBackoffLimitRisk, "",
			fmt.Sprintf("mode Image raises the restarts to %d; under restartPolicy OnFailure the Job fails when they reach its backoffLimit, %d", restarts, *limit))}
	default:
		return []Finding{finding(SeverityWarning, v1alpha1.ReasonBackoffLimitRisk, "",
			fmt.Sprintf("mode Image adds %d to the restarts; under restartPolicy OnFailure the Job fails when they reach its backoffLimit, %d", swapped, *limit))}
	}
}

// tried reports whether the pod has an attempt by the mode.
func (x *explainer) tried(mode v1alpha1.Mode) bool {
	return slices.ContainsFunc(x.Attempts, func(a plan.Attempt) bool { return a.Mode == mode })
}
