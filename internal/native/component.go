// SPDX-License-Identifier: Apache-2.0

package native

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// The admission policies of the component native, by the value of LabelNativePolicy. Their bindings have the same label. A Helm release
// and kustomizations may rename them.
const (
	// LabelingPolicy labels the policies that ask for conversion.
	LabelingPolicy = "Label"
	// NamespacedPolicy and ClusterPolicy convert on request of the policies of one kind.
	NamespacedPolicy = "Namespaced"
	ClusterPolicy    = "Cluster"
	// EnvironmentPolicy converts containers that environment variables declare.
	EnvironmentPolicy = "Environment"
)

// AdmissionPolicies are the labels of all admission policies of the component.
var AdmissionPolicies = []string{LabelingPolicy, NamespacedPolicy, ClusterPolicy, EnvironmentPolicy}

// Component is what a cluster has of the component native.
type Component struct {
	// Served is true if the cluster serves MutatingAdmissionPolicies in version v1.
	Served bool
	// NotRead is true if nobody has read the admission policies, because the operator watches single namespaces.
	NotRead bool
	// Unreadable is why the admission policies cannot be read, or empty.
	Unreadable string
	// Policies are the installed admission policies of the component by label.
	Policies map[string]*admissionv1.MutatingAdmissionPolicy
	// Bound are the installed bindings by label, with the name of the policy that each binds.
	Bound map[string]string
}

// NewComponent returns the component with these admission policies and bindings, which are sorted by name. Of several with the same
// label, as of two releases, it has a policy that is bound.
func NewComponent(policies []admissionv1.MutatingAdmissionPolicy, bindings []admissionv1.MutatingAdmissionPolicyBinding) Component {
	c := Component{Served: true, Policies: map[string]*admissionv1.MutatingAdmissionPolicy{}, Bound: map[string]string{}}
	for _, label := range AdmissionPolicies {
		bound := map[string]bool{}
		for i := range bindings {
			if binding := &bindings[i]; binding.Labels[v1alpha1.LabelNativePolicy] == label {
				bound[binding.Spec.PolicyName] = true
				c.Bound[label] = cmp.Or(c.Bound[label], binding.Spec.PolicyName)
			}
		}
		for i := range policies {
			policy := &policies[i]
			if known := c.Policies[label]; policy.Labels[v1alpha1.LabelNativePolicy] == label && (known == nil || !bound[known.Name] && bound[policy.Name]) {
				c.Policies[label] = policy
			}
		}
		if policy := c.Policies[label]; policy != nil && bound[policy.Name] {
			c.Bound[label] = policy.Name
		}
	}
	return c
}

// Unavailable returns why the cluster does not convert pods on request of policies of the kind, and the way out. It is
// empty if the cluster does.
func (c Component) Unavailable(kind resolve.PolicyKind) string {
	converting := NamespacedPolicy
	if kind == resolve.KindCluster {
		converting = ClusterPolicy
	}
	return c.lacks(LabelingPolicy, converting)
}

// Incomplete returns what the cluster lacks of the whole component, and the way out. It is empty if nothing is missing.
func (c Component) Incomplete() string { return c.lacks(AdmissionPolicies...) }

// lacks returns what is missing of the admission policies, or nothing.
func (c Component) lacks(labels ...string) string {
	const modes = "so the modes end the sidecars"
	switch {
	case c.NotRead:
		return "the operator runs with --watch-namespaces and does not read admission policies, so it cannot tell whether the cluster converts pods. " +
			"The modes end the sidecars of pods that were not converted"
	case c.Unreadable != "":
		return fmt.Sprintf("the operator cannot tell whether the cluster converts pods: %s; restore the operator's roles", c.Unreadable)
	case !c.Served:
		return fmt.Sprintf("the cluster does not serve MutatingAdmissionPolicies in version v1, %s; upgrade to Kubernetes 1.36 or later, or set nativeConversion to None", modes)
	case len(c.Policies)+len(c.Bound) == 0:
		return fmt.Sprintf("the component native is not installed, %s; install it, or set nativeConversion to None", modes)
	}
	for _, label := range labels {
		policy, installed := c.Policies[label]
		bound, binding := c.Bound[label]
		selector := v1alpha1.LabelNativePolicy + "=" + label
		switch {
		case !installed:
			return fmt.Sprintf("the MutatingAdmissionPolicy with label %s is missing, %s; install the component native again", selector, modes)
		case !binding:
			return fmt.Sprintf("the MutatingAdmissionPolicyBinding with label %s is missing, %s; install the component native again", selector, modes)
		case bound != policy.Name:
			return fmt.Sprintf("the MutatingAdmissionPolicyBinding with label %s binds another policy (%s), %s; install the component native again", selector, bound, modes)
		}
	}
	return ""
}

// Labeled reports whether the labels of a policy have the admission policies find it. An admission policy keeps the label
// current at each write of the policy, so that only policies from before its installation lack the label.
func Labeled(labels map[string]string) bool {
	return labels[v1alpha1.LabelNativeConversion] == string(v1alpha1.NativeConversionPreferred)
}

// ParseOptions reads the settings of an admission policy from its variables. Environment is false: it depends on the pod's
// namespace. An error names the variable and the way out.
func ParseOptions(variables []admissionv1.Variable) (Options, error) {
	var options Options
	var readEnvironment bool
	marks := &options.VirtualNodes
	for _, constant := range []struct {
		name    string
		value   any
		example string
	}{
		{"virtualPodLabels", &marks.PodLabels, `{"alibabacloud.com/eci": "true"}`},
		{"virtualNamespaceLabels", &marks.NamespaceLabels, `{"alibabacloud.com/eci": "true"}`},
		{"virtualNodeSelector", &marks.NodeSelector, `{"type": "virtual-kubelet"}`},
		{"virtualTolerations", &marks.Tolerations, `["virtual-kubelet.io/provider"]`},
		{"virtualSchedulers", &marks.Schedulers, `["eci-scheduler"]`},
		{"defaultExitCodes", &options.ExitCodes, `"Ignore"`},
		{"readEnvironment", &readEnvironment, `true`},
	} {
		i := slices.IndexFunc(variables, func(v admissionv1.Variable) bool { return v.Name == constant.name })
		if i < 0 {
			return Options{}, fmt.Errorf("variable %s is missing; install the component native again", constant.name)
		}
		expression := variables[i].Expression
		if err := json.Unmarshal([]byte(expression), constant.value); err != nil || expression == "null" {
			return Options{}, fmt.Errorf("variable %s is not the expected constant, but %q; write it as JSON, such as %s", constant.name, expression, constant.example)
		}
	}
	if options.ExitCodes != v1alpha1.ExitCodesIgnore && options.ExitCodes != v1alpha1.ExitCodesRespect {
		return Options{}, fmt.Errorf("variable defaultExitCodes is %q; set it to %q or %q", options.ExitCodes, v1alpha1.ExitCodesIgnore, v1alpha1.ExitCodesRespect)
	}
	options.IgnoreEnv = !readEnvironment
	return options, nil
}
