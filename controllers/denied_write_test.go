// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// denial is the message of those who deny writes in these tests.
const denial = "nobody changes pods here"

// denier returns objects that make the API server deny the operator's updates of the resources in a namespace.
type denier func(f *fixture, resources ...string) []client.Object

// updatesOf matches the updates of resources of pods.
func updatesOf(resources ...string) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources},
	}
}

// ownNamespace selects the fixture's namespace.
func (f *fixture) ownNamespace() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.namespace}}
}

var operatorWrites = admissionv1.MatchCondition{
	Name: "the-operator-writes", Expression: fmt.Sprintf("request.userInfo.username == %q", "system:serviceaccount:"+systemNamespace+":"+serviceAccount),
}

// byPolicy denies by an admission policy with the reason, nil for Invalid.
func byAdmissionPolicy(reason *metav1.StatusReason) denier {
	return func(f *fixture, resources ...string) []client.Object {
		name := metav1.ObjectMeta{Name: "deny-" + f.namespace}
		return []client.Object{
			&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{
					NamespaceSelector: f.ownNamespace(), ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: updatesOf(resources...)}},
				},
				MatchConditions: []admissionv1.MatchCondition{operatorWrites},
				Validations:     []admissionv1.Validation{{Expression: "false", Message: denial, Reason: reason}},
			}},
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			}},
		}
	}
}

// byWebhook denies by a webhook that answers with the code, 0 for one that is down.
func byWebhook(code int32) denier {
	return func(f *fixture, resources ...string) []client.Object {
		server := httptest.NewTLSServer(&admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
			return admission.Errored(code, errors.New(denial))
		})})
		f.Cleanup(server.Close)
		if code == 0 {
			server.Close()
		}
		return []client.Object{&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "deny-" + f.namespace},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name: "deny.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
				ClientConfig: admissionv1.WebhookClientConfig{
					URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
				},
				NamespaceSelector: f.ownNamespace(), Rules: []admissionv1.RuleWithOperations{updatesOf(resources...)},
				MatchConditions: []admissionv1.MatchCondition{operatorWrites},
			}},
		}}
	}
}

// install creates the objects until the end of the test.
func (f *fixture) install(objects ...client.Object) {
	f.Helper()
	f.create(objects...)
	f.Cleanup(func() {
		for _, object := range objects {
			if err := f.Delete(context.WithoutCancel(f.Context()), object); client.IgnoreNotFound(err) != nil {
				f.Error(err)
			}
		}
	})
}

// deny makes the API server deny the operator's writes to the resources of the pod's namespace. The returned function ends that.
func (f *fixture) deny(pod *corev1.Pod, by denier, resources ...string) (allow func()) {
	f.Helper()
	objects := by(f, resources...)
	f.install(objects...)
	until := func(what string, denied bool) {
		f.Helper()
		testenv.Eventually(f.T, what, func(ctx context.Context) error {
			for _, resource := range resources {
				if err := f.tryWrite(ctx, pod, resource); (err != nil) != denied {
					return fmt.Errorf("a write of %s: %w", resource, err)
				}
			}
			return nil
		})
	}
	until("the operator's writes are denied", true)
	return func() {
		f.Helper()
		f.remove(objects[len(objects)-1])
		until("the operator's writes are accepted", false)
	}
}

