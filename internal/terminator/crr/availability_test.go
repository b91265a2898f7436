// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// guarding returns the webhook of an installed OpenKruise.
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

func TestWebhookGuardsCRRs(t *testing.T) {
	labelled := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl"}}
	for name, tc := range map[string]struct {
		change func(*admissionv1.MutatingWebhook)
		want   bool
	}{
		"Kruise's own":         {func(*admissionv1.MutatingWebhook) {}, true},
		"failurePolicy Ignore": {func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = ptr.To(admissionv1.Ignore) }, false},
		"no failurePolicy":     {func(w *admissionv1.MutatingWebhook) { w.FailurePolicy = nil }, false},
		"no rule for creations": {func(w *admissionv1.MutatingWebhook) {
			w.Rules[0].Operations = []admissionv1.OperationType{admissionv1.Update}
		}, false},
		"another API group":      {func(w *admissionv1.MutatingWebhook) { w.Rules[0].APIGroups = []string{"apps"} }, false},
		"another kind of Kruise": {func(w *admissionv1.MutatingWebhook) { w.Rules[0].Resources = []string{"clonesets"} }, false},
		"objects with a label":   {func(w *admissionv1.MutatingWebhook) { w.ObjectSelector = labelled }, false},
		"some namespaces":        {func(w *admissionv1.MutatingWebhook) { w.NamespaceSelector = labelled }, false},
		"a condition":            {func(w *admissionv1.MutatingWebhook) { w.MatchConditions = make([]admissionv1.MatchCondition, 1) }, false},
		"empty selectors": {func(w *admissionv1.MutatingWebhook) {
			w.NamespaceSelector, w.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
		}, true},
		"no rules": {func(w *admissionv1.MutatingWebhook) { w.Rules = nil }, false},
		"an additional rule": {func(w *admissionv1.MutatingWebhook) {
			w.Rules = append([]admissionv1.RuleWithOperations{{}}, w.Rules...)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := guarding()
			tc.change(&webhook)
			configuration := admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{Name: "other"}, webhook}}
			if got := GuardsCRRs(configuration); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestCRRThatProgressesEnqueuesPod(t *testing.T) {
	stopping := func(killed ...bool) *kruise.ContainerRecreateRequest {
		r := &kruise.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "r"}}
		r.Spec.PodName = "job-1"
		for _, isKilled := range killed {
			r.Status.ContainerRecreateStates = append(r.Status.ContainerRecreateStates,
				kruise.ContainerRecreateRequestContainerRecreateState{IsKilled: isKilled})
		}
		return r
	}
	request := func(finished bool) *kruise.ContainerRecreateRequest {
		r := stopping()
		if finished {
			r.Status.CompletionTime = ptr.To(metav1.Now())
		}
		return r
	}
	job := []types.NamespacedName{{Namespace: "batch", Name: "job-1"}}
	for name, tc := range map[string]struct {
		event func(toolscache.ResourceEventHandler)
		want  []types.NamespacedName
	}{
		"just finished":                {func(h toolscache.ResourceEventHandler) { h.OnUpdate(request(false), request(true)) }, job},
		"finished earlier":             {func(h toolscache.ResourceEventHandler) { h.OnUpdate(request(true), request(true)) }, nil},
		"in progress":                  {func(h toolscache.ResourceEventHandler) { h.OnUpdate(request(false), request(false)) }, nil},
		"replaced by a new one":        {func(h toolscache.ResourceEventHandler) { h.OnUpdate(request(true), request(false)) }, nil},
		"has stopped containers":       {func(h toolscache.ResourceEventHandler) { h.OnUpdate(stopping(true, false), stopping(true, true)) }, job},
		"had stopped them":             {func(h toolscache.ResourceEventHandler) { h.OnUpdate(stopping(true), stopping(true)) }, nil},
		"stops containers":             {func(h toolscache.ResourceEventHandler) { h.OnUpdate(stopping(), stopping(true, false)) }, nil},
		"created":                      {func(h toolscache.ResourceEventHandler) { h.OnAdd(request(false), false) }, nil},
		"first seen finished":          {func(h toolscache.ResourceEventHandler) { h.OnAdd(request(true), false) }, job},
		"finished before the start":    {func(h toolscache.ResourceEventHandler) { h.OnAdd(request(true), true) }, nil},
		"deleted after it is finished": {func(h toolscache.ResourceEventHandler) { h.OnDelete(request(true)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []types.NamespacedName
			tc.event(whenProgressed(func(pod types.NamespacedName) { got = append(got, pod) }))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}
