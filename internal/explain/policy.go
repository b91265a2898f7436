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
	Ref        resolve.PolicyRef
	Spec       *v1alpha1.PolicySpec
	Conditions []metav1.Condition
	// Parsed has the parsed selectors, unless Invalid is set.
	Parsed resolve.Policy
	// Invalid is why the policy's selectors cannot be parsed, or nil.
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
	Mode        v1alpha1.Mode        `json:"mode"`
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
func DescribePolicy(policy Policy, reports []Report, operator settings.Decisions) PolicyReport {
	result := PolicyReport{
		Kind: string(policy.Ref.Kind), Namespace: policy.Ref.Namespace, Name: policy.Ref.Name,
		Mode: cmp.Or(policy.Spec.Mode, resolve.DefaultMode), Enforcement: cmp.Or(policy.Spec.Enforcement, v1alpha1.EnforcementEnforce),
		Priority: policy.Spec.Priority, Conditions: policy.Conditions, Pods: []PolicyPod{}, Findings: []Finding{},
	}
	for _, sidecar := range policy.Spec.Sidecars {
		result.Sidecars = append(result.Sidecars, sidecar.Name)
	}
	result.IncludeInjected = policy.Spec.IncludeInjected
	for _, main := range policy.Spec.MainContainers {
		result.Mains = append(result.Mains, string(main))
	}
	if policy.Invalid != nil {
		result.Findings = append(result.Findings, finding(SeverityProblem, v1alpha1.ReasonInvalidSelector, "", policy.Invalid.Error()))
	}
	if unknown := resolve.UnknownEnforcement(result.Enforcement); unknown != "" {
		result.Findings = append(result.Findings, finding(SeverityProblem, v1alpha1.ReasonUnknownSetting, "", unknown))
	}
	if result.Enforcement == v1alpha1.EnforcementDryRun {
		result.Findings = append(result.Findings, finding(SeverityNote, v1alpha1.ReasonDryRun, "", "the policy writes nothing to pods"))
	}
	for i := range reports {
		if slices.ContainsFunc(reports[i].input.Policies, func(p resolve.Policy) bool { return p.Ref == policy.Ref }) {
			result.Selects = true
			result.add(policy, &reports[i])
		}
	}
	if len(result.Pods) == 0 && policy.Invalid == nil {
		result.Findings = append(result.Findings, finding(SeverityNote, v1alpha1.ReasonNoPodsMatched, "",
			"No unfinished Job-type pod matches this policy"))
	}
	if !result.Selects && policy.Invalid == nil && operator.Watches(policy.Ref.Namespace) {
		result.Findings = append(result.Findings, nearest(policy.Parsed, reports)...)
	}
	result.Findings = append(policy.notWatched(operator), result.Findings...)
	result.Findings = sorted(result.Findings)
	return result
}

// RejectedPolicy reports on a policy that the API server would reject with the errors.
func RejectedPolicy(ref resolve.PolicyRef, errors []string) PolicyReport {
	result := PolicyReport{Kind: string(ref.Kind), Namespace: ref.Namespace, Name: ref.Name, Rejected: true, Pods: []PolicyPod{}, Findings: []Finding{}}
	for _, message := range errors {
		refused := InvalidManifest(message)
		refused.Hint = "correct the policy: kubectl explain sidecarterminationpolicy.spec"
		result.Findings = append(result.Findings, refused)
	}
	return result
}

// notOfPolicy are the reasons of findings on a pod that do not concern each policy that selects it. The report on a policy has its
// own findings with the last reason.
var notOfPolicy = []v1alpha1.Reason{v1alpha1.ReasonMayHang, v1alpha1.ReasonInvalidSidecars, v1alpha1.ReasonContainerNotFound}

// add merges the parts of a pod's report that concern the policy.
func (r *PolicyReport) add(policy Policy, report *Report) {
	parsed := resolve.Policy{Ref: policy.Ref, Spec: policy.Spec}
	known := resolve.Options{Injected: resolve.Injected(report.input.Pod, report.input.JobContainers)}
	var sidecars []string
	for _, container := range report.Containers {
		if container.Role == RoleSidecar && parsed.Role(report.input.Pod, container.Name, known) == resolve.RoleSidecar && policy.Spec.Enforcement.Acts() {
			sidecars = append(sidecars, container.Name)
		}
	}
	where := fmt.Sprintf("%s %s/%s", report.Kind, report.Namespace, report.Name)
	for _, f := range report.Findings {
		ofPolicy := f.Severity != SeverityNote && !slices.Contains(notOfPolicy, f.Reason) && (len(sidecars) > 0 || f.Reason == v1alpha1.ReasonDryRun)
		if ofPolicy && (f.Container == "" || parsed.Role(report.input.Pod, f.Container, known) == resolve.RoleSidecar) {
			f.Message = where + ": " + f.Message
			r.Findings = append(r.Findings, f)
		}
	}
	r.Findings = append(r.Findings, misspelledIn(policy.Ref, report.missing, where)...)
	for _, override := range report.overrides {
		if override.Policy == policy.Ref {
			r.Findings = append(r.Findings, finding(SeverityNote, v1alpha1.ReasonOverridden, override.Container,
				fmt.Sprintf("%s: %s takes precedence for %s of container %s%s", where, override.By, override.Lost, override.Container, andOthers(override.Others))))
		}
	}
	if len(sidecars) > 0 {
		r.Pods = append(r.Pods, PolicyPod{
			Kind: report.Kind, Namespace: report.Namespace, Name: report.Name,
			Stage: report.Stage, Reason: report.Reason, Message: report.Message, Planned: report.Planned, Sidecars: sidecars,
		})
	}
}

// misspelledIn finds the containers that the policy probably means by another name.
func misspelledIn(policy resolve.PolicyRef, all []missingContainers, where string) []Finding {
	var found []Finding
	for _, missing := range all {
		if missing.isMisspelled() && missing.policy == policy {
			found = append(found, finding(SeverityWarning, v1alpha1.ReasonContainerNotFound, "", fmt.Sprintf("%s: %s %s", where, policy, missing.message)))
		}
	}
	return found
}

// notWatched finds a policy that the operator does not read.
func (p Policy) notWatched(operator settings.Decisions) []Finding {
	namespace := p.Ref.Namespace
	if operator.Watches(namespace) {
		return nil
	}
	f := finding(SeverityProblem, v1alpha1.ReasonNamespaceNotWatched, "",
		fmt.Sprintf("the operator does not watch namespace %s, but only %s", namespace, watched(operator)))
	if namespace == "" {
		f.Message = "the operator runs with --watch-namespaces and reads no cluster policies"
		f.Hint = "write a SidecarTerminationPolicy in each namespace, or install the operator for the whole cluster"
	}
	return []Finding{f}
}
