// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// manyRequests is the number of policies that ask for conversion of pods of one namespace, from which on the creation of its
// pods becomes noticeably slower.
const manyRequests = 50

// requestingPolicy is an enforced policy that asks for conversion to native sidecars.
type requestingPolicy struct {
	name      string
	namespace string // empty for the cluster kind
	labeled   bool
}

// conversion checks whether the cluster converts pods as policies ask, and whether its constants match the operator's flags.
func (c *checker) conversion(ctx context.Context) error {
	c.name = "NativeConversion"
	component, err := observe.NativeComponent(ctx, c.client)
	if err != nil {
		return err
	}
	if component.Unreadable != "" {
		c.warn("request permission to read them, or ask someone who has it", "you may not read the admission policies of the component native")
		return nil
	}
	requests, err := c.conversionRequests(ctx)
	if err != nil {
		return c.policiesUnread(err)
	}
	missing := component.Incomplete()
	installed := len(component.Policies)+len(component.Bound) > 0
	switch {
	case missing == "":
		c.ok("the component native is installed; enforced policies that ask for conversion to native sidecars: %d", len(requests))
	case installed || len(requests) > 0:
		c.warn("install the component native: "+c.installer.apply("overlays/native", "native.enabled=true"), "enforced policies that ask for conversion to native sidecars: %d, but %s", len(requests), missing)
	default:
		c.ok("no enforced policy asks for conversion to native sidecars, and the component native is not installed")
	}
	if !installed {
		return nil
	}
	c.constants(component)
	c.requests(requests)
	return nil
}

// conversionRequests lists the enforced policies that ask for conversion. It leaves out those with an invalid selector, which select
// nothing.
func (c *checker) conversionRequests(ctx context.Context) ([]requestingPolicy, error) {
	namespaced, cluster, err := c.listPolicies(ctx)
	if err != nil {
		return nil, err
	}
	var all []requestingPolicy
	add := func(name string, labels map[string]string, policy resolve.Policy, invalid error) {
		if invalid == nil && policy.Spec.Enforcement.Acts() && native.Requests(policy.Spec) {
			all = append(all, requestingPolicy{name, policy.Ref.Namespace, native.Labeled(labels)})
		}
	}
	for i := range namespaced {
		p := &namespaced[i]
		policy, err := resolve.FromNamespaced(p)
		add("policy "+p.Namespace+"/"+p.Name, p.Labels, policy, err)
	}
	for i := range cluster {
		p := &cluster[i]
		policy, err := resolve.FromCluster(p)
		add("clusterpolicy "+p.Name, p.Labels, policy, err)
	}
	return all, nil
}

// requests checks whether the admission policies find the policies, and how many they find.
func (c *checker) requests(requests []requestingPolicy) {
	c.name = "ConversionRequests"
	var unlabeled []string
	count := map[string]int{}
	for _, request := range requests {
		count[request.namespace]++
		if !request.labeled {
			unlabeled = append(unlabeled, request.name)
		}
	}
	if len(unlabeled) > 0 {
		c.warn(fmt.Sprintf("apply them again, or label them: kubectl label KIND NAME %s=%s", v1alpha1.LabelNativeConversion, v1alpha1.NativeConversionPreferred),
			"the admission policies do not see policies that were last written before the component native was installed: %s", firstOf(unlabeled))
	}
	for _, namespace := range slices.Sorted(maps.Keys(count)) {
		if n := count[namespace]; n >= manyRequests {
			kind, where := "policies in namespace "+namespace, "in that namespace"
			if namespace == "" {
				kind, where = "cluster policies", "in every namespace"
			}
			c.warn("merge them: one policy may list 32 sidecars", "%d %s ask for conversion, and each slows down the creation of every pod %s", n, kind, where)
		}
	}
}

// constants compares the constants of the admission policies with the operator's flags.
func (c *checker) constants(component native.Component) {
	c.name = "ConversionConstants"
	if c.flagsError != nil {
		return
	}
	before := len(c.checks)
	constantsHint := "change the constants in the component native, and install it again"
	if c.installer.release != "" {
		constantsHint = "change native in the values: " + c.installer.upgrade("native.CONSTANT=VALUE")
	}
	differences := map[string][]string{} // with the names of the admission policies
	for _, label := range []string{native.NamespacedPolicy, native.ClusterPolicy, native.EnvironmentPolicy} {
		policy, ok := component.Policies[label]
		if !ok {
			continue
		}
		name := policy.Name
		options, err := native.ParseOptions(policy.Spec.Variables)
		if err != nil {
			c.warn(constantsHint, "admission policy %s: %v", name, err)
			continue
		}
		for _, difference := range constantDifferences(options, c.settings) {
			differences[difference] = append(differences[difference], name)
		}
	}
	for _, difference := range slices.Sorted(maps.Keys(differences)) {
		c.warn(constantsHint, "%s (%s)", difference, strings.Join(differences[difference], ", "))
	}
	if len(c.checks) == before {
		c.ok("the constants of the component native match the operator's flags")
	}
}

// constantDifferences lists how the constants of an admission policy differ from the operator's flags.
func constantDifferences(options native.Options, operator settings.Operator) []string {
	var all []string
	if want := cmp.Or(operator.Resolve.ExitCodes, v1alpha1.ExitCodesIgnore); options.ExitCodes != want {
		all = append(all, fmt.Sprintf("the operator runs with --default-exit-codes=%s, but defaultExitCodes is %s", want, options.ExitCodes))
	}
	if options.IgnoreEnv != operator.Resolve.IgnoreEnv {
		state := map[bool]string{false: "Enabled", true: "Disabled"}[operator.Resolve.IgnoreEnv]
		all = append(all, fmt.Sprintf("the operator runs with --env-convention=%s, but readEnvironment is %t", state, !options.IgnoreEnv))
	}
	for _, label := range operator.NodeKindRules.Virtual.Labels {
		if value, marked := options.VirtualNodes.NodeSelector[label.Key]; !marked || label.Value != "" && label.Value != value {
			all = append(all, fmt.Sprintf("nodes with label %s are virtual for the operator, but virtualNodeSelector lacks the label",
				strings.TrimSuffix(label.Key+"="+label.Value, "=")))
		}
	}
	for _, taint := range operator.NodeKindRules.Virtual.Taints {
		if !slices.Contains(options.VirtualNodes.Tolerations, taint) {
			all = append(all, fmt.Sprintf("nodes with taint %s are virtual for the operator, but virtualTolerations lacks the taint", taint))
		}
	}
	return all
}
