// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/shipped"
)

func TestOutcomePolicy(t *testing.T) {
	named := metav1.ObjectMeta{Name: shipped.OutcomePolicy}
	policy, binding := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: named}, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: named}
	for name, tc := range map[string]struct {
		objects []client.Object
		missing bool
	}{
		"policy and binding": {[]client.Object{policy, binding}, false},
		"policy only":        {[]client.Object{policy}, true},
		"binding only":       {[]client.Object{binding}, true},
		"validating policy": {[]client.Object{
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: named}, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named},
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChecker(t, nil, tc.objects...)
			if err := c.checkAdmission(t.Context()); err != nil {
				t.Fatal(err)
			}
			const warning = "Warning admission policy sidecar-termination-outcome is missing: " +
				"exit codes of sidecars count as in Kubernetes, and mode PodPhase cannot be used; it needs Kubernetes 1.36"
			if got := slices.Contains(c.lines(), warning); got != tc.missing {
				t.Errorf("missing: %t, want %t: %q", got, tc.missing, c.lines())
			}
		})
	}
}

// The API server adds defaults to what is installed, and the chart replaces names, also of the service account.
func TestChangedAdmissionPolicies(t *testing.T) {
	set := func(value any, fields ...string) func(*testing.T, *unstructured.Unstructured) {
		return func(t *testing.T, object *unstructured.Unstructured) {
			t.Helper()
			if err := unstructured.SetNestedField(object.Object, value, fields...); err != nil {
				t.Fatal(err)
			}
		}
	}
	const limits, binding = "ValidatingAdmissionPolicy/sidecar-termination-operator-limits", "ValidatingAdmissionPolicyBinding/sidecar-termination-operator-limits"
	for name, tc := range map[string]struct {
		object string
		change func(*testing.T, *unstructured.Unstructured)
		want   string
	}{
		"as shipped": {limits, set(map[string]any{}, "spec", "matchConstraints", "namespaceSelector"), ""},
		"binding on Audit": {binding, set([]any{"Audit"}, "spec", "validationActions"),
			"admission policy sidecar-termination-operator-limits is not as this version ships it: ValidatingAdmissionPolicyBinding spec.validationActions[0]"},
		"binding for no namespace": {binding, set(map[string]any{"matchLabels": map[string]any{"a": "b"}}, "spec", "matchResources", "namespaceSelector"),
			"admission policy sidecar-termination-operator-limits is not as this version ships it: ValidatingAdmissionPolicyBinding spec.matchResources"},
		"policy for no namespace": {limits, set(map[string]any{"matchLabels": map[string]any{"a": "b"}}, "spec", "matchConstraints", "namespaceSelector"),
			"admission policy sidecar-termination-operator-limits is not as this version ships it: ValidatingAdmissionPolicy spec.matchConstraints.namespaceSelector"},
		"validations replaced": {limits, set([]any{map[string]any{"expression": "true"}}, "spec", "validations"),
			"admission policy sidecar-termination-operator-limits is not as this version ships it: ValidatingAdmissionPolicy spec.validations"},
	} {
		for release, account := range map[string]string{"sidecar-termination": settings.DeploymentName, "acme": "batch"} {
			t.Run(name+", "+release, func(t *testing.T) {
				objects, err := config.AdmissionPolicies()
				if err != nil {
					t.Fatal(err)
				}
				installed := []client.Object{}
				for i := range objects {
					if objects[i].GetKind()+"/"+objects[i].GetName() == tc.object {
						tc.change(t, &objects[i])
					}
					renamed, err := json.Marshal(objects[i].Object)
					if err != nil {
						t.Fatal(err)
					}
					object := &unstructured.Unstructured{}
					names := strings.NewReplacer(settings.DeploymentName, account, "sidecar-termination-mode-", release+"-mode-",
						"sidecar-termination-operator-", release+"-operator-", "sidecar-termination-outcome", release+"-outcome",
						"sidecar-termination-marks", release+"-marks")
					if err := object.UnmarshalJSON([]byte(names.Replace(string(renamed)))); err != nil {
						t.Fatal(err)
					}
					installed = append(installed, object)
				}
				c := newChecker(t, nil, installed...)
				c.deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: release + "-controller-manager", Namespace: settings.Namespace}}
				c.deployment.Spec.Template.Spec.ServiceAccountName = account
				if err := c.checkAdmission(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := "OK all 8 admission policies are installed, as this version ships them: they limit the operator and the authors of policies"
				if tc.want != "" {
					want = "Warning " + strings.ReplaceAll(tc.want, "sidecar-termination-", release+"-")
				}
				if diff := cmp.Diff([]string{want}, c.lines()); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestAddedRules(t *testing.T) {
	roles, err := config.Roles(config.ManagerRoles)
	if err != nil {
		t.Fatal(err)
	}
	for name, added := range map[string][]rbacv1.PolicyRule{
		"as shipped": nil,
		"added":      {{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}}},
	} {
		role := roles[0].DeepCopy()
		role.Rules = append(role.Rules, added...)
		c := newChecker(t, nil, role)
		if err := c.checkRoles(t.Context()); err != nil {
			t.Fatal(err)
		}
		var want []string
		if added != nil {
			want = []string{"Warning ClusterRole " + role.Name + " has rules that this version does not ship: get, list secrets"}
		}
		if diff := cmp.Diff(want, c.lines()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestUncheckedPolicies(t *testing.T) {
	installed := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	written := func(after time.Duration, subresource, fields string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(installed.Add(after))
		return metav1.ManagedFieldsEntry{Time: &at, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const spec, status, labels = `{"f:spec":{"f:mode":{}}}`, `{"f:status":{}}`, `{"f:metadata":{"f:labels":{"f:spec":{}}}}`
	since := map[string]time.Time{shipped.AuthorsPrefix + "crr": installed, shipped.AuthorsOfPrePull: installed.Add(time.Hour), shipped.OutcomePolicy: installed.Add(time.Hour)}
	for name, tc := range map[string]struct {
		created time.Duration
		fields  []metav1.ManagedFieldsEntry
		prePull *v1alpha1.PrePull
		want    bool
	}{
		"created before":                      {created: -time.Minute, want: true},
		"created in the same second":          {created: 0, want: true},
		"created before they were enforced":   {created: 4 * time.Second, want: true},
		"created after":                       {created: time.Minute, want: false},
		"spec changed after":                  {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "", spec)}, want: false},
		"spec last changed after":             {created: -time.Hour, fields: []metav1.ManagedFieldsEntry{written(-time.Minute, "", spec), written(time.Minute, "", spec)}, want: false},
		"only status changed after":           {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "status", status)}, want: true},
		"only labels changed after":           {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "", labels)}, want: true},
		"invalid managed fields":              {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "", "{")}, want: true},
		"prePull before its admission policy": {created: time.Minute, prePull: &v1alpha1.PrePull{}, want: true},
		"prePull after its admission policy":  {created: 2 * time.Hour, prePull: &v1alpha1.PrePull{}, want: false},
	} {
		object := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{
			CreationTimestamp: metav1.NewTime(installed.Add(tc.created)), ManagedFields: tc.fields,
		}}
		if got := isUnchecked(policy{object: object, spec: &v1alpha1.PolicySpec{PrePull: tc.prePull}}, since); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
