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

// scenario is one kind of node that the pod runs on or may run on.
type scenario struct {
	where string
	node  plan.NodeKind
	crr   bool
	// certain is true where the pod is bound to come there, and present where the cluster is known to have such nodes.
	certain, present bool
}

// The kinds of nodes that are told apart from real ones, and all of them.
const (
	onAnyNode        = "node of any kind"
	onDaemonlessNode = "node without OpenKruise's daemon"
	onVirtualNode    = "virtual node"
)

// scenarios lists where the pod is or may come to be.
func (x *explainer) scenarios() []scenario {
	switch x.Node {
	case plan.NodeReal:
		return x.onRealNodes()
	case plan.NodeVirtual:
		return []scenario{{where: onVirtualNode, node: plan.NodeVirtual, crr: x.kruise(), certain: true}}
	case plan.NodeDaemonless:
		return []scenario{{where: onDaemonlessNode, node: plan.NodeDaemonless, crr: x.kruise(), certain: true}}
	}
	all := x.onRealNodes()
	// Where OpenKruise cannot be used anyway, its daemon makes no difference.
	if known := x.cluster.DaemonlessNodes; x.kruise() && (known == nil || *known) {
		all = append(all, scenario{where: onDaemonlessNode, node: plan.NodeDaemonless, crr: true, present: known != nil})
	}
	if known := x.cluster.VirtualNodes; known == nil || *known {
		all = append(all, scenario{where: onVirtualNode, node: plan.NodeVirtual, present: known != nil})
	}
	return all
}

// kruise reports whether OpenKruise is known to be usable.
func (x *explainer) kruise() bool { return x.cluster.Kruise != nil && *x.cluster.Kruise }

func (x *explainer) onRealNodes() []scenario {
	if x.cluster.Kruise != nil {
		return []scenario{{where: "real node", node: plan.NodeReal, crr: *x.cluster.Kruise, certain: true}}
	}
	return []scenario{
		{where: "real node, OpenKruise", node: plan.NodeReal, crr: true},
		{where: "real node, no OpenKruise", node: plan.NodeReal},
	}
}

// ways asks the plan for the modes of a sidecar in every scenario. A pod that is never acted on has one way: nothing.
func (x *explainer) ways(target resolve.Target) []Way {
	switch {
	case !IsJobType(x.Pod.Pod):
		return []Way{{Where: onAnyNode, Reason: v1alpha1.ReasonRestartPolicyAlways, Message: leftAlone}}
	case len(x.view.Mains) == 0:
		return []Way{{Where: onAnyNode, Reason: v1alpha1.ReasonNoMainContainer, Message: nothingToWaitFor}}
	}
	var ways []Way
	for _, s := range x.scenarios() {
		options := plan.ModeOptions(x.snapshotOf(s, 0), target)
		way := Way{Where: s.where, scenario: s, options: options}
		for _, option := range options {
			if option.Usable() {
				way.Modes, way.PhaseFirst = append(way.Modes, option.Mode), way.PhaseFirst || option.PhaseFirst
			}
		}
		if len(way.Modes) == 0 {
			way.Reason, way.Message = plan.WhyNone(target, options)
		}
		ways = append(ways, way)
	}
	return ways
}

// snapshotOf is the pod at the moment that its main containers are done: the real one if they are, and otherwise one
// whose main containers have ended with the exit code while its sidecars run.
func (x *explainer) snapshotOf(s scenario, exitCode int32) plan.Snapshot {
	snapshot := x.snapshot()
	snapshot.Node, snapshot.Capabilities.CRR = s.node, s.crr
	if x.Template || x.decision.MainsDone.IsZero() {
		snapshot.Pod = whenMainsEnd(x.Pod.Pod, x.view, exitCode)
	}
	if snapshot.Pod.Spec.NodeName == "" {
		// The pod is the caller's: name the node in a copy.
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
	for _, target := range view.Targets {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: target.Container, ContainerID: "expected://" + target.Container,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
	return pod
}
