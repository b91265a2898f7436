// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
)

// component returns the objects of the component native, with the change to their variables.
func component(change map[string]string) []client.Object {
	variables := map[string]string{
		"virtualPodLabels": `{}`, "virtualNamespaceLabels": `{}`, "virtualNodeSelector": `{"type": "virtual-kubelet"}`,
		"virtualTolerations": `["virtual-kubelet.io/provider"]`, "virtualSchedulers": `[]`, "defaultExitCodes": `"Ignore"`, "readEnvironment": `true`,
	}
	maps.Copy(variables, change)
	var objects []client.Object
	for _, label := range native.AdmissionPolicies {
		policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{
			Name: "team-a-" + strings.ToLower(label), Labels: map[string]string{v1alpha1.LabelNativePolicy: label},
		}}
		for variable, expression := range variables {
			policy.Spec.Variables = append(policy.Spec.Variables, admissionv1.Variable{Name: variable, Expression: expression})
		}
		binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
		binding.Spec.PolicyName = policy.Name
		objects = append(objects, policy, binding)
	}
	return objects
}

// The operator and check look for these labels and read these constants.
func TestInstalledComponentIsKnown(t *testing.T) {
	labels := map[string][]string{}
	for _, object := range render(t, "overlays/native") {
		kind := object.GetKind()
		if !strings.HasPrefix(kind, "MutatingAdmissionPolicy") {
			continue
		}
		label := object.GetLabels()[v1alpha1.LabelNativePolicy]
		labels[kind] = append(labels[kind], label)
		content, err := object.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var policy admissionv1.MutatingAdmissionPolicy
		if err := yaml.Unmarshal(content, &policy); err != nil {
			t.Fatal(err)
		}
		if kind != "MutatingAdmissionPolicy" || label == native.LabelingPolicy {
			continue
		}
		options, err := native.ParseOptions(policy.Spec.Variables)
		want := native.Options{ExitCodes: v1alpha1.ExitCodesIgnore, VirtualNodes: native.DefaultVirtualNodeMarks()}
		if diff := cmp.Diff(want, options); diff != "" || err != nil {
			t.Errorf("%s: error %v; options (-want +got):\n%s", policy.Name, err, diff)
		}
	}
	for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
		slices.Sort(labels[kind])
		if diff := cmp.Diff(slices.Sorted(slices.Values(native.AdmissionPolicies)), labels[kind]); diff != "" {
			t.Errorf("%s (-known +installed):\n%s", kind, diff)
		}
	}
}

// preferring returns a policy that asks for conversion.
func preferring(namespace, name string, labeled bool) client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if labeled {
		meta.Labels = map[string]string{v1alpha1.LabelNativeConversion: "Preferred"}
	}
	spec := v1alpha1.PolicySpec{
		Sidecars:            []v1alpha1.Sidecar{{Name: "proxy"}},
		TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: v1alpha1.NativeConversionPreferred},
	}
	if namespace == "" {
		return &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: meta, Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{PolicySpec: spec}}
	}
	return &v1alpha1.SidecarTerminationPolicy{ObjectMeta: meta, Spec: v1alpha1.SidecarTerminationPolicySpec{PolicySpec: spec}}
}

