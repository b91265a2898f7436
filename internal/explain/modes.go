// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// nodeNames are the names of the kinds of node that are not real.
var nodeNames = map[plan.NodeKind]string{
	plan.NodeNotRead: "any node", plan.NodeDaemonless: "node without OpenKruise's daemon", plan.NodeVirtual: "virtual node",
}

// nodes lists the node types that the pod runs on or may run on, without their modes.
func (x *explainer) nodes() []NodeModes {
	kind, crr := cmp.Or(x.operator.NodeKindRules.All, x.Node), x.cluster.Kruise != nil && *x.cluster.Kruise
	if name := nodeNames[kind]; name != "" {
		return []NodeModes{{NodeType: name, NodeKind: kind, crr: crr, certain: true}}
	}
	all := []NodeModes{{NodeType: "real node", NodeKind: plan.NodeReal, crr: crr, certain: true}}
	if x.cluster.Kruise == nil {
		all = []NodeModes{
			{NodeType: "real node, OpenKruise", NodeKind: plan.NodeReal, crr: true},
			{NodeType: "real node, no OpenKruise", NodeKind: plan.NodeReal},
		}
	}
	if kind == plan.NodeReal {
		return all
	}
	// A missing daemon matters only if OpenKruise is usable.
	if known := x.cluster.DaemonlessNodes; crr && (known == nil || *known) {
		all = append(all, NodeModes{NodeType: nodeNames[plan.NodeDaemonless], NodeKind: plan.NodeDaemonless, crr: true, present: known != nil})
	}
	if known := x.cluster.VirtualNodes; known == nil || *known {
		all = append(all, NodeModes{NodeType: nodeNames[plan.NodeVirtual], NodeKind: plan.NodeVirtual, present: known != nil})
	}
	return all
}

// nodeModes asks the plan for the modes of a sidecar on every node type. A pod that the operator ignores has one entry
// without modes.
func (x *explainer) nodeModes(sidecar resolve.Sidecar) []NodeModes {
	switch {
	case !plan.IsJobType(x.Pod.Pod):
		return []NodeModes{{NodeType: nodeNames[plan.NodeNotRead], Modes: []v1alpha1.Mode{}, Reason: v1alpha1.ReasonRestartPolicyAlways, Message: x.next.Message}}
	case len(x.view.Mains) == 0:
		return []NodeModes{{NodeType: nodeNames[plan.NodeNotRead], Modes: []v1alpha1.Mode{}, Reason: v1alpha1.ReasonNoMainContainer, Message: x.next.Message}}
	}
	var nodes []NodeModes
	for _, on := range x.nodes() {
		nodes = append(nodes, x.modesOn(on, sidecar))
	}
	x.beginWithAttempt(nodes, sidecar.Container)
	return nodes
}

// beginWithAttempt lets the modes of the node types begin with the attempt that is next, in progress, or the last one, and leaves out those
// that have failed. A finished pod has no further ones.
func (x *explainer) beginWithAttempt(nodes []NodeModes, sidecar string) {
	attempts := filter(plan.AllAttempts(x.snapshot()), func(a plan.Attempt) bool {
		_, covered := a.RestartCounts[sidecar]
		return covered || a.Mode == v1alpha1.ModePodPhase
	})
	isOver := x.isFinished()
	if x.decision.MainsDone.IsZero() && !isOver || len(attempts) == 0 {
		return
	}
	failures := filter(x.decision.Failures, func(f plan.Failure) bool { return f.Container == sidecar })
	current, number := plan.Tried(filter(attempts, func(a plan.Attempt) bool {
		return !slices.ContainsFunc(failures, func(f plan.Failure) bool { return f.Mode == a.Mode && f.Attempt == a.Number })
	}))
	for _, write := range x.decision.Ends() {
		if slices.Contains(write.Containers, sidecar) {
			current, number = write.Mode, write.Attempt
		}
	}
	for i := range nodes {
		on := &nodes[i]
		on.Modes = filter(on.Modes, func(mode v1alpha1.Mode) bool {
			return mode != current && !isOver && !slices.ContainsFunc(failures, func(f plan.Failure) bool { return f.Mode == mode })
		})
		if current != "" {
			on.Attempt, on.Modes = number, append([]v1alpha1.Mode{current}, on.Modes...)
		}
		if len(on.Modes) > 0 {
			on.Reason, on.Message = "", ""
		} else if len(failures) > 0 {
			on.Reason, on.Message = v1alpha1.ReasonStuck, failures[len(failures)-1].Message
		}
	}
}

