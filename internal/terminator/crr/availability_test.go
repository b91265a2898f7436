// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guarding is the webhook of an installed Kruise.
func guarding() admissionv1.MutatingWebhook {
	return admissionv1.MutatingWebhook{
		Name:          "mcontainerrecreaterequest.kb.io",
		FailurePolicy: ptr.To(admissionv1.Fail),
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{
				APIGroups: []string{"apps.kruise.io"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"containerrecreaterequests"},
			},
		}},
	}
}

func TestRequestsAreGuardedByAWebhookThatCannotBePassedBy(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*admissionv1.MutatingWebhook)
		want   bool
	}{
		"Kruise's own":                 {func(*admissionv1.MutatingWebhook) {}, true},
		"one that may be down":         {func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = ptr.To(admissionv1.Ignore) }, false},
		"one without a failure policy": {func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = nil }, false},
		"one that sees no creation": {func(w *admissionv1.MutatingWebhook) {
			w.Rules[0].Operations = []admissionv1.OperationType{admissionv1.Update}
		}, false},
		"one of another group":          {func(w *admissionv1.MutatingWebhook) { w.Rules[0].APIGroups = []string{"apps"} }, false},
		"one of another kind of Kruise": {func(w *admissionv1.MutatingWebhook) { w.Rules[0].Resources = []string{"clonesets"} }, false},
		"one that has no rule at all":   {func(w *admissionv1.MutatingWebhook) { w.Rules = nil }, false},
		"one that has a rule besides it": {func(w *admissionv1.MutatingWebhook) {
			w.Rules = append([]admissionv1.RuleWithOperations{{}}, w.Rules...)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := guarding()
			tc.change(&webhook)
			configuration := admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{Name: "other"}, webhook}}
			if got := GuardsRequests(configuration); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestThePodIsToldWhenKruiseBecomesThroughWithARequest(t *testing.T) {
	request := func(finished bool) *kruise.ContainerRecreateRequest {
		r := &kruise.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "r"}}
		r.Spec.PodName = "job-1"
		if finished {
			r.Status.CompletionTime = ptr.To(metav1.Now())
		}
		return r
	}
	for name, tc := range map[string]struct {
		before, after bool
		want          []types.NamespacedName
	}{
		"it has just finished":     {false, true, []types.NamespacedName{{Namespace: "batch", Name: "job-1"}}},
		"it finished earlier":      {true, true, nil},
		"it is being worked on":    {false, false, nil},
		"it was replaced by a new": {true, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []types.NamespacedName
			handler := whenFinished(func(pod types.NamespacedName) { got = append(got, pod) })
			handler.OnAdd(request(tc.before), false)
			handler.OnUpdate(request(tc.before), request(tc.after))
			handler.OnDelete(request(tc.after))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyOneDefinitionAndOneConfigurationAreWatched(t *testing.T) {
	got := map[string]string{}
	for object, options := range CacheOptions() {
		switch object.(type) {
		case *apiextensionsv1.CustomResourceDefinition:
			got["definition"] = options.Field.String()
		case *admissionv1.MutatingWebhookConfiguration:
			got["configuration"] = options.Field.String()
		default:
			t.Errorf("%T is watched", object)
		}
	}
	want := map[string]string{
		"definition":    "metadata.name=containerrecreaterequests.apps.kruise.io",
		"configuration": "metadata.name=kruise-mutating-webhook-configuration",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("selectors (-want +got):\n%s", diff)
	}
}

func TestTheSchemaOfTheDefinitionIsNotKept(t *testing.T) {
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: DefinitionName, ManagedFields: []metav1.ManagedFieldsEntry{{}}},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: "apps.kruise.io"},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established}},
		},
	}
	got, err := keepConditions(definition)
	if err != nil {
		t.Fatal(err)
	}
	want := client.Object(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: DefinitionName}, Status: definition.Status,
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
}
