// SPDX-License-Identifier: Apache-2.0

// Package explain describes in words what the operator does with a pod. A report lists the role of each container and the
// policy that declares it, the modes by node type, the current decision, past attempts, and findings about what goes or
// may go wrong.
//
// The package asks internal/resolve and internal/plan, like the operator, and makes no decisions of its own. It adds two
// kinds of findings: declarations that cannot work, and, in Lint, containers without a declaration. It reads only its arguments.
package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/sidecars"
)

// Cluster is what the caller knows about the cluster.
type Cluster struct {
	// Kruise is true if OpenKruise is usable, and nil if unknown.
	Kruise *bool
	// VirtualNodes and DaemonlessNodes are true if the cluster has such nodes, and nil if unknown.
	VirtualNodes    *bool
	DaemonlessNodes *bool
	// Offline is true for manifests.
	Offline bool
}

// Pod is the input for a report.
type Pod struct {
	// Kind and Name identify a Pod, or the Job or CronJob with the template.
	Kind, Name string
	// Input is what the operator decides by. If Template is true, its pod is one that the template will create, without a status, node and
	// attempts.
	podinput.Input
	Template bool
	// JobsForbidden is true if the operator lacks permission to read the Jobs of a policy with includeInjected. A report is then made
	// without the pod's Job, as the operator decides.
	JobsForbidden bool
	// NotSelecting are other policies of the pod's namespace and of the cluster kind, if the report should say why they do not select the pod.
	NotSelecting []resolve.Policy
	// Injected are the containers that webhooks will add to the pods of a template.
	Injected []sidecars.Injection
	// EndedByOthers are containers that end without this operator: the workload's controller ends them, or waits for them alone.
	EndedByOthers []string
	// Owner has what the Job or CronJob has besides the metadata of its pod template.
	Owner Metadata
	// Job is the name of the pod's Job. BackoffLimit and FailurePolicy are nil for pods without a Job.
	Job           string
	BackoffLimit  *int32
	FailurePolicy *batchv1.PodFailurePolicy
	// JobDeadline is when the Job's activeDeadlineSeconds pass, or zero.
	JobDeadline time.Time
	// Deletion is nil if nothing deletes the Job.
	Deletion *Deletion
	Events   []Event
}

// explainer holds what several parts of a report need.
type explainer struct {
	Pod
	operator   settings.Decisions
	cluster    Cluster
	now        time.Time
	resolution resolve.Resolution
	view       resolve.View
	// next is what plan decides about the pod or the template, and decision the same for pods that the operator watches.
	next, decision plan.Decision
	missing        []missingContainers
	found          []Finding
}

// Explain reports on one pod. It does not modify its arguments, and the same input gives the same report.
func Explain(pod Pod, operator settings.Decisions, cluster Cluster, now time.Time) Report {
	if pod.JobsForbidden {
		pod.JobContainers, pod.JobUnreadable = nil, true
	}
	x := &explainer{Pod: pod, operator: operator, cluster: cluster, now: now}
	if !x.isWatched() {
		// Nothing that the pod declares has an effect.
		x.operator.Resolve.IgnoreEnv = true
		unread := *x.Pod.Pod
		unread.Annotations = maps.Clone(unread.Annotations)
		delete(unread.Annotations, v1alpha1.AnnotationSidecars)
		x.Pod.Pod = &unread
	}
	if operator.Capabilities.NamespacesOnly {
		x.cluster.Kruise = new(false) // the operator does not use it
	}
	x.operator.Resolve = x.Options(x.operator.Resolve)
	x.resolution = x.Resolve(x.operator.Resolve)
	x.view = x.resolution.Enforced
	report := Report{
		Kind: pod.Kind, Namespace: pod.Pod.Namespace, Name: pod.Name, Template: pod.Template, Job: pod.Job,
		RestartPolicy: string(pod.Pod.Spec.RestartPolicy), NodeName: pod.Pod.Spec.NodeName, NodeKind: pod.Node,
		Events: pod.Events, Now: now, input: pod, overrides: x.resolution.Overrides,
	}
	x.next = plan.Next(x.snapshot(), x.now)
	if !pod.Template {
		x.decision = x.next
		if !x.isWatched() {
			x.decision = plan.Decision{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonNamespaceNotWatched, Message: notWatched(operator, pod.Pod.Namespace)}
		}
		x.report(&report)
	}
	x.missing = x.missingContainers()
	report.Containers = x.containers()
	report.Attempts = x.attempts()
	x.findings(report)
	for i := range x.found {
		x.found[i].complete(cluster.Offline)
	}
	report.Findings = sorted(x.found)
	return report
}

// snapshot is the input of the operator's decision.
func (x *explainer) snapshot() plan.Snapshot {
	capabilities := x.operator.Capabilities
	capabilities.CRRServed = x.cluster.Kruise != nil && *x.cluster.Kruise
	return x.Snapshot(x.view, capabilities)
}

