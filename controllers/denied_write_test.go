// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// denial is the message of those who deny writes in these tests.
const denial = "nobody changes pods here"

// In these manifests NAME and NAMESPACE stand for the fixture's namespace, and OPERATOR for the operator's ServiceAccount.
const (
	denyingPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: RESOURCES}]
  matchConditions: [{name: operator-writes, expression: request.userInfo.username == 'OPERATOR'}]
  validations: [{expression: "false", message: nobody changes pods here, reason: REASON}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
`
	denyingWebhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAME}
webhooks:
- name: deny.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: URL, caBundle: CERTIFICATE}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: RESOURCES}]
  matchConditions: [{name: operator-writes, expression: request.userInfo.username == 'OPERATOR'}]
`
	strippingPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods/status]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        'sidecartermination.dev/outcome' in object.metadata.?labels.orValue({}) ?
        [JSONPatch{op: 'remove', path: '/metadata/labels/sidecartermination.dev~1outcome'}] : []
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
`
)

// install creates the objects of a manifest until the end of the test.
func (f *fixture) install(manifest string, replace ...string) (objects []client.Object) {
	f.Helper()
	replace = append(replace, "NAMESPACE", f.namespace, "NAME", "test-"+f.namespace, "OPERATOR", asOperator().Impersonate.UserName)
	for document := range strings.SplitSeq(strings.NewReplacer(replace...).Replace(manifest), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			f.Fatal(err)
		}
		f.createForTest(object)
		objects = append(objects, object)
	}
	return objects
}

// createForTest creates the object until the end of the test.
func (f *fixture) createForTest(object client.Object) {
	f.Helper()
	f.create(object)
	f.Cleanup(func() {
		if err := f.Delete(context.WithoutCancel(f.Context()), object); client.IgnoreNotFound(err) != nil {
			f.Error(err)
		}
	})
}

// denier makes the API server deny the operator's updates of the resources in the fixture's namespace.
type denier func(f *fixture, resources string) []client.Object

// byAdmissionPolicy denies with the reason.
func byAdmissionPolicy(reason metav1.StatusReason) denier {
	return func(f *fixture, resources string) []client.Object {
		return f.install(denyingPolicy, "RESOURCES", resources, "REASON", string(reason))
	}
}

// byWebhook denies with the code; 0 is a webhook that is down.
func byWebhook(code int32) denier {
	return func(f *fixture, resources string) []client.Object {
		server := httptest.NewTLSServer(&admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
			return admission.Errored(code, errors.New(denial))
		})})
		f.Cleanup(server.Close)
		if code == 0 {
			server.Close()
		}
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		return f.install(denyingWebhook, "RESOURCES", resources, "URL", server.URL, "CERTIFICATE", base64.StdEncoding.EncodeToString(certificate))
	}
}

// deny makes the API server deny the operator's writes to the resources of the pod's namespace. The returned function ends that.
func (f *fixture) deny(pod *corev1.Pod, by denier, resources ...string) (allow func()) {
	f.Helper()
	objects := by(f, "["+strings.Join(resources, ", ")+"]")
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
		f.createForTest(&rbacv1.ClusterRoleBinding{
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
	const (
		steps = "denyMarks now status main now now status"
		trace = "mark +15s WriteRefused mark swap +15s mark +15s WriteRefused"
	)
	b, clock := newTimedBench(t, false)
	for name, by := range map[string]denier{
		"admission policy, Forbidden":  byAdmissionPolicy(metav1.StatusReasonForbidden),
		"admission policy, Invalid":    byAdmissionPolicy(metav1.StatusReasonInvalid),
		"webhook, 403":                 byWebhook(http.StatusForbidden),
		"webhook, 404":                 byWebhook(http.StatusNotFound),
		"webhook, 409":                 byWebhook(http.StatusConflict),
		"webhook, 429":                 byWebhook(http.StatusTooManyRequests),
		"webhook, 500":                 byWebhook(http.StatusInternalServerError),
		"webhook that does not answer": byWebhook(0),
	} {
		b.run(name, func() {
			b.by = by
			b.follow(clock, "Auto", "", steps).checks(trace)
			if events := b.events.take(); len(events) != 1 {
				b.Errorf("events: %q", events)
			}
		})
	}
	t.Run("RBAC", func(t *testing.T) {
		f := newFixture(t)
		b, clock := newTimedBenchAs(f, f.withoutMarks(), false)
		b.follow(clock, "Auto", "", strings.TrimPrefix(steps, "denyMarks ")).checks(trace)
	})
}

func TestPodIsStuckWhileEveryWriteIsDenied(t *testing.T) {
	b, clock := newTimedBench(t, false)
	b.by = byAdmissionPolicy(metav1.StatusReasonForbidden)
	l := b.follow(clock, "PodPhase", "", "main denyAll now now status")
	l.checks("mark swap +1m0s mark swap +1m0s NoUsableMode")
	if events := b.events.take(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning NoUsableMode ") || !strings.Contains(events[0], denial) {
		t.Errorf("events: %q, want one with the answer", events)
	}
	if l.policy.Status.StuckPods != 1 || !strings.Contains(l.policy.Status.Conditions[0].Message+l.policy.Status.Conditions[1].Message, denial) {
		t.Errorf("status: %+v", l.policy.Status)
	}
	l.do("allow now now status")
	l.checks("mark swap +1m0s mark swap +1m0s NoUsableMode mark (Running proxy Succeeded) mark +1m0s " + decided)
	if events := b.events.take(); len(events) != 1 || !strings.HasPrefix(events[0], "Normal Terminating ") {
		t.Errorf("events: %q", events)
	}
}

// Somebody removes the mark each time, after the write or within it. The last mark is kept for the record.
func TestMarksAreBounded(t *testing.T) {
	b, clock := newTimedBench(t, false)
	const bound = 1 + podMarks
	for name, tc := range map[string]struct {
		steps, end  string
		terminating int32
	}{
		"after the write":  {strings.Repeat("now unmark ", bound+2), " +1m0s mark (Running proxy Succeeded) mark +1m0s (Succeeded proxy PodPhase Decided)", 0},
		"within the write": {"strip " + strings.Repeat("now ", bound+2), " +1m0s mark (Running proxy unmarked) swap +1m0s", 1},
	} {
		b.run(name, func() {
			// The admission policy would add the mark again.
			b.namespace = b.newNamespace(map[string]string{undecidedLabel: "true"})
			l := b.follow(clock, "Auto", "", tc.steps+"main now now status")
			begin, ends := strings.CutSuffix(strings.Join(l.trace, " "), tc.end)
			if marks := strings.Count(begin, "mark "); marks != bound-1 || !ends {
				l.Errorf("%d marks, want %d before%s: %v", marks, bound-1, tc.end, l.trace)
			}
			if unrequeued := strings.Contains(begin, "mark mark"); unrequeued {
				l.Errorf("nothing requeues the pod after a mark that changes nothing: %s", begin)
			}
			if l.policy.Status.TerminatingPods != tc.terminating {
				l.Errorf("status: %+v", l.policy.Status)
			}
		})
	}
}

// A pod that is marked in time needs no operator.
func TestMarkedPodEndsWithoutOperator(t *testing.T) {
	f := newFixture(t)
	stop := f.startOperator(testOptions())
	f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	pod := f.newPod("job-1")
	f.until(pod, "is marked", marked)
	stop()
	for _, change := range []func(*corev1.Pod){mainExits(0), sidecarExits(143)} {
		if f.change(pod, change); !succeeded(pod) {
			t.Errorf("pod is %q", outcomeOf(pod))
		}
	}
	f.nothingWentWrong()
}
