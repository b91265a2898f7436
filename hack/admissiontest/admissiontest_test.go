// SPDX-License-Identifier: Apache-2.0

package admissiontest_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/admissiontest"
)

func TestValidate(t *testing.T) {
	policy := func(enforcement v1alpha1.Enforcement) *v1alpha1.SidecarTerminationPolicy {
		p := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "p"}}
		p.Spec.Sidecars, p.Spec.Enforcement = []v1alpha1.Sidecar{{Name: "proxy"}}, enforcement
		return p
	}
	create := admissiontest.Request{
		Operation: admission.Create, Resource: v1alpha1.GroupVersion.WithResource("sidecarterminationpolicies"), New: policy(""),
		User: &user.DefaultInfo{Name: "jane"},
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"containerrecreaterequests"}, Verbs: []string{"create"}}
	for name, tc := range map[string]struct {
		change       func(*admissiontest.Request)
		expression   string // instead of the shipped one
		denied, fail string
	}{
		"not permitted": {denied: "jane cannot create containerrecreaterequests.apps.kruise.io in namespace batch"},
		"permitted": {change: func(r *admissiontest.Request) {
			r.Authorizer = admissiontest.Permissions{"batch": {rule}}
		}},
		"permitted elsewhere": {denied: "jane cannot create", change: func(r *admissiontest.Request) {
			r.Authorizer = admissiontest.Permissions{"other": {rule}}
		}},
		"match condition": {change: func(r *admissiontest.Request) { r.New = policy(v1alpha1.EnforcementDryRun) }},
		"update":          {denied: "jane cannot create", change: func(r *admissiontest.Request) { r.Operation, r.Old = admission.Update, policy("DryRun") }},
		"other operation": {change: func(r *admissiontest.Request) { r.Operation, r.Old, r.New = admission.Delete, r.New, nil }},
		"other resource":  {change: func(r *admissiontest.Request) { r.Subresource = "status" }},
		"failing":         {expression: "object.spec.missing == 1", fail: "no such key: missing"},
		"not compiling":   {expression: "object.", fail: "compilation failed"},
	} {
		t.Run(name, func(t *testing.T) {
			shipped, err := admissiontest.Shipped[admissionv1.ValidatingAdmissionPolicy]("sidecar-termination-mode-crr")
			if err != nil {
				t.Fatal(err)
			}
			if tc.expression != "" {
				shipped.Spec.Validations[0].Expression = tc.expression
			}
			compiled, err := admissiontest.CompileValidating(shipped)
			if err != nil {
				t.Fatal(err)
			}
			request := create
			if tc.change != nil {
				tc.change(&request)
			}
			allowed, message, err := compiled.Validate(t.Context(), request)
			if tc.fail != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fail) {
					t.Errorf("got error %v, want %q", err, tc.fail)
				}
				return
			}
			if err != nil || allowed != (tc.denied == "") || !strings.Contains(message, tc.denied) {
				t.Errorf("got %t, %q, error %v, want denial %q", allowed, message, err, tc.denied)
			}
		})
	}
}

func TestShippedUnknown(t *testing.T) {
	if _, err := admissiontest.Shipped[admissionv1.MutatingAdmissionPolicy]("sidecar-termination-mode-crr"); err == nil {
		t.Error("a ValidatingAdmissionPolicy is returned as a MutatingAdmissionPolicy")
	}
}
