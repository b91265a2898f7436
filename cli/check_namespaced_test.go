// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cli_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// installNamespaced applies the overlay for single namespaces, in an operator's namespace and for a namespace of the test.
func installNamespaced(t *testing.T, c client.Client, system, watched string) {
	t.Helper()
	rendered, err := testenv.Kustomizer().Run(filesys.MakeFsOnDisk(), "../config/overlays/namespaced")
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.NewReplacer(settings.Namespace, system, "namespace: batch", "namespace: "+watched, "namespaces=batch", "namespaces="+watched)
	for _, resource := range rendered.Resources() {
		if kind := resource.GetKind(); kind == "CustomResourceDefinition" || kind == "Namespace" {
			continue // the server has them
		}
		content, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(renamed.Replace(string(content))), &object.Object); err != nil {
			t.Fatal(err)
		}
		create(t, c, object)
	}
}

func TestCheckForSingleNamespaces(t *testing.T) {
	c, system := newNamespace(t)
	_, watched := newNamespace(t)
	installNamespaced(t, c, system, watched)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: settings.DeploymentName}}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
		t.Fatal(err)
	}
	deployment.Status = appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UpdatedReplicas: 2}
	if err := c.Status().Update(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	create(t, c, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: settings.LeaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("operator-1_0"), RenewTime: ptr.To(metav1.NewMicroTime(time.Now())), LeaseDurationSeconds: ptr.To(int32(3600)),
		},
	})

	out, code := runCommand(t, "check", "--operator-namespace", system)
	wantOutput(t, "single namespaces", out, code, 0,
		"ok the operator watches only "+watched+"; it uses neither cluster policies nor OpenKruise",
		"warning the operator may not read nodes and does not know their kind",
		"warning metrics are served on :8443 without TLS and authentication",
		"ok ServiceAccount "+settings.DeploymentName+" has all")

	role := &unstructured.Unstructured{}
	role.SetAPIVersion("rbac.authorization.k8s.io/v1")
	role.SetKind("Role")
	role.SetNamespace(watched)
	role.SetName("sidecar-termination-manager-image-role")
	if err := c.Delete(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the permission is missed", func(context.Context) error {
		out, code = runCommand(t, "check", "--operator-namespace", system)
		if code != 1 || !strings.Contains(strings.Join(strings.Fields(out), " "), "may not patch pods in namespace "+watched+" (mode Image)") {
			return fmt.Errorf("exit code %d:\n%s", code, out)
		}
		return nil
	})
}
