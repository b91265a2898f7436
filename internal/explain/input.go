// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/injectors"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Cluster is what the caller knows about the cluster.
type Cluster struct {
	// Kruise is true if OpenKruise is usable, and nil if unknown.
	Kruise *bool
	// VirtualNodes and DaemonlessNodes are true if the cluster has such nodes, and nil if unknown.
	VirtualNodes    *bool
	DaemonlessNodes *bool
}

// Pod is the input for a report.
type Pod struct {
	// Kind and Name identify a Pod, or the Job or CronJob with the template.
	Kind, Name string
	// Pod is the pod. If Template is true, it is a pod that the template will create, without a status.
	Pod             *corev1.Pod
	Template        bool
	NamespaceLabels map[string]string
	// Policies are the policies that select the pod. NotSelecting are others of its namespace and of the cluster kind, if the
	// report should say why they do not select it. It then needs NamespaceLabels.
	Policies, NotSelecting []resolve.Policy
	// Injected are the containers that webhooks will add to the pods of a template.
	Injected []injectors.Sidecar
	// EndedByOthers are containers that end without this operator: the workload's controller ends them, or waits for them alone.
	EndedByOthers []string
	// Node is the kind of the pod's node, and KubeletVersion the version that it reports, or empty. Attempts are the past attempts. A
	// template has none of them.
	Node           plan.NodeKind
	KubeletVersion string
	Attempts       []plan.Attempt
	// UnchangedSince is when the pod's status last changed. Zero means unknown: the pod then counts as stable.
	UnchangedSince time.Time
	// Job is the name of the pod's Job. BackoffLimit and FailurePolicy are nil for pods without a Job.
	Job           string
	BackoffLimit  *int32
	FailurePolicy *batchv1.PodFailurePolicy
	// Deletion is nil if nothing deletes the Job.
	Deletion *Deletion
	Events   []Event
	// InvalidAnnotation is why the operator cannot read its own annotations on the pod, or empty. The operator ignores such a pod.
	InvalidAnnotation string
}
