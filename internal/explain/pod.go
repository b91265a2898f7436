// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// declaredByEnvironment stands in a report where a policy's name would.
const declaredByEnvironment = "environment"

// explainer gathers what more than one part of a report needs.
type explainer struct {
	Pod
	operator   OperatorSettings
	cluster    Cluster
	now        time.Time
	resolution resolve.Resolution
	view       resolve.View
	decision   plan.Decision
}

// Explain reports on one pod. It changes none of its arguments, and the same input gives the same report.
func Explain(pod Pod, operator OperatorSettings, cluster Cluster, now time.Time) Report {
	x := &explainer{Pod: pod, operator: operator, cluster: cluster, now: now}
	x.resolution = resolve.Resolve(pod.Pod, pod.Policies, operator.Resolve)
	x.view = x.resolution.Enforced
	report := Report{
		Kind: pod.Kind, Namespace: pod.Pod.Namespace, Name: pod.Name, Template: pod.Template, Owner: pod.Job,
		RestartPolicy: string(pod.Pod.Spec.RestartPolicy), Node: pod.Pod.Spec.NodeName, NodeKind: pod.Node,
		Events: pod.Events, now: now, losses: x.resolution.Losses,
	}
	if !pod.Template {
		x.decision = plan.Next(x.snapshot(), x.now)
		x.report(&report)
	}
	report.Containers = x.containers()
	report.Attempts = x.attempts()
	report.Findings = x.findings(report)
	sortFindings(report.Findings)
	return report
}

// snapshot is what the operator decides by. When the pod's status last changed is not known here; it counts as quiet.
func (x *explainer) snapshot() plan.Snapshot {
	capabilities := x.operator.Capabilities
	capabilities.CRR = x.cluster.Kruise != nil && *x.cluster.Kruise
	return plan.Snapshot{
		Pod: x.Pod.Pod, View: x.view, Node: x.Node, Capabilities: capabilities,
		Attempts: x.Attempts, SettlePeriod: x.operator.SettlePeriod, Unreadable: x.Unreadable,
	}
}

// report takes over what was decided.
func (x *explainer) report(report *Report) {
	d := x.decision
	report.Stage, report.StageReason, report.Message = d.Stage, d.Reason, d.Message
	if !d.MainsDone.IsZero() && len(x.view.Targets) > 0 {
		report.MainsDone = &metav1.Time{Time: d.MainsDone}
	}
	if d.RequeueAfter > 0 && len(d.Actions) == 0 {
		report.NextLook = &metav1.Time{Time: x.now.Add(d.RequeueAfter)}
	}
}

func (x *explainer) containers() []Container {
	var all []Container
	for i := range x.Pod.Pod.Spec.InitContainers {
		container := &x.Pod.Pod.Spec.InitContainers[i]
		role := RoleInit
		if isNativeSidecar(container) {
			role = RoleNativeSidecar
		}
		all = append(all, Container{Name: container.Name, Role: role, State: x.state(x.Pod.Pod.Status.InitContainerStatuses, container.Name)})
	}
	for i := range x.Pod.Pod.Spec.Containers {
		name := x.Pod.Pod.Spec.Containers[i].Name
		container := Container{Name: name, Role: RoleMain, State: x.state(x.Pod.Pod.Status.ContainerStatuses, name), DeclaredBy: x.declaredMain(name)}
		if target := x.view.Target(name); target != nil {
			container.Role, container.DeclaredBy = RoleSidecar, declaredByEnvironment
			if target.Policy != nil {
				container.DeclaredBy = target.Policy.String()
			}
			container.Settings = x.settings(*target)
		}
		all = append(all, container)
	}
	return all
}

func (x *explainer) settings(target resolve.Target) *Settings {
	from := resolve.SourcesOf(x.Pod.Pod, x.Policies, x.operator.Resolve, target)
	return &Settings{
		Mode:           Setting{string(target.Mode), from.Mode},
		Image:          Setting{target.Image, from.Image},
		QuickExitPaths: Setting{target.QuickExitPaths.String(), from.QuickExitPaths},
		ExitCodes:      Setting{string(target.ExitCodes), from.ExitCodes},
		Drain:          Setting{target.Drain.String(), from.Drain},
		Deadline:       Setting{target.Deadline.String(), from.Deadline},
		Fallback:       Setting{string(target.Fallback), from.Fallback},
		Ways:           x.ways(target),
	}
}

// declaredMain returns the policy that names the container as one to wait for, or nothing.
func (x *explainer) declaredMain(name string) string {
	for _, policy := range x.Policies {
		if slices.Contains(policy.Spec.MainContainers, v1alpha1.ContainerName(name)) {
			return policy.Ref.String()
		}
	}
	return ""
}

func (x *explainer) attempts() []Attempt {
	var all []Attempt
	for _, past := range x.Attempts {
		attempt := Attempt{Mode: past.Mode, Number: past.Number, Started: metav1.NewTime(past.Started), Containers: x.covered(past)}
		if past.For != past.Mode {
			attempt.For = past.For
		}
		if !past.Finished.IsZero() {
			attempt.Finished = &metav1.Time{Time: past.Finished}
		}
		for _, failure := range x.decision.Failures {
			if failure.Mode == past.Mode && failure.Attempt == past.Number {
				attempt.Result = failure.Message
			}
		}
		all = append(all, attempt)
	}
	slices.SortStableFunc(all, func(a, b Attempt) int { return a.Started.Compare(b.Started.Time) })
	return all
}

// covered lists the containers that the attempt was to end. The phase ends them all.
func (x *explainer) covered(past plan.Attempt) []string {
	if past.Mode != v1alpha1.ModePodPhase {
		return slices.Sorted(maps.Keys(past.RestartCounts))
	}
	names := []string{}
	for _, target := range x.view.Targets {
		names = append(names, target.Container)
	}
	return names
}

// state says in a few words what the container does.
func (x *explainer) state(statuses []corev1.ContainerStatus, name string) string {
	i := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if x.Template || i < 0 {
		return ""
	}
	status := statuses[i]
	var said string
	switch state := status.State; {
	case state.Running != nil:
		said = "running " + Age(x.now.Sub(state.Running.StartedAt.Time))
	case state.Terminated != nil:
		said = fmt.Sprintf("exit %d, %s ago", state.Terminated.ExitCode, Age(x.now.Sub(state.Terminated.FinishedAt.Time)))
	case state.Waiting != nil && state.Waiting.Reason != "":
		said = "waiting: " + state.Waiting.Reason
	default:
		said = "waiting"
	}
	if status.RestartCount > 0 {
		said += fmt.Sprintf(", %d restarts", status.RestartCount)
	}
	return said
}
