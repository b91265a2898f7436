// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// fromWays says where a sidecar cannot be ended, or not as declared.
func (x *explainer) fromWays(report Report) []Finding {
	var all []Finding
	swapped := 0
	for i := range report.Containers {
		container := &report.Containers[i]
		if container.Settings == nil {
			continue
		}
		ways := container.Settings.Ways
		all = append(all, x.withoutMode(container.Name, ways)...)
		all = append(all, x.substituted(container.Name, ways)...)
		if slices.ContainsFunc(ways, func(w Way) bool { return w.first() == v1alpha1.ModeImage && w.scenario.bearsOnRestarts() }) {
			swapped++
		}
		if slices.ContainsFunc(ways, func(w Way) bool { return w.first() == v1alpha1.ModeImage }) {
			all = append(all, x.imagePullRisk(container)...)
		}
	}
	return append(all, x.backoffLimitRisk(swapped)...)
}

// bearsOnRestarts reports whether a swapped image there is a restart that may be avoided: on virtual nodes there is no
// other way.
func (s scenario) bearsOnRestarts() bool {
	return s.node == plan.NodeReal || s.node == plan.NodeDaemonless && s.certain
}

// first returns the mode that is tried first, or nothing.
func (w Way) first() v1alpha1.Mode {
	if len(w.Modes) == 0 {
		return ""
	}
	return w.Modes[0]
}

// withoutMode says where no mode can end the container. It is a problem if the pod is bound to come there, or cannot be
// served on any real node, and a warning if it may come there.
func (x *explainer) withoutMode(name string, ways []Way) []Finding {
	onReal := func(w Way) bool { return w.scenario.node == plan.NodeReal }
	served := slices.ContainsFunc(ways, func(w Way) bool { return onReal(w) && len(w.Modes) > 0 })
	var all []Finding
	for _, way := range ways {
		if len(way.Modes) > 0 {
			continue
		}
		severity := SeverityWarning
		switch {
		case way.scenario.certain, onReal(way) && !served:
			severity = SeverityProblem
		case !onReal(way) && !way.scenario.present:
			continue
		}
		f := finding(severity, way.Reason, name, way.Message)
		if !way.scenario.certain {
			f.Message = fmt.Sprintf("on a %s: %s", way.Where, way.Message)
		}
		if !slices.ContainsFunc(all, func(known Finding) bool { return known.Reason == f.Reason && known.Severity == f.Severity }) {
			all = append(all, f)
		}
	}
	return all
}

// substituted says where another mode than the declared one will be used: where the pod is bound to come to, or on every
// real node.
func (x *explainer) substituted(name string, ways []Way) []Finding {
	if x.view.Target(name).Mode == v1alpha1.ModeAuto {
		return nil
	}
	everywhere := !slices.ContainsFunc(ways, func(w Way) bool { return w.scenario.node == plan.NodeReal && w.options[0].Usable() })
	for _, way := range ways {
		declared := way.options[0]
		if len(way.Modes) == 0 || declared.Usable() || !way.scenario.certain && (!everywhere || way.scenario.node != plan.NodeReal) {
			continue
		}
		substitute := "another mode"
		if way.scenario.certain {
			substitute = string(way.first())
		}
		return []Finding{finding(severityOf(declared.Reason), declared.Reason, name,
			fmt.Sprintf("mode %s cannot be used for container %s, and %s takes its place: %s", declared.Mode, name, substitute, declared.Message))}
	}
	return nil
}

// severityOf says how bad it is that another mode takes the place of the declared one. On nodes of special kinds that is
// to be expected.
func severityOf(reason v1alpha1.Reason) Severity {
	if reason == v1alpha1.ReasonVirtualNode || reason == v1alpha1.ReasonNoKruiseDaemon {
		return SeverityNote
	}
	return SeverityWarning
}

// imagesSwapped counts the containers whose images the actions swap.
func imagesSwapped(actions []plan.Action) int {
	count := 0
	for _, action := range actions {
		count += len(action.Images)
	}
	return count
}

// imagePullRisk says where an image that cannot be pulled fails the pod. A kubelet stops the old container before it pulls
// the new image, and under Never it takes a container that it could not start again for ended: the exit code of the stop
// then counts, whatever exitCodes says.
func (x *explainer) imagePullRisk(container *Container) []Finding {
	withKubelet := func(w Way) bool { return w.first() == v1alpha1.ModeImage && w.scenario.node != plan.NodeVirtual }
	if x.Pod.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever || container.Settings.ExitCodes.Value != string(v1alpha1.ExitCodesIgnore) ||
		!slices.ContainsFunc(container.Settings.Ways, withKubelet) {
		return nil
	}
	return []Finding{finding(SeverityWarning, v1alpha1.ReasonImagePullRisk, container.Name, fmt.Sprintf(
		"under restartPolicy Never the pod fails if the node cannot pull image %s and container %s does not exit with 0 when it is stopped",
		container.Settings.Image.Value, container.Name))}
}

// backoffLimitRisk weighs the restarts that mode Image adds on nodes with a kubelet against the Job's limit.
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
			"mode Image restarts each sidecar once, and under restartPolicy OnFailure a Job counts that towards its backoffLimit")}
	case restarts >= int(*limit):
		return []Finding{finding(SeverityProblem, v1alpha1.ReasonBackoffLimitRisk, "",
			fmt.Sprintf("mode Image brings the restarts to %d, and under restartPolicy OnFailure the Job fails when they reach its backoffLimit, %d", restarts, *limit))}
	default:
		return []Finding{finding(SeverityWarning, v1alpha1.ReasonBackoffLimitRisk, "",
			fmt.Sprintf("mode Image adds %d to the restarts, and under restartPolicy OnFailure the Job fails when they reach its backoffLimit, %d", swapped, *limit))}
	}
}

// tried reports whether the mode was used on the pod.
func (x *explainer) tried(mode v1alpha1.Mode) bool {
	return slices.ContainsFunc(x.Attempts, func(a plan.Attempt) bool { return a.Mode == mode })
}