// tryWrite checks by a dry run whether the operator may write to the resource.
func (f *fixture) tryWrite(ctx context.Context, pod *corev1.Pod, resource string) error {
	operator, err := client.New(asOperator(), client.Options{Scheme: scheme, Mapper: f.RESTMapper()})
	if err != nil {
		return err
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"sidecartermination.dev/probe":"x"}}}`))
	if resource == "pods/status" {
		return operator.Status().Patch(ctx, target, patch, client.DryRunAll)
	}
	return operator.Patch(ctx, target, patch, client.DryRunAll)
}

// withoutMarks connects as an operator whose ServiceAccount may not write the status of pods.
func (f *fixture) withoutMarks() *rest.Config {
	f.Helper()
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: "without-marks"}
	for _, role := range []string{"manager-role", "manager-crr-role", "manager-image-role", "manager-pre-pull-role"} {
		f.install(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "without-marks-" + role}, Subjects: []rbacv1.Subject{account},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sidecar-termination-" + role},
		})
	}
	limited := rest.CopyConfig(server)
	limited.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + systemNamespace + ":" + account.Name, Groups: []string{"system:authenticated"}}
	return limited
}

// Whoever denies a mark, the policy says so, nothing is retried on a timer while main runs, and the next mode follows.
func TestFallbackWhenMarkIsDenied(t *testing.T) {
	for name, by := range map[string]denier{
		"RBAC":                         nil,
		"admission policy, Forbidden":  byAdmissionPolicy(ptr.To(metav1.StatusReasonForbidden)),
		"admission policy, Invalid":    byAdmissionPolicy(nil),
		"webhook, 403":                 byWebhook(http.StatusForbidden),
		"webhook, 404":                 byWebhook(http.StatusNotFound),
		"webhook, 409":                 byWebhook(http.StatusConflict),
		"webhook, 429":                 byWebhook(http.StatusTooManyRequests),
		"webhook, 500":                 byWebhook(http.StatusInternalServerError),
		"webhook that does not answer": byWebhook(0),
	} {
		t.Run(name, func(t *testing.T) {
			f, options := newFixture(t), testOptions()
			options.StatusPeriod = 0
			connection := asOperator()
			if by == nil {
				connection = f.withoutMarks()
			}
			b := newBenchAs(f, connection, options, nil)
			policy := b.newPolicy("mesh")
			pod := b.newPod("job-1")
			if by != nil {
				b.deny(pod, by, "pods/status")
			}
			if result := b.reconcile(pod); result.RequeueAfter != 0 {
				t.Errorf("requeued after %s while main runs", result.RequeueAfter)
			}
			b.wrote("PATCH pods/status")
			b.summarise(policy)
			b.reload(policy)
			if degraded := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionDegraded); degraded == nil {
				t.Errorf("the policy does not report the denial: %+v", policy.Status.Conditions)
			}
			b.writes.forget()
			b.change(pod, podtest.MainDone)
			for range 2 {
				if result := b.reconcile(pod); result.RequeueAfter <= 0 || result.RequeueAfter > denialRetry {
					b.Errorf("requeued after %s, want %s at most", result.RequeueAfter, denialRetry)
				}
			}
			b.wrote("PATCH pods/status", "PATCH pods", "PATCH pods/status")
			if !imageSwapped(pod) || outcomeOf(pod) != "Running unmarked" {
				t.Errorf("pod is %q with images %v", outcomeOf(pod), images(pod))
			}
			if got := b.events.take(); len(got) != 1 {
				t.Errorf("events: %q", got)
			}
		})
	}
}

func TestFallbackWhenSwapIsDenied(t *testing.T) {
	b := newBench(t, testOptions(), nil)
	b.newPolicy("mesh", mode(v1alpha1.ModeImage, ""))
	pod := b.newPod("job-1", podtest.MainDone)
	b.reconcile(pod)
	b.deny(pod, byAdmissionPolicy(nil), "pods")
	b.reconcile(pod)
	b.wrote("PATCH pods/status", "PATCH pods", "PATCH pods/status")
	b.is(pod, "Succeeded proxy PodPhase Decided")
	if got := b.events.take(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning Fallback ") && !strings.HasPrefix(got[0], "Normal Fallback ") {
		t.Errorf("events: %q", got)
	}
}

func TestPodIsStuckWhileEveryWriteIsDenied(t *testing.T) {
	options := testOptions()
	options.StatusPeriod = 0
	b := newBench(t, options, nil)
	policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	pod := b.newPod("job-1", podtest.MainDone)
	allow := b.deny(pod, byAdmissionPolicy(ptr.To(metav1.StatusReasonForbidden)), "pods", "pods/status")

	for range 2 {
		if result := b.reconcile(pod); result.RequeueAfter != maxDenialRetry {
			t.Errorf("requeued after %s, want %s long after the end of the main container", result.RequeueAfter, maxDenialRetry)
		}
	}
	b.wrote("PATCH pods/status", "PATCH pods", "PATCH pods/status", "PATCH pods")
	got := b.events.take()
	if len(got) != 1 || !strings.HasPrefix(got[0], "Warning NoUsableMode ") || !strings.Contains(got[0], denial) {
		t.Errorf("events: %q, want one with the answer", got)
	}
	b.summarise(policy)
	b.reload(policy)
	degraded := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionDegraded)
	if policy.Status.StuckPods != 1 || degraded == nil || degraded.Reason != string(v1alpha1.ReasonNoUsableMode) || !strings.Contains(degraded.Message, denial) {
		t.Errorf("the policy has %d stuck pods and is degraded as %+v", policy.Status.StuckPods, degraded)
	}

	allow()
	for range 2 {
		b.reconcile(pod)
	}
	b.is(pod, "Succeeded proxy PodPhase Decided")
	if got := b.events.take(); len(got) != 1 || !strings.HasPrefix(got[0], "Normal Terminating ") {
		t.Errorf("events: %q", got)
	}
	b.summarise(policy)
	b.reload(policy)
	if policy.Status.StuckPods != 0 || meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionDegraded) != nil {
		t.Errorf("the policy still has %d stuck pods: %+v", policy.Status.StuckPods, policy.Status.Conditions)
	}
}
