// SPDX-License-Identifier: Apache-2.0

package native_test

import (
	"cmp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// installed returns the whole component after the change.
func installed(change func(*native.Component)) native.Component {
	c := native.Component{Served: true, Policies: map[string]*admissionv1.MutatingAdmissionPolicy{}, Bound: map[string]string{}}
	for _, label := range native.AdmissionPolicies {
		policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "team-a-" + label}}
		c.Policies[label], c.Bound[label] = policy, policy.Name
	}
	change(&c)
	return c
}

func TestComponentOfSeveralPolicies(t *testing.T) {
	meta := func(name, label string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelNativePolicy: label}}
	}
	policy := func(name, label string) admissionv1.MutatingAdmissionPolicy {
		return admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta(name, label)}
	}
	binding := func(name, label, binds string) admissionv1.MutatingAdmissionPolicyBinding {
		return admissionv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: meta(name, label), Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: binds},
		}
	}
	type policies = []admissionv1.MutatingAdmissionPolicy
	type bindings = []admissionv1.MutatingAdmissionPolicyBinding
	for name, tc := range map[string]struct {
		policies policies
		bindings bindings
		want     []string // label, policy and what the binding binds
	}{
		"nothing":               {nil, nil, nil},
		"unknown labels":        {policies{policy("a", "Other")}, bindings{binding("a", "", "a")}, nil},
		"one":                   {policies{policy("a", "Label")}, bindings{binding("b", "Label", "a")}, []string{"Label a a"}},
		"no binding":            {policies{policy("a", "Label"), policy("b", "Label")}, nil, []string{"Label a -"}},
		"no policy":             {nil, bindings{binding("a", "Label", "a"), binding("b", "Label", "b")}, []string{"Label - a"}},
		"the second is bound":   {policies{policy("a", "Label"), policy("b", "Label")}, bindings{binding("b", "Label", "b")}, []string{"Label b b"}},
		"two releases":          {policies{policy("a", "Label"), policy("b", "Label")}, bindings{binding("a", "Label", "a"), binding("b", "Label", "b")}, []string{"Label a a"}},
		"one binds another":     {policies{policy("b", "Label")}, bindings{binding("a", "Label", "a"), binding("b", "Label", "b")}, []string{"Label b b"}},
		"only another is bound": {policies{policy("b", "Label")}, bindings{binding("a", "Label", "a")}, []string{"Label b a"}},
		"another kind is bound": {policies{policy("a", "Label")}, bindings{binding("a", "Cluster", "a")}, []string{"Label a -", "Cluster - a"}},
	} {
		t.Run(name, func(t *testing.T) {
			component := native.NewComponent(tc.policies, tc.bindings)
			var got []string
			for _, label := range native.AdmissionPolicies {
				installed, bound := "-", cmp.Or(component.Bound[label], "-")
				if policy := component.Policies[label]; policy != nil {
					installed = policy.Name
				}
				if installed+bound != "--" {
					got = append(got, label+" "+installed+" "+bound)
				}
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnavailable(t *testing.T) {
	const (
		old = "the cluster does not serve MutatingAdmissionPolicies in version v1, so the modes end the sidecars; " +
			"upgrade to Kubernetes 1.36 or later, or set nativeConversion to None"
		none    = "the component native is not installed, so the modes end the sidecars; install it, or set nativeConversion to None"
		notRead = "the operator runs with --watch-namespaces and does not read admission policies, so it cannot tell whether the cluster converts pods. " +
			"The modes end the sidecars of pods that were not converted"
		denied = `the operator cannot tell whether the cluster converts pods: forbidden; restore the operator's roles`
	)
	missing := func(object string) string {
		return object + ", so the modes end the sidecars; install the component native again"
	}
	for name, tc := range map[string]struct {
		component           native.Component
		namespaced, cluster string
		incomplete          bool
	}{
		"all installed":      {installed(func(*native.Component) {}), "", "", false},
		"older Kubernetes":   {native.Component{}, old, old, true},
		"not installed":      {native.Component{Served: true}, none, none, true},
		"not read":           {native.Component{NotRead: true}, notRead, notRead, true},
		"missing permission": {native.Component{Served: true, Unreadable: "forbidden"}, denied, denied, true},
		"no labeling policy": {
			installed(func(c *native.Component) { delete(c.Policies, native.LabelingPolicy) }),
			missing("the MutatingAdmissionPolicy with label sidecartermination.dev/native-policy=Label is missing"),
			missing("the MutatingAdmissionPolicy with label sidecartermination.dev/native-policy=Label is missing"), true,
		},
		"no policy of one kind": {
			installed(func(c *native.Component) { delete(c.Policies, native.ClusterPolicy) }),
			"", missing("the MutatingAdmissionPolicy with label sidecartermination.dev/native-policy=Cluster is missing"), true,
		},
		"no binding": {
			installed(func(c *native.Component) { delete(c.Bound, native.NamespacedPolicy) }),
			missing("the MutatingAdmissionPolicyBinding with label sidecartermination.dev/native-policy=Namespaced is missing"), "", true,
		},
		"no policies but bindings": {
			installed(func(c *native.Component) { clear(c.Policies) }),
			missing("the MutatingAdmissionPolicy with label sidecartermination.dev/native-policy=Label is missing"),
			missing("the MutatingAdmissionPolicy with label sidecartermination.dev/native-policy=Label is missing"), true,
		},
		"a binding of another policy": {
			installed(func(c *native.Component) { c.Bound[native.NamespacedPolicy] = "other" }),
			missing("the MutatingAdmissionPolicyBinding with label sidecartermination.dev/native-policy=Namespaced binds another policy (other)"), "", true,
		},
		"environment is independent": {
			installed(func(c *native.Component) {
				delete(c.Policies, native.EnvironmentPolicy)
				delete(c.Bound, native.EnvironmentPolicy)
			}), "", "", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(tc.namespaced, tc.component.Unavailable(resolve.KindNamespaced)); diff != "" {
				t.Errorf("namespaced (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(tc.cluster, tc.component.Unavailable(resolve.KindCluster)); diff != "" {
				t.Errorf("cluster (-want +got):\n%s", diff)
			}
			if got := tc.component.Incomplete(); (got != "") != tc.incomplete {
				t.Errorf("incomplete: %q", got)
			}
		})
	}
}

func TestLabeled(t *testing.T) {
	for value, want := range map[string]bool{"Preferred": true, "preferred": false, "false": false, "": false} {
		if got := native.Labeled(map[string]string{v1alpha1.LabelNativeConversion: value}); got != want {
			t.Errorf("value %q: got %t", value, got)
		}
	}
	if native.Labeled(nil) {
		t.Error("labeled without labels")
	}
}

// constants are the variables of the component, with one set to another expression, or removed if that is empty.
func constants(name, expression string) []admissionv1.Variable {
	all := []admissionv1.Variable{
		{Name: "virtualPodLabels", Expression: `{"alibabacloud.com/eci": "true"}`},
		{Name: "virtualNamespaceLabels", Expression: `{"alibabacloud.com/eci": "true"}`},
		{Name: "virtualNodeSelector", Expression: `{"type": "virtual-kubelet"}`},
		{Name: "virtualTolerations", Expression: `["virtual-kubelet.io/provider"]`},
		{Name: "virtualSchedulers", Expression: `["eci-scheduler"]`},
		{Name: "defaultExitCodes", Expression: `"Ignore"`},
		{Name: "readEnvironment", Expression: `true`},
		{Name: "by", Expression: `'Environment'`},
	}
	var changed []admissionv1.Variable
	for _, variable := range all {
		if variable.Name == name {
			variable.Expression = expression
		}
		if variable.Expression != "" {
			changed = append(changed, variable)
		}
	}
	return changed
}

func TestParseOptions(t *testing.T) {
	defaults := func(change func(*native.Options)) native.Options {
		o := native.Options{ExitCodes: v1alpha1.ExitCodesIgnore, VirtualNodes: native.DefaultVirtualNodeMarks()}
		change(&o)
		return o
	}
	const again = "; install the component native again"
	for name, tc := range map[string]struct {
		variable, expression string
		want                 native.Options
		err                  string
	}{
		"defaults":           {"", "", defaults(func(*native.Options) {}), ""},
		"no virtual nodes":   {"virtualNodeSelector", `{}`, defaults(func(o *native.Options) { o.VirtualNodes.NodeSelector = map[string]string{} }), ""},
		"another scheduler":  {"virtualSchedulers", ` ["a", "b"] `, defaults(func(o *native.Options) { o.VirtualNodes.Schedulers = []string{"a", "b"} }), ""},
		"exit codes count":   {"defaultExitCodes", `"Respect"`, defaults(func(o *native.Options) { o.ExitCodes = v1alpha1.ExitCodesRespect }), ""},
		"no environment":     {"readEnvironment", `false`, defaults(func(o *native.Options) { o.IgnoreEnv = true }), ""},
		"unknown exit codes": {"defaultExitCodes", `"Sometimes"`, native.Options{}, `variable defaultExitCodes is "Sometimes"; set it to "Ignore" or "Respect"`},
		"missing labels":     {"virtualPodLabels", "", native.Options{}, "variable virtualPodLabels is missing" + again},
		"missing setting":    {"readEnvironment", "", native.Options{}, "variable readEnvironment is missing" + again},
		"another type": {
			"virtualTolerations", `"a"`, native.Options{},
			`variable virtualTolerations is not the expected constant, but "\"a\""; write it as JSON, such as ["virtual-kubelet.io/provider"]`,
		},
		"null": {
			"virtualPodLabels", `null`, native.Options{},
			`variable virtualPodLabels is not the expected constant, but "null"; write it as JSON, such as {"alibabacloud.com/eci": "true"}`,
		},
		"an expression": {
			"defaultExitCodes", `variables.other`, native.Options{},
			`variable defaultExitCodes is not the expected constant, but "variables.other"; write it as JSON, such as "Ignore"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := native.ParseOptions(constants(tc.variable, tc.expression))
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			if (err != nil) != (tc.err != "") || err != nil && err.Error() != tc.err {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if err != nil && !strings.Contains(err.Error(), tc.variable) {
				t.Errorf("the error does not name variable %s: %v", tc.variable, err)
			}
		})
	}
}