// report adds the current decision to the report.
func (x *explainer) report(report *Report) {
	d := x.decision
	report.Stage, report.Reason, report.Message = d.Stage, d.Reason, d.Message
	report.Planned = d.Stage == plan.StageTerminating && len(plan.AllAttempts(x.snapshot())) == 0
	if ends := d.Ends(); len(ends) > 0 && (d.Reason == v1alpha1.ReasonTerminating || d.Reason == v1alpha1.ReasonFallback) {
		// The operator has not carried the decision out. Its own message is for the event when it does.
		report.Message = "main containers are done; next, the operator will end " + describeEnds(ends)
		if report.Planned {
			report.Message = "main containers are done, and the operator has not acted yet; it will end " + describeEnds(ends)
		}
	}
	if !d.MainsDone.IsZero() && len(x.view.Sidecars) > 0 {
		report.MainsDoneTime = &metav1.Time{Time: d.MainsDone}
	}
	if d.RequeueAfter > 0 && len(d.Writes) == 0 {
		report.NextReconcileTime = &metav1.Time{Time: x.now.Add(d.RequeueAfter)}
	}
}

// describeEnds names the containers that the writes end, the mode of each, and the number of a repeated attempt.
func describeEnds(ends []plan.Write) string {
	var parts []string
	for _, write := range ends {
		part := plan.DescribeWrites([]plan.Write{write})
		if write.Attempt > 1 {
			part += fmt.Sprintf(" (attempt %d)", write.Attempt)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " and ")
}

func (x *explainer) containers() []Container {
	var all []Container
	for i := range x.Pod.Pod.Spec.InitContainers {
		container := &x.Pod.Pod.Spec.InitContainers[i]
		role := resolve.RoleInit
		if resolve.IsNativeSidecar(container) {
			role = resolve.RoleNativeSidecar
		}
		all = append(all, Container{Name: container.Name, Role: role, State: x.state(x.Pod.Pod.Status.InitContainerStatuses, container.Name)})
	}
	for _, name := range RegularContainers(x.Pod.Pod) {
		container := Container{Name: name, Role: resolve.RoleMain, State: x.state(x.Pod.Pod.Status.ContainerStatuses, name)}
		if policy, declared := x.view.MainPolicies[name]; declared {
			container.DeclaredBy = policy.String()
		}
		if sidecar := x.view.Sidecar(name); sidecar != nil {
			container.Role, container.Settings, container.DeclaredBy = resolve.RoleSidecar, x.settings(*sidecar), string(sidecar.DeclaredBy)
			if sidecar.Policy != nil {
				container.DeclaredBy = sidecar.Policy.String()
			}
		}
		all = append(all, container)
	}
	return all
}

func (x *explainer) settings(sidecar resolve.Sidecar) *Settings {
	from := sidecar.Origins
	return &Settings{
		Mode:                       settingFrom(sidecar.Mode, from.Mode),
		Image:                      settingFrom(sidecar.Image, from.Image),
		QuickExitPaths:             settingFrom(sidecar.QuickExitPaths.Entries(), from.QuickExitPaths),
		ExitCodePolicy:             settingFrom(sidecar.ExitCodePolicy, from.ExitCodePolicy),
		DrainSeconds:               settingFrom(int64(sidecar.Drain/time.Second), from.Drain),
		TerminationOrder:           settingFrom(sidecar.Order, from.Order),
		TerminationDeadlineSeconds: settingFrom(int64(sidecar.Timeout/time.Second), from.Timeout),
		Fallback:                   settingFrom(sidecar.Fallback, from.Fallback),
		Nodes:                      x.nodeModes(sidecar),
	}
}

func (x *explainer) attempts() []Attempt {
	var all []Attempt
	for _, past := range plan.AllAttempts(x.snapshot()) {
		attempt := Attempt{Mode: past.Mode, Number: past.Number, StartTime: metav1.NewTime(past.Started), Sidecars: x.attempted(past)}
		if !past.Finished.IsZero() {
			attempt.CompletionTime = &metav1.Time{Time: past.Finished}
		}
		for _, failure := range x.decision.Failures {
			if failure.Mode == past.Mode && failure.Attempt == past.Number {
				attempt.Failure = failure.Message
			}
		}
		all = append(all, attempt)
	}
	slices.SortStableFunc(all, func(a, b Attempt) int { return a.StartTime.Compare(b.StartTime.Time) })
	return all
}

// attempted lists the sidecars of the attempt. Mode PodPhase ends all sidecars.
func (x *explainer) attempted(past plan.Attempt) []string {
	if past.Mode != v1alpha1.ModePodPhase {
		return slices.Sorted(maps.Keys(past.RestartCounts))
	}
	return containersOf(x.view.Sidecars)
}

// state returns the container's current state, or nil for a template and for a container without a status.
func (x *explainer) state(statuses []corev1.ContainerStatus, name string) *ContainerState {
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if x.Template || i < 0 {
		return nil
	}
	return &ContainerState{*statuses[i].State.DeepCopy(), statuses[i].RestartCount}
}
