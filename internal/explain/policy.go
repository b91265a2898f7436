// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Policy is a policy and what it says of itself.
type Policy struct {
	Ref        resolve.PolicyRef
	Spec       *v1alpha1.PolicySpec
	Conditions []metav1.Condition
	// Invalid is why the policy cannot be acted on, or nil.
	Invalid error
}

// PolicyPod is one unfinished pod, or a template, that the policy selects and of which it names a container.
type PolicyPod struct {
	Kind      string          `json:"kind"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Stage     plan.Stage      `json:"stage,omitempty"`
	Reason    v1alpha1.Reason `json:"reason,omitempty"`
	Message   string          `json:"message,omitempty"`
	// Containers are those that the policy decides over.
	Containers []string `json:"containers"`
}

// PolicyReport is all there is to say about one policy.
type PolicyReport struct {
	Kind        string               `json:"kind"`
	Namespace   string               `json:"namespace,omitempty"`
	Name        string               `json:"name"`
	Mode        v1alpha1.Mode        `json:"mode"`
	Enforcement v1alpha1.Enforcement `json:"enforcement"`
	Priority    int32                `json:"priority"`
	Sidecars    []string             `json:"sidecars,omitempty"`
	Mains       []string             `json:"mainContainers,omitempty"`
	Conditions  []metav1.Condition   `json:"conditions,omitempty"`
	Pods        []PolicyPod          `json:"pods"`
	Findings    []Finding            `json:"findings"`
}

// DescribePolicy reports on one policy, given the reports on the pods that it selects.
func DescribePolicy(policy Policy, reports []Report) PolicyReport {
	result := PolicyReport{
		Kind: string(policy.Ref.Kind), Namespace: policy.Ref.Namespace, Name: policy.Ref.Name,
		Mode: cmp.Or(policy.Spec.Mode, resolve.DefaultMode), Enforcement: cmp.Or(policy.Spec.Enforcement, v1alpha1.EnforcementEnforce),
		Priority: policy.Spec.Priority, Conditions: policy.Conditions, Pods: []PolicyPod{}, Findings: []Finding{},
	}
	for _, sidecar := range policy.Spec.Sidecars {
		result.Sidecars = append(result.Sidecars, sidecar.Name)
	}
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
		result.Findings = append(result.Findings, finding(SeverityNote, v1alpha1.ReasonDryRun, "", "nothing is written to pods"))
	}
	for i := range reports {
		result.add(policy, &reports[i])
	}
	if len(result.Pods) == 0 && policy.Invalid == nil {
		result.Findings = append(result.Findings, finding(SeverityNote, v1alpha1.ReasonNoPodsMatched, "",
			"it decides over no container of an unfinished pod with restartPolicy Never or OnFailure"))
	}
	sortFindings(result.Findings)
	return result
}

// RefusedPolicy reports on a policy that the API server would refuse, given why. It is not in force, and nothing else is said
// of it.
func RefusedPolicy(ref resolve.PolicyRef, refusals []string) PolicyReport {
	result := PolicyReport{Kind: string(ref.Kind), Namespace: ref.Namespace, Name: ref.Name, Pods: []PolicyPod{}, Findings: []Finding{}}
	for _, refusal := range refusals {
		result.Findings = append(result.Findings, finding(SeverityProblem, v1alpha1.ReasonPolicyRefused, "", refusal))
	}
	return result
}

// add takes over what a pod's report says of the policy.
func (r *PolicyReport) add(policy Policy, report *Report) {
	var decides []string
	for _, container := range report.Containers {
		if container.Role == RoleSidecar && container.DeclaredBy == policy.Ref.String() {
			decides = append(decides, container.Name)
		}
	}
	where := fmt.Sprintf("%s %s/%s", report.Kind, report.Namespace, report.Name)
	for _, f := range report.Findings {
		ofPolicy := f.Severity != SeverityNote && f.Reason != v1alpha1.ReasonMayHang && (len(decides) > 0 || f.Reason == v1alpha1.ReasonDryRun)
		if ofPolicy && (f.Container == "" || policy.names(f.Container)) {
			f.Message = where + ": " + f.Message
			r.Findings = append(r.Findings, f)
		}
	}
	for _, loss := range report.losses {
		if loss.Loser == policy.Ref {
			r.Findings = append(r.Findings, finding(SeverityNote, v1alpha1.ReasonOverridden, loss.Container,
				fmt.Sprintf("%s: %s decides over container %s%s", where, loss.Winner, loss.Container, andOthers(loss.Others))))
		}
	}
	if len(decides) > 0 {
		r.Pods = append(r.Pods, PolicyPod{
			Kind: report.Kind, Namespace: report.Namespace, Name: report.Name,
			Stage: report.Stage, Reason: report.StageReason, Message: report.Message, Containers: decides,
		})
	}
}

func (p Policy) names(container string) bool {
	return resolve.Policy{Ref: p.Ref, Spec: p.Spec}.Names(container)
}
