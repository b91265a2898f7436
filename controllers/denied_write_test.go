// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// denial is the message of the admission policies in these tests.
const denial = "nobody changes pods here"

// deny makes the API server deny the operator's writes to the resources of the pod's namespace. The returned function ends that.
func (f *fixture) deny(pod *corev1.Pod, reason *metav1.StatusReason, resources ...string) (allow func()) {
	f.Helper()
	name := "deny-" + f.namespace
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "the-operator-writes", Expression: fmt.Sprintf("request.userInfo.username == %q", asOperator().Impersonate.UserName),
			}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: denial, Reason: reason}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	f.create(policy, binding)
	f.Cleanup(func() {
		for _, object := range []client.Object{binding, policy} {
			if err := f.Delete(context.WithoutCancel(f.Context()), object); client.IgnoreNotFound(err) != nil {
				f.Error(err)
			}
		}
	})
	await := func(what string, check func(error) bool) {
		f.Helper()
		testenv.Eventually(f.T, what, func(ctx context.Context) error {
			for _, resource := range resources {
				if err := f.tryWrite(ctx, pod, resource); !check(err) {
					return fmt.Errorf("a write of %s: %w", resource, err)
				}
			}
			return nil
		})
	}
	await("the operator's writes are denied", func(err error) bool { return err != nil && strings.Contains(err.Error(), denial) })
	return func() {
		f.Helper()
		f.remove(binding)
		await("the operator's writes are taken", func(err error) bool { return err == nil })
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

// goesOnAfterDenial requires these writes and one event from a reconcile with a denied write. The next reconcile must follow
// soon and add nothing.
func (b *bench) goesOnAfterDenial(pod *corev1.Pod, writes []string) {
	b.Helper()
	if result := b.reconcile(pod); result.RequeueAfter <= 0 || result.RequeueAfter > denialRetry {
		b.Errorf("requeued after %s, want %s at most", result.RequeueAfter, denialRetry)
	}
	b.wrote(writes...)
	b.reconcile(pod)
	b.wrote(writes...)
	if got := b.events.take(); len(got) != 1 {
		b.Errorf("events: %q", got)
	}
}

func TestFallbackWhenPodWriteIsDenied(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   v1alpha1.Mode
		reason *metav1.StatusReason // nil for Invalid
		denied string
		want   []string
	}{
		"image after a forbidden phase": {
			v1alpha1.ModeAuto, ptr.To(metav1.StatusReasonForbidden), "pods/status", []string{"PATCH pods/status", "PATCH pods"},
		},
		"image after an invalid phase": {
			v1alpha1.ModePodPhase, nil, "pods/status", []string{"PATCH pods/status", "PATCH pods"},
		},
		"phase after a forbidden image": {
			v1alpha1.ModeImage, ptr.To(metav1.StatusReasonForbidden), "pods", []string{"PATCH pods", "PATCH pods/status"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), nil)
			b.newPolicy("mesh", mode(tc.mode, ""))
			pod := b.newPod("job-1", podtest.MainDone)
			b.deny(pod, tc.reason, tc.denied)
			b.goesOnAfterDenial(pod, tc.want)
		})
	}
}

func TestPodIsStuckWhileEveryWriteIsDenied(t *testing.T) {
	options := testOptions()
	options.StatusPeriod = 0
	b := newBench(t, options, nil)
	policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	pod := b.newPod("job-1", podtest.MainDone)
	allow := b.deny(pod, ptr.To(metav1.StatusReasonForbidden), "pods", "pods/status")

	for range 2 {
		if result := b.reconcile(pod); result.RequeueAfter != maxDenialRetry {
			t.Errorf("requeued after %s, want %s long after the end of the main container", result.RequeueAfter, maxDenialRetry)
		}
	}
	b.wrote("PATCH pods/status", "PATCH pods", "PATCH pods/status", "PATCH pods")
	got := b.events.take()
	if len(got) != 1 || !strings.HasPrefix(got[0], "Warning NoUsableMode ") || strings.Count(got[0], denial) != 2 {
		t.Errorf("events: %q, want one that has both answers", got)
	}
	b.summarise(policy)
	b.reload(policy)
	degraded := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionDegraded)
	if policy.Status.StuckPods != 1 || degraded == nil || degraded.Reason != string(v1alpha1.ReasonNoUsableMode) || !strings.Contains(degraded.Message, denial) {
		t.Errorf("the policy has %d stuck pods and is degraded as %+v", policy.Status.StuckPods, degraded)
	}

	allow()
	b.reconcile(pod)
	if b.reload(pod); !phaseWritten(pod) {
		t.Error("the pod is not terminated although its writes are accepted")
	}
	if got := b.events.take(); len(got) != 1 || !strings.HasPrefix(got[0], "Normal Terminating ") {
		t.Errorf("events: %q", got)
	}
	b.summarise(policy)
	b.reload(policy)
	if policy.Status.StuckPods != 0 || meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionDegraded) != nil {
		t.Errorf("the policy still has %d stuck pods: %+v", policy.Status.StuckPods, policy.Status.Conditions)
	}
}
