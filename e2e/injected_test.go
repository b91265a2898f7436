//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// startInjector starts an injector for the pods of the test's namespace: a webhook that adds a container with a random name, which runs
// until SIGTERM.
func startInjector(test *harness.Test) {
	test.Helper()
	server := httptest.NewTLSServer(&admission.Webhook{Handler: admission.HandlerFunc(inject)})
	test.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	test.CreateForCluster(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: test.Namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "injector.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: authority},
			NamespaceSelector: onlyNamespace(test),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	})
}

func inject(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(request.Object.Raw, pod); err != nil {
		return admission.Errored(400, err)
	}
	injected := harness.Container("agent-"+rand.String(8), harness.ExitsSevenOnTerm)
	pod.Spec.Containers = append([]corev1.Container{injected}, pod.Spec.Containers...)
	raw, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(500, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, raw)
}

// One cluster policy without names ends whatever an injector adds to the pods of Jobs.
func TestInjectedContainers(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	startInjector(test)
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: test.Namespace}}
	policy.Spec.Mode, policy.Spec.IncludeInjected, policy.Spec.NamespaceSelector = v1alpha1.ModeAuto, true, onlyNamespace(test)
	test.CreateForCluster(policy)
	for _, restartPolicy := range jobRestartPolicies {
		name := map[corev1.RestartPolicy]string{corev1.RestartPolicyNever: "never", corev1.RestartPolicyOnFailure: "on-failure"}[restartPolicy]
		job := harness.Job(name, restartPolicy, harness.Main(2), harness.Container("second", "sleep 4"))
		job.Spec.BackoffLimit = ptr.To[int32](0)
		test.Create(job)
		record := test.RequireCompleted(name)
		if containers := record.Pod.Spec.Containers; len(containers) != 3 {
			t.Errorf("%s: %d containers, want an injected one", name, len(containers))
		}
	}
}