// modesOn adds the modes of the sidecar to the node type.
func (x *explainer) modesOn(on NodeModes, sidecar resolve.Sidecar) NodeModes {
	on.options, on.Modes = plan.ModeOptions(x.snapshotOn(on, 0), sidecar), []v1alpha1.Mode{}
	if on.NodeKind == plan.NodeReal {
		on.OpenKruise = &on.crr
	}
	for _, option := range on.options {
		if option.Usable() {
			on.Modes = append(on.Modes, option.Mode)
		}
	}
	if len(on.Modes) == 0 {
		on.Reason, on.Message = plan.WhyUnusable(sidecar, on.options)
	}
	return on
}

// startsWith reports whether the mode is used first.
func (m NodeModes) startsWith(mode v1alpha1.Mode) bool { return len(m.Modes) > 0 && m.Modes[0] == mode }

// snapshotOn is the pod at the moment when its main containers are done. Until they are, the snapshot has main
// containers that exited with the exit code, and running sidecars.
func (x *explainer) snapshotOn(on NodeModes, exitCode int32) plan.Snapshot {
	snapshot := x.snapshot()
	snapshot.Node, snapshot.Capabilities.CRRServed = on.NodeKind, on.crr
	if x.Template || x.decision.MainsDone.IsZero() {
		snapshot.Pod, snapshot.AssumeMarked = whenMainsEnd(x.Pod.Pod, x.view, exitCode), true
	}
	if snapshot.Pod.Spec.NodeName == "" {
		// The pod belongs to the caller: name the node in a copy.
		placed := *snapshot.Pod
		placed.Spec.NodeName = "of the pod"
		snapshot.Pod = &placed
	}
	return snapshot
}

func whenMainsEnd(pod *corev1.Pod, view resolve.View, exitCode int32) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	add := func(name string, state corev1.ContainerState) {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, ContainerID: "expected://" + name, State: state})
	}
	for _, name := range view.Mains {
		add(name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, FinishedAt: metav1.NewTime(time.Unix(0, 0))}})
	}
	for _, sidecar := range view.Sidecars {
		add(sidecar.Container, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	}
	return pod
}

// checkModes finds node types where no mode is usable, or not the declared one, and the risks of mode Image.
func (x *explainer) checkModes(report Report) {
	swapped, stopped, others := 0, 0, 0
	for i := range report.Containers {
		container := &report.Containers[i]
		if container.Settings == nil {
			continue
		}
		nodes := container.Settings.Nodes
		x.noUsableMode(container.Name, nodes)
		x.substituted(container.Name, nodes)
		swaps := func(m NodeModes) bool {
			// A virtual node has no other mode.
			return m.startsWith(v1alpha1.ModeImage) && (m.NodeKind == plan.NodeReal || m.NodeKind == plan.NodeDaemonless && m.certain)
		}
		switch {
		case slices.ContainsFunc(nodes, swaps):
			swapped++
		case slices.ContainsFunc(nodes, func(m NodeModes) bool { return m.startsWith(v1alpha1.ModeCRR) }):
			stopped++
		default:
			others++
		}
	}
	if x.Pod.Pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		x.backoffLimitRisk(plan.Restarts(swapped, stopped, others))
	}
	x.orderNotKept()
}

