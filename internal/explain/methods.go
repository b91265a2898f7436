// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// scenario is a node type that the pod runs on or may run on.
type scenario struct {
	nodeType string
	node     plan.NodeKind
	crr      bool
	// certain is true if the pod can run on no other node type. present is true if the cluster is known to have such nodes.
	certain, present bool
}

// Names of node types that are not real nodes.
const (
	onAnyNode        = "any node"
	onDaemonlessNode = "node without OpenKruise's daemon"
	onVirtualNode    = "virtual node"
)

// scenarios lists the node types that the pod runs on or may run on.
func (x *explainer) scenarios() []scenario {
	node := x.Node
	if all := x.operator.NodeKindRules.All; all != "" {
		node = all
	}
	switch node {
	case plan.NodeNotRead:
		return []scenario{{nodeType: onAnyNode, node: plan.NodeNotRead, crr: x.kruise(), certain: true}}
	case plan.NodeReal:
		return x.realNodes()
	case plan.NodeVirtual:
		return []scenario{{nodeType: onVirtualNode, node: plan.NodeVirtual, crr: x.kruise(), certain: true}}
	case plan.NodeDaemonless:
		return []scenario{{nodeType: onDaemonlessNode, node: plan.NodeDaemonless, crr: x.kruise(), certain: true}}
	}
	all := x.realNodes()
	// A missing daemon matters only if OpenKruise is usable.
	if known := x.cluster.DaemonlessNodes; x.kruise() && (known == nil || *known) {
		all = append(all, scenario{nodeType: onDaemonlessNode, node: plan.NodeDaemonless, crr: true, present: known != nil})
	}
	if known := x.cluster.VirtualNodes; known == nil || *known {
		all = append(all, scenario{nodeType: onVirtualNode, node: plan.NodeVirtual, present: known != nil})
	}
	return all
}

// kruise reports whether OpenKruise is known to be usable.
func (x *explainer) kruise() bool { return x.cluster.Kruise != nil && *x.cluster.Kruise }

func (x *explainer) realNodes() []scenario {
	if x.cluster.Kruise != nil {
		return []scenario{{nodeType: "real node", node: plan.NodeReal, crr: *x.cluster.Kruise, certain: true}}
	}
	return []scenario{
		{nodeType: "real node, OpenKruise", node: plan.NodeReal, crr: true},
		{nodeType: "real node, no OpenKruise", node: plan.NodeReal},
	}
}

// methods asks the plan for the modes of a sidecar on every node type. A pod that the operator ignores has one method
// without modes.
func (x *explainer) methods(sidecar resolve.Sidecar) []Method {
	switch {
	case !IsJobType(x.Pod.Pod):
		return []Method{{NodeType: onAnyNode, Modes: []v1alpha1.Mode{}, Reason: v1alpha1.ReasonRestartPolicyAlways, Message: restartPolicyAlways}}
	case len(x.view.Mains) == 0:
		return []Method{{NodeType: onAnyNode, Modes: []v1alpha1.Mode{}, Reason: v1alpha1.ReasonNoMainContainer, Message: noMainContainer}}
	}
	var methods []Method
	for _, s := range x.scenarios() {
		methods = append(methods, x.method(s, sidecar))
	}
	return methods
}

func (x *explainer) method(s scenario, sidecar resolve.Sidecar) Method {
	options := plan.ModeOptions(x.snapshotOf(s, 0), sidecar)
	method := Method{NodeType: s.nodeType, NodeKind: s.node, Modes: []v1alpha1.Mode{}, scenario: s, options: options}
	if s.node == plan.NodeReal {
		method.OpenKruise = &s.crr
	}
	for _, option := range options {
		if option.Usable() {
			method.Modes, method.PhaseFirst = append(method.Modes, option.Mode), method.PhaseFirst || option.PhaseFirst
		}
	}
	if len(method.Modes) == 0 {
		method.Reason, method.Message = plan.WhyUnusable(sidecar, options)
	}
	return method
}

// first returns the mode that is used first, or nothing.
func (m Method) first() v1alpha1.Mode {
	if len(m.Modes) == 0 {
		return ""
	}
	return m.Modes[0]
}

// writesPhase reports whether the first mode writes the pod's phase.
func (m Method) writesPhase() bool {
	return m.first() == v1alpha1.ModePodPhase || m.first() == v1alpha1.ModeCRR && m.PhaseFirst
}

// snapshotOf is the pod at the moment when its main containers are done. Until they are, the snapshot has main
// containers that exited with the exit code, and running sidecars.
func (x *explainer) snapshotOf(s scenario, exitCode int32) plan.Snapshot {
	snapshot := x.snapshot()
	snapshot.Node, snapshot.Capabilities.CRRServed = s.node, s.crr
	if x.Template || x.decision.MainsDone.IsZero() {
		snapshot.Pod = whenMainsEnd(x.Pod.Pod, x.view, exitCode)
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
	for _, name := range view.Mains {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, ContainerID: "expected://" + name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: exitCode, FinishedAt: metav1.NewTime(time.Unix(0, 0)),
			}},
		})
	}
	for _, sidecar := range view.Sidecars {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: sidecar.Container, ContainerID: "expected://" + sidecar.Container,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
	return pod
}
