// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// OperatorSettings are the flags of the operator that bear on decisions.
type OperatorSettings struct {
	Resolve   resolve.Options
	NodeMarks plan.NodeMarks
	// Capabilities are what the operator's flags allow. CRR is false: a cluster says that, not a flag.
	Capabilities plan.Capabilities
	SettlePeriod time.Duration
	// PrePullDisabled is true when the operator pulls no images ahead.
	PrePullDisabled bool
	// Metrics says how the operator serves its metrics. No decision depends on it.
	Metrics MetricsSettings
	// Lease says by what the copies of the operator agree on which of them acts. No decision depends on it.
	Lease LeaseSettings
}

// MetricsSettings are the operator's settings of its metrics.
type MetricsSettings struct {
	// Address is empty when there are none.
	Address string
	// Authenticated is true when the cluster is asked who may get them.
	Authenticated bool
}

// LeaseSettings are the operator's settings of leader election.
type LeaseSettings struct {
	// Name is empty when every copy acts.
	Name string
	// Namespace is empty when it is the operator's own.
	Namespace string
}

// Cluster is what is known of the cluster that the pod is or will be in.
type Cluster struct {
	// Kruise says whether OpenKruise can be used; nil where that is not known.
	Kruise *bool
	// VirtualNodes and DaemonlessNodes say whether there are nodes of that kind; nil where that is not known.
	VirtualNodes    *bool
	DaemonlessNodes *bool
}

// Pod is what there is to explain.
type Pod struct {
	// Kind and Name are those of what was asked about: a Pod, or what has a template of one.
	Kind, Name string
	// Pod is the pod, or what a template will make: then Template is true and the pod has no status.
	Pod      *corev1.Pod
	Template bool
	// Policies are those that select the pod.
	Policies []resolve.Policy
	// Node is the kind of the pod's node, and Attempts what was tried; neither is known of a template.
	Node     plan.NodeKind
	Attempts []plan.Attempt
	// Job is the name of the pod's Job. BackoffLimit and FailurePolicy are the Job's; nil for pods of no Job.
	Job           string
	BackoffLimit  *int32
	FailurePolicy *batchv1.PodFailurePolicy
	// Deletion is nil where nothing deletes the Job.
	Deletion *Deletion
	Events   []Event
	// Unreadable is why the records that the operator keeps on the pod cannot be read, or empty. The operator then does nothing.
	Unreadable string
}
