// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Policy is a policy of either kind.
type Policy struct {
	resolve.Policy
	// Object is the object that was read.
	Object metav1.Object
	Status v1alpha1.PolicyStatus
	// Invalid is why the policy's selectors cannot be parsed, or nil. The policy then has Ref and Spec only.
	Invalid error
}

// PolicyPod is an unfinished pod, or a template, with sidecars that the policy applies to.
type PolicyPod struct {
	Kind      string          `json:"kind"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Stage     plan.Stage      `json:"stage,omitempty"`
	Reason    v1alpha1.Reason `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"`
	Planned   bool            `json:"planned,omitempty"`
	Sidecars  []string        `json:"sidecars"`
}

// PolicyReport describes one policy.
type PolicyReport struct {
	Kind        string               `json:"kind"`
	Namespace   string               `json:"namespace,omitempty"`
	Name        string               `json:"name"`
	Mode        string               `json:"mode"`
	Enforcement v1alpha1.Enforcement `json:"enforcement"`
	Priority    int32                `json:"priority"`
	// Rejected is true for a policy of a manifest that the API server would reject. Its findings say why.
	Rejected bool     `json:"rejected,omitempty"`
	Sidecars []string `json:"sidecars,omitempty"`
	// IncludeInjected is true if the policy also declares containers that something has injected.
	IncludeInjected bool               `json:"includeInjected,omitempty"`
	Mains           []string           `json:"mainContainers,omitempty"`
	Conditions      []metav1.Condition `json:"conditions,omitempty"`
	Pods            []PolicyPod        `json:"pods"`
	Findings        []Finding          `json:"findings"`
	// Selects is true if the policy selects one of the pods, which then have the same findings.
	Selects bool `json:"-"`
}

// DescribePolicy reports on one policy, given the reports on pods. If the policy selects none of them, it names the nearest.
func DescribePolicy(policy Policy, reports []Report, operator settings.Decisions, cluster Cluster) PolicyReport {
	namespace := policy.Ref.Namespace
	result := PolicyReport{
		Kind: string(policy.Ref.Kind), Namespace: namespace, Name: policy.Ref.Name,
		Mode: resolve.ModesOf(policy.Spec), Enforcement: cmp.Or(policy.Spec.Enforcement, v1alpha1.EnforcementEnforce),
		Priority: policy.Spec.Priority, IncludeInjected: policy.Spec.IncludeInjected,
		Mains: texts(policy.Spec.MainContainers), Conditions: policy.Status.Conditions, Pods: []PolicyPod{}, Findings: []Finding{},
	}
	for _, sidecar := range policy.Spec.Sidecars {
		result.Sidecars = append(result.Sidecars, sidecar.Name)
	}
	result.checkNamespace(operator)
	if policy.Invalid != nil {
		result.found(SeverityProblem, v1alpha1.ReasonInvalidSelector, "%s", policy.Invalid)
	}
	if unknown := resolve.UnknownEnforcement(result.Enforcement); unknown != "" {
		result.found(SeverityProblem, v1alpha1.ReasonUnknownSetting, "%s", unknown)
	}
	if result.Enforcement == v1alpha1.EnforcementDryRun {
		result.found(SeverityNote, v1alpha1.ReasonDryRun, "the policy writes nothing to pods")
	}
	for i := range reports {
		if slices.ContainsFunc(reports[i].input.Policies, func(p resolve.Policy) bool { return p.Ref == policy.Ref }) {
			result.Selects = true
			result.add(policy, &reports[i])
		}
	}
	if len(result.Pods) == 0 && policy.Invalid == nil {
		result.found(SeverityNote, v1alpha1.ReasonIdle, "No unfinished Job-type pod matches this policy")
	}
	if !result.Selects && policy.Invalid == nil && operator.Watches(namespace) {
		result.Findings = append(result.Findings, nearest(policy.Policy, reports)...)
	}
	for i := range result.Findings {
		f := &result.Findings[i]
		f.policy = cmp.Or(f.policy, policy.Ref)
		f.complete(cluster.Offline)
	}
	result.Findings = sorted(result.Findings)
	return result
}

// RejectedPolicy reports on a policy that the API server would reject with the errors.
func RejectedPolicy(ref resolve.PolicyRef, errors []string) PolicyReport {
	result := PolicyReport{Kind: string(ref.Kind), Namespace: ref.Namespace, Name: ref.Name, Rejected: true, Pods: []PolicyPod{}, Findings: InvalidManifest(errors)}
	for i := range result.Findings {
		result.Findings[i].Hint = "correct the policy: kubectl explain sidecarterminationpolicy.spec"
	}
	return result
}

// sidecarsOf returns the sidecars of the pod that the policy declares and acts on.
func (r *Report) sidecarsOf(policy Policy, declares func(container string) bool) []string {
	var sidecars []string
	for _, container := range r.Containers {
		if container.Role == resolve.RoleSidecar && declares(container.Name) && policy.Spec.Enforcement.Acts() {
			sidecars = append(sidecars, container.Name)
		}
	}
	return sidecars
}

// add merges the parts of a pod's report that concern the policy.
func (r *PolicyReport) add(policy Policy, report *Report) {
	known := report.input.Options(resolve.Options{})
	declares := func(name string) bool { return policy.Role(report.input.Pod, name, known) == resolve.RoleSidecar }
	sidecars := report.sidecarsOf(policy, declares)
	where := fmt.Sprintf("%s %s/%s: ", report.Kind, report.Namespace, report.Name)
	for _, f := range report.Findings {
		ofPolicy := !about[f.Reason].ofPod && (len(sidecars) > 0 || f.Reason == v1alpha1.ReasonDryRun) && (f.Container == "" || declares(f.Container))
		inVain := f.Reason == v1alpha1.ReasonContainerNotFound && f.policy == policy.Ref
		if f.Severity != SeverityNote && (ofPolicy || inVain) {
			f.Message = where + f.Message
			r.Findings = append(r.Findings, f)
		}
	}
	for _, override := range report.overrides {
		if override.Policy == policy.Ref {
			r.found(SeverityNote, v1alpha1.ReasonOverridden, "%s%s takes precedence for %s", where, override.By, lost(override)).Container = override.Container
		}
	}
	if len(sidecars) > 0 {
		r.Pods = append(r.Pods, PolicyPod{
			Kind: report.Kind, Namespace: report.Namespace, Name: report.Name,
			Stage: report.Stage, Reason: report.Reason, Message: report.Message, Planned: report.Planned, Sidecars: sidecars,
		})
	}
}

// checkNamespace finds a policy that the operator does not read.
func (r *PolicyReport) checkNamespace(operator settings.Decisions) {
	switch {
	case operator.Watches(r.Namespace):
	case r.Namespace == "":
		r.found(SeverityProblem, v1alpha1.ReasonNamespaceNotWatched, "the operator runs with --watch-namespaces and reads no cluster policies").
			Hint = "write a SidecarTerminationPolicy in each namespace, or install the operator for the whole cluster"
	default:
		r.found(SeverityProblem, v1alpha1.ReasonNamespaceNotWatched, "%s", notWatched(operator, r.Namespace))
	}
}

// found adds a finding on the policy itself.
func (r *PolicyReport) found(severity Severity, reason v1alpha1.Reason, format string, arguments ...any) *Finding {
	r.Findings = append(r.Findings, finding(severity, reason, "", fmt.Sprintf(format, arguments...)))
	return &r.Findings[len(r.Findings)-1]
}
