// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
)

// inertPolicy returns an admission policy with the label that never applies, and its binding.
func inertPolicy(label string) (*admissionv1.MutatingAdmissionPolicy, *admissionv1.MutatingAdmissionPolicyBinding) {
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: "team-a-" + strings.ToLower(label), Labels: map[string]string{v1alpha1.LabelNativePolicy: label},
	}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{"inert.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
		},
	}}}
	policy.Spec.ReinvocationPolicy = admissionv1.IfNeededReinvocationPolicy
	policy.Spec.Mutations = []admissionv1.Mutation{{
		PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: "[JSONPatch{op: 'test', path: '/kind', value: 'None'}]"},
	}}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
	binding.Spec.PolicyName = policy.Name
	return policy, binding
}

func TestConversionOnAPIServer(t *testing.T) {
	f := newFixture(t)
	options := testOptions()
	options.ConversionInterval = 100 * time.Millisecond
	f.startOperator(options)
	policy := f.newPolicy("mesh", func(s *v1alpha1.PolicySpec) { s.NativeConversion = v1alpha1.NativeConversionPreferred })
	unavailable := func(because string) {
		t.Helper()
		f.untilStatus(policy, "conversion is unavailable: "+because, func(s v1alpha1.PolicyStatus) bool {
			degraded := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDegraded)
			if because == "" {
				return degraded == nil
			}
			return degraded != nil && degraded.Reason == string(v1alpha1.ReasonConversionUnavailable) && strings.Contains(degraded.Message, because) &&
				meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
		})
	}

	unavailable("the component native is not installed")
	var installed []*admissionv1.MutatingAdmissionPolicy
	var bindings []*admissionv1.MutatingAdmissionPolicyBinding
	defer func() {
		for _, binding := range bindings {
			f.remove(binding)
		}
	}()
	for _, label := range native.AdmissionPolicies {
		admission, binding := inertPolicy(label)
		f.create(admission, binding)
		installed, bindings = append(installed, admission), append(bindings, binding)
	}
	unavailable("apply it again")
	f.reload(policy)
	policy.Labels = map[string]string{v1alpha1.LabelNativeConversion: "Preferred"}
	if err := f.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	unavailable("")

	pod := f.newPod("converted", func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{{Name: "proxy", Image: "proxy:v1", RestartPolicy: &always}}
		p.Spec.Containers, p.Status.ContainerStatuses = p.Spec.Containers[:1], p.Status.ContainerStatuses[:1]
		p.Annotations = map[string]string{v1alpha1.AnnotationNativeSidecars: "proxy=SidecarTerminationPolicy/mesh"}
	})
	native := func(want int32, ready v1alpha1.Reason) {
		t.Helper()
		f.untilStatus(policy, fmt.Sprintf("%d converted pods", want), func(s v1alpha1.PolicyStatus) bool {
			condition := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
			return s.NativePods == want && s.MatchedPods == 0 && condition.Reason == string(ready)
		})
	}
	native(1, v1alpha1.ReasonEnforced)
	if events, err := f.eventsOn(t.Context(), pod); err != nil || len(events) > 0 {
		t.Errorf("events %q: %v", events, err)
	}
	f.untouched(pod)
	f.remove(pod)
	native(0, v1alpha1.ReasonNoPodsMatched)

	for _, admission := range installed {
		f.remove(admission)
	}
	unavailable("the MutatingAdmissionPolicy with label sidecartermination.dev/native-policy=Label is missing")
	f.nothingWentWrong()
}
