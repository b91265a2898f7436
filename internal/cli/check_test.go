// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cli_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/internal/testenv"
)

// newRequest is a request as the operator makes it.
func newRequest(pod *corev1.Pod) client.Object {
	request := &unstructured.Unstructured{}
	manifest := fmt.Sprintf(`{apiVersion: apps.kruise.io/v1alpha1, kind: ContainerRecreateRequest,
  metadata: {namespace: %s, name: sidecar-termination-%s-0, labels: {app.kubernetes.io/managed-by: sidecar-termination-operator}},
  spec: {podName: %s, containers: [{name: proxy}]}}`, pod.Namespace, pod.UID, pod.Name)
	if err := yaml.Unmarshal([]byte(manifest), &request.Object); err != nil {
		panic(err)
	}
	return request
}

// install applies the operator's manifests, and returns its Deployment.
func install(t *testing.T, c client.Client) *appsv1.Deployment {
	t.Helper()
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../config/default")
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range rendered.Resources() {
		fields, err := resource.Map()
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{Object: fields}
		if object.GetKind() == "CustomResourceDefinition" {
			continue // the server has them
		}
		create(t, c, object)
		t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), object) })
	}
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: "sidecar-termination-system", Name: "sidecar-termination-controller-manager"}
	if err := c.Get(t.Context(), key, deployment); err != nil {
		t.Fatal(err)
	}
	return deployment
}

func TestCheck(t *testing.T) {
	c, _ := newNamespace(t)
	out, code := runCommand(t, "check", "--pre")
	wantOutput(t, "before the installation", out, code, 0, "ok you may create all that", "ok no operator is installed", "ok OpenKruise is not installed")
	out, code = runCommand(t, "check")
	wantOutput(t, "nothing is installed", out, code, 1, "failure there is no operator in namespace sidecar-termination-system", "ok definition sidecarterminationpolicies")
	out, code = runCommand(t, "check", "--pre", "--as", "nobody")
	wantOutput(t, "someone who may not install", out, code, 1, "failure you may not create customresourcedefinitions")

	deployment := install(t, c)
	out, code = runCommand(t, "check")
	wantOutput(t, "the operator does not start", out, code, 1, "failure Deployment sidecar-termination-system/sidecar-termination-controller-manager has no ready pod of 2",
		"ok service account sidecar-termination-controller-manager may do all", "ok the quick-exit image is ghcr.io/",
		"ok metrics are served on :8443 to those who may get /metrics", "ok admission policy sidecar-termination-mode-image asks authors")

	deployment.Status = appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UpdatedReplicas: 2}
	if err := c.Status().Update(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	out, _ = runCommand(t, "check")
	if strings.Contains(out, "failure") {
		t.Errorf("something fails though all is installed:\n%s", out)
	}
	out, code = runCommand(t, "check", "--as", "nobody")
	wantOutput(t, "someone who may read nothing", out, code, 0, "warning you may not read Deployments in namespace")

	checkKruise(t, c)

	role := &unstructured.Unstructured{}
	role.SetAPIVersion("rbac.authorization.k8s.io/v1")
	role.SetKind("ClusterRole")
	role.SetName("sidecar-termination-manager-image-role")
	if err := c.Delete(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the right is missed", func(context.Context) error {
		if out, code = runCommand(t, "check"); code != 1 {
			return fmt.Errorf("exit code is %d", code)
		}
		return nil
	})
	wantOutput(t, "a role is missing", out, code, 1, "failure service account sidecar-termination-controller-manager may not patch pods (mode Image)")
}

// checkKruise installs OpenKruise piece by piece.
func checkKruise(t *testing.T, c client.Client) {
	t.Helper()
	newNode(t, c)
	// These do not run OpenKruise's daemon, and nobody expects it of them.
	addNode(t, c, "fargate-of-cli-tests", map[string]string{"eks.amazonaws.com/compute-type": "fargate"})
	addNode(t, c, "virtual-of-cli-tests", map[string]string{"type": "virtual-kubelet"})
	testenv.NewKruise(t, c).Install(t)
	out, _ := runCommand(t, "check")
	wantOutput(t, "OpenKruise without manager and daemon", out, 0, 0, "ok definition containerrecreaterequests.apps.kruise.io is served",
		"ok kruise-mutating-webhook-configuration guards requests", "warning there is no DaemonSet kruise-daemon", "warning there is no Deployment kruise-controller-manager")

	labels := map[string]string{"app": "kruise"}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "manager", Image: "kruise", Args: []string{"--feature-gates=AllAlpha=true"}}},
	}}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system"}}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace.Name, Name: name} }
	manager := &appsv1.Deployment{ObjectMeta: meta("kruise-controller-manager"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: pod}}
	daemon := &appsv1.DaemonSet{ObjectMeta: meta("kruise-daemon"), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod}}
	create(t, c, namespace, manager, daemon)
	out, _ = runCommand(t, "check")
	wantOutput(t, "OpenKruise with its own terminator", out, 0, 0, "warning OpenKruise's own SidecarTerminator runs",
		"warning kruise-daemon is not ready on 1 of 1 real nodes: node-of-cli-tests")

	manager.Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=AllAlpha=true,SidecarTerminator=false"}
	if err := c.Update(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	ready := &corev1.Pod{ObjectMeta: meta("daemon-1"), Spec: pod.Spec}
	ready.Labels, ready.Spec.NodeName = labels, "node-of-cli-tests"
	create(t, c, ready)
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(t.Context(), ready); err != nil {
		t.Fatal(err)
	}
	out, code := runCommand(t, "check", "--fail-on=warning")
	wantOutput(t, "OpenKruise as it should be", out, code, 0, "ok kruise-daemon is ready on all 1 real nodes", "ok OpenKruise's own SidecarTerminator is off")
}