// orderNotKept finds a terminationOrder that the only node type of the pod, or every real node, does not keep.
func (x *explainer) orderNotKept() {
	why, kept := "", false
	for _, on := range x.nodes() {
		if on.certain || on.NodeKind == plan.NodeReal {
			why = plan.OrderNotKept(x.snapshotOn(on, 0))
			kept = kept || why == ""
		}
	}
	if why != "" && !kept {
		x.add(SeverityWarning, v1alpha1.ReasonOrderNotKept, "", "%s", why).policy = x.policyOf("")
	}
}

// noUsableMode finds node types without a usable mode. This is a problem if the pod can only run there, or if no real node has
// a usable mode. Otherwise it is a warning.
func (x *explainer) noUsableMode(name string, nodes []NodeModes) {
	usable := slices.ContainsFunc(nodes, func(m NodeModes) bool { return m.NodeKind == plan.NodeReal && len(m.Modes) > 0 })
	for _, onNode := range nodes {
		severity, onReal := SeverityWarning, onNode.NodeKind == plan.NodeReal
		switch {
		case len(onNode.Modes) > 0, !onNode.certain && !onReal && !onNode.present:
			continue
		case onNode.certain, onReal && !usable:
			severity = SeverityProblem
		}
		same := func(f Finding) bool {
			return f.Reason == onNode.Reason && f.Severity == severity && f.Container == name
		}
		if slices.ContainsFunc(x.found, same) {
			continue
		}
		message := onNode.Message
		if !onNode.certain {
			message = fmt.Sprintf("on a %s: %s", onNode.NodeType, message)
		}
		x.adviseMode(x.add(severity, onNode.Reason, name, "%s", message), onNode.options)
	}
}

// substituted finds sidecars whose declared mode is not usable: on the only node type of the pod, or on every real node.
func (x *explainer) substituted(name string, nodes []NodeModes) {
	if x.view.Sidecar(name).Mode == v1alpha1.ModeAuto {
		return
	}
	everywhere := !slices.ContainsFunc(nodes, func(m NodeModes) bool { return m.NodeKind == plan.NodeReal && m.options[0].Usable() })
	for _, onNode := range nodes {
		declared := onNode.options[0]
		if len(onNode.Modes) == 0 || declared.Usable() || !onNode.certain && (!everywhere || onNode.NodeKind != plan.NodeReal) {
			continue
		}
		substitute := "another mode"
		if onNode.certain {
			substitute = string(onNode.Modes[0])
		}
		x.adviseMode(x.add(severityOf(declared.Reason), declared.Reason, name,
			"mode %s is not usable for container %s, so %s is used: %s", declared.Mode, name, substitute, declared.Message),
			onNode.options[:1])
		return
	}
}

// severityOf returns the severity of using another mode than the declared one. On virtual and daemonless nodes this is
// expected.
func severityOf(reason v1alpha1.Reason) Severity {
	if reason == v1alpha1.ReasonVirtualNode || reason == v1alpha1.ReasonNoKruiseDaemon {
		return SeverityNote
	}
	return SeverityWarning
}

// backoffLimitRisk compares the restarts that ending the sidecars adds with the Job's backoffLimit.
func (x *explainer) backoffLimitRisk(added int) {
	tried := slices.ContainsFunc(x.Attempts, func(a plan.Attempt) bool { return a.Mode != v1alpha1.ModePodPhase })
	if added == 0 || tried {
		return
	}
	restarts := added
	for _, status := range x.Pod.Pod.Status.ContainerStatuses {
		restarts += int(status.RestartCount)
	}
	severity, limit := SeverityNote, "the backoffLimit of a Job"
	if x.BackoffLimit != nil {
		severity, limit = SeverityWarning, fmt.Sprintf("its backoffLimit, %d", *x.BackoffLimit)
		if restarts >= int(*x.BackoffLimit) {
			severity = SeverityProblem
		}
	}
	x.add(severity, v1alpha1.ReasonBackoffLimitRisk, "",
		"ending the sidecars may raise the restarts to %d; under restartPolicy OnFailure a Job fails when they reach %s", restarts, limit).
		policy = x.policyOf("")
}
