// SPDX-License-Identifier: Apache-2.0

// Package podinput reads what decisions about a pod depend on, and hands it to internal/resolve and internal/plan. It is the one way from a
// pod to a decision: the operator uses it for pods and for the status of policies, and the plugin for its reports and for finish. The package
// writes nothing and decides nothing.
package podinput

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Input is what decisions about a pod depend on, besides the operator's settings and the time.
type Input struct {
	Pod *corev1.Pod
	// NamespaceLabels are the labels of the pod's namespace, and Policies the policies that select the pod.
	NamespaceLabels map[string]string
	Policies        []resolve.Policy
	// JobContainers are the regular containers of the pod template of the pod's Job. It is empty without a Job.
	JobContainers []string
	// JobUnreadable is true if a policy includes injected containers, and the reader lacks permission to read the pod's Job.
	JobUnreadable bool
	// Node is the kind of the pod's node, and Kubelet what it reports about its kubelet.
	Node    plan.NodeKind
	Kubelet plan.Kubelet
	// Attempts are the past attempts on the pod. InvalidAnnotation is why the annotations that record them cannot be read, or empty.
	Attempts          []plan.Attempt
	InvalidAnnotation string
	// PhaseSince is when the pod's phase became terminal, or zero if nobody knows.
	PhaseSince time.Time
}

// Options adds to the operator's settings what is known about the pod.
func (in Input) Options(operator resolve.Options) resolve.Options {
	operator.NamespaceLabels = in.NamespaceLabels
	operator.Injected = nil
	if in.includesInjected() {
		operator.Injected = resolve.Injected(in.Pod, in.JobContainers)
	}
	return operator
}

// Resolve resolves the declarations for the pod. A pod that the operator ignores whatever they say gets a warning instead.
func (in Input) Resolve(operator resolve.Options) resolve.Resolution {
	if reason, message := plan.Unprocessable(in.Pod); reason != "" {
		return resolve.Resolution{Warnings: []resolve.Warning{{Reason: reason, Message: message}}}
	}
	return resolve.Resolve(in.Pod, in.Policies, in.Options(operator))
}

// Snapshot returns the input of plan.Next for one view of the pod's containers. The caller adds what it remembers about the pod.
func (in Input) Snapshot(view resolve.View, capabilities plan.Capabilities) plan.Snapshot {
	return plan.Snapshot{
		Pod: in.Pod, View: view, Node: in.Node, Kubelet: in.Kubelet, Capabilities: capabilities,
		Attempts: in.Attempts, InvalidAnnotation: in.InvalidAnnotation, PhaseSince: in.PhaseSince, JobUnreadable: in.JobUnreadable,
	}
}

func (in Input) includesInjected() bool {
	return slices.ContainsFunc(in.Policies, func(p resolve.Policy) bool { return p.Spec.IncludeInjected })
}
