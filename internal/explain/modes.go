// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
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
		if slices.ContainsFunc(ways, func(w Way) bool { return w.first() == v1alpha1.ModeImage && w.scenario.node == plan.NodeReal }) {
			swapped++
		}
		if slices.ContainsFunc(ways, func(w Way) bool { return w.first() == v1alpha1.ModeImage }) {
			all = append(all, x.uncovered(container)...)
		}
	}
	return append(all, x.backoffLimitRisk(swapped)...)
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
		case !onReal(way) && (x.cluster.VirtualNodes == nil || !*x.cluster.VirtualNodes):
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
	if targetOf(x.view, name).Mode == v1alpha1.ModeAuto {
		return nil
	}
	everywhere := !slices.ContainsFunc(ways, func(w Way) bool { return w.scenario.node == plan.NodeReal && w.options[0].Usable() })
	for _, way := range ways {
		declared := way.options[0]
		if len(way.Modes) == 0 || declared.Usable() || !way.scenario.certain && (!everywhere || way.scenario.node == plan.NodeVirtual) {
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

// severityOf says how bad it is that another mode takes the place of the declared one. On virtual nodes that is to be
// expected.
func severityOf(reason v1alpha1.Reason) Severity {
	if reason == v1alpha1.ReasonVirtualNode {
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

// uncovered says that the quick-exit image may lack the sidecar's command. Only the paths of the shipped image are known.
func (x *explainer) uncovered(container *Container) []Finding {
	i := slices.IndexFunc(x.Pod.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container.Name })
	if x.tried(v1alpha1.ModeImage) {
		return nil
	}
	err := quickexit.CoversContainer(quickexit.DefaultPaths(), &x.Pod.Pod.Spec.Containers[i])
	if err == nil {
		return nil
	}
	return []Finding{finding(SeverityWarning, v1alpha1.ReasonCommandNotCovered, container.Name,
		fmt.Sprintf("container %s is to be restarted with image %s, which may not run its command: %v", container.Name, container.Settings.Image.Value, err))}
}

// backoffLimitRisk weighs the restarts that mode Image adds on real nodes against the Job's limit.
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