func TestConversion(t *testing.T) {
	const installed, matches = "OK the component native is installed; enforced policies that ask for conversion to native sidecars: %d",
		"OK the constants of the component native match the operator's flags"
	ready := func(requests int) string { return fmt.Sprintf(installed, requests) }
	dryRun := preferring("batch", "dry-run", false).(*v1alpha1.SidecarTerminationPolicy)
	dryRun.Spec.Enforcement = v1alpha1.EnforcementDryRun
	invalid := preferring("batch", "invalid", false).(*v1alpha1.SidecarTerminationPolicy)
	invalid.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}
	many := func(n int, namespace string) []client.Object {
		var all []client.Object
		for i := range n {
			all = append(all, preferring(namespace, fmt.Sprintf("p%02d", i), true))
		}
		return all
	}
	without := func(label string) []client.Object {
		return slices.DeleteFunc(component(nil), func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelNativePolicy] == label })
	}
	for name, tc := range map[string]struct {
		flags   []string
		objects []client.Object
		want    []string
	}{
		"nothing": {nil, nil, []string{"OK no enforced policy asks for conversion to native sidecars, and the component native is not installed"}},
		"a request without the component": {nil, []client.Object{preferring("batch", "mesh", false), dryRun, invalid}, []string{
			"Warning enforced policies that ask for conversion to native sidecars: 1, but the component native is not installed, so the modes end the sidecars; " +
				"install it, or set nativeConversion to None",
		}},
		"the component without a request": {nil, component(nil), []string{ready(0), matches}},
		"requests of both kinds":          {nil, append(component(nil), preferring("batch", "mesh", true), preferring("", "mesh", true)), []string{ready(2), matches}},
		"requests that are not labeled": {nil, append(component(nil), preferring("batch", "mesh", false), preferring("", "mesh", false), dryRun, invalid), []string{
			ready(2), matches,
			"Warning the admission policies do not see policies that were last written before the component native was installed: " +
				"policy batch/mesh, clusterpolicy mesh",
		}},
		"a missing admission policy": {nil, without(native.EnvironmentPolicy), []string{
			"Warning enforced policies that ask for conversion to native sidecars: 0, but the MutatingAdmissionPolicy with label sidecartermination.dev/native-policy=Environment is missing, " +
				"so the modes end the sidecars; install the component native again",
			matches,
		}},
		"49 requests": {nil, append(component(nil), many(49, "batch")...), []string{ready(49), matches}},
		"50 requests in a namespace": {nil, append(component(nil), many(50, "batch")...), []string{
			ready(50), matches, "Warning 50 policies in namespace batch ask for conversion, and each slows down the creation of every pod in that namespace",
		}},
		"50 requests of the cluster": {nil, append(component(nil), many(50, "")...), []string{
			ready(50), matches, "Warning 50 cluster policies ask for conversion, and each slows down the creation of every pod in every namespace",
		}},
		"flags of another installation": {
			[]string{"--default-exit-codes=Respect", "--env-convention=Disabled", "--virtual-node-label=kind=eci", "--virtual-node-taint=example.com/virtual"},
			component(nil), []string{
				ready(0),
				"Warning nodes with label kind=eci are virtual for the operator, but virtualNodeSelector lacks the label (" + converting + ")",
				"Warning nodes with taint example.com/virtual are virtual for the operator, but virtualTolerations lacks the taint (" + converting + ")",
				"Warning the operator runs with --default-exit-codes=Respect, but defaultExitCodes is Ignore (" + converting + ")",
				"Warning the operator runs with --env-convention=Disabled, but readEnvironment is true (" + converting + ")",
			},
		},
		"constants for these flags": {
			[]string{"--default-exit-codes=Respect", "--env-convention=Disabled", "--virtual-node-label=kind", "--virtual-node-taint=example.com/virtual"},
			component(map[string]string{
				"defaultExitCodes": `"Respect"`, "readEnvironment": `false`, "virtualNodeSelector": `{"type": "virtual-kubelet", "kind": "eci"}`,
				"virtualTolerations": `["virtual-kubelet.io/provider", "example.com/virtual"]`,
			}), []string{ready(0), matches},
		},
		"a constant that is an expression": {nil, component(map[string]string{"readEnvironment": `1 == 1`}), []string{
			ready(0),
			"Warning admission policy team-a-namespaced: " + notConstant,
			"Warning admission policy team-a-cluster: " + notConstant,
			"Warning admission policy team-a-environment: " + notConstant,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			types, err := scheme.New()
			if err != nil {
				t.Fatal(err)
			}
			c := &checker{client: fake.NewClientBuilder().WithScheme(types).WithObjects(tc.objects...).Build()}
			if c.settings, err = settings.Parse(tc.flags); err != nil {
				t.Fatal(err)
			}
			if err := c.conversion(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, check := range c.checks {
				got = append(got, string(check.Outcome)+" "+check.Message)
				if (check.Hint == "") != (check.Outcome == outcomeOK) {
					t.Errorf("hint %q of: %s", check.Hint, check.Message)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// converting are the admission policies with constants.
const converting = "team-a-namespaced, team-a-cluster, team-a-environment"

const notConstant = `variable readEnvironment is not the expected constant, but "1 == 1"; write it as JSON, such as true`
