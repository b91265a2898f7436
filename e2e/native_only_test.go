//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/internal/settings"
)

// With overlay native-only the API server converts sidecars, and the operator cannot write to pods and does not.
func TestNativeOnly(t *testing.T) {
	harness.Exclusive(t)
	test := newNative(t, nil)
	test.WholeAtEnd()
	test.RestoreWith("deploy")
	installNativeOnly(test)
	requireNoPermission(test)

	jobs := map[string]corev1.PodTemplateSpec{
		"never":      harness.PodTemplate(corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2)),
		"on-failure": harness.PodTemplate(corev1.RestartPolicyOnFailure, harness.Main(2), harness.Sidecar(harness.IgnoresTerm)),
		"exits-7":    harness.PodTemplate(corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsDuringMain(7)), harness.Main(2)),
		"opted-out":  harness.PodTemplate(corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2)),
	}
	policy := preferNative()
	test.Create(policy)
	test.WaitForConversion(jobs["never"], sidecarConverted)
	for name, template := range jobs {
		job := harness.Job(name, template.Spec.RestartPolicy)
		job.Spec.Template = template
		switch name {
		case "exits-7":
			reportsStart(job)
		case "opted-out":
			job.Spec.Template.Labels = map[string]string{v1alpha1.LabelNativeConversion: "false"}
		}
		test.Create(indexed(job))
	}
	for name := range jobs {
		if name != "opted-out" {
			test.WaitForComplete(name)
			requireNative(test, name, sidecarConverted)
		}
	}
	test.EventuallyStatus(policy, "two stuck pods", func(status v1alpha1.PolicyStatus) error {
		if status.StuckPods != 2 {
			return fmt.Errorf("the status is %+v", status)
		}
		return nil
	})
	if writes := test.OperatorWrites(); len(writes) > 0 {
		test.Errorf("The operator has written to pods: %v", writes)
	}
}

// installNativeOnly adds the components of overlay native-only to the operator of the local cluster.
func installNativeOnly(test *harness.Test) {
	test.Helper()
	const overlay = "config/overlays/native-only"
	content, err := os.ReadFile(filepath.Join(test.Repository, overlay, "kustomization.yaml"))
	if err != nil {
		test.Fatal(err)
	}
	nativeOnly := types.Kustomization{}
	if err := yaml.UnmarshalStrict(content, &nativeOnly); err != nil {
		test.Fatalf("Read %s: %v", overlay, err)
	}
	var components []string
	for _, component := range nativeOnly.Components {
		components = append(components, "CONFIG/components/"+path.Base(component))
	}
	image, tag, _ := strings.Cut(operatorImage(test), ":")
	installation := writeKustomization(test, map[string]string{"kustomization.yaml": fmt.Sprintf(`
sortOptions: {order: fifo}
resources: [CONFIG/overlays/local]
components: [%s]
images: [{name: %s, newTag: %q}]
`, strings.Join(components, ", "), image, tag)})
	kubectl(test, "delete", "clusterroles,clusterrolebindings", "--selector=app.kubernetes.io/part-of=sidecar-termination-operator")
	// The field manager of `make cluster-deploy`, so that the next deployment has no conflicts.
	kubectl(test, "apply", "--server-side", "--force-conflicts", "--field-manager=localcluster", "-k", installation)
	test.WaitForOperator()
}

// requireNoPermission requires that the operator may not write to pods in any way.
func requireNoPermission(test *harness.Test) {
	test.Helper()
	for _, subresource := range []string{"", "status", "ephemeralcontainers", "resize", "binding", "eviction"} {
		for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:" + harness.OperatorNamespace + ":" + settings.DeploymentName,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + harness.OperatorNamespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: test.Namespace, Verb: verb, Resource: "pods", Subresource: subresource,
				},
			}}
			if err := test.Client.Create(test.Context(), review); err != nil {
				test.Fatal(err)
			}
			if review.Status.Allowed {
				test.Errorf("The operator may %s pods/%s: %s", verb, subresource, review.Status.Reason)
			}
		}
	}
}
