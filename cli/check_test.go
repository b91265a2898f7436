// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cli_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// newRequest is a CRR of the operator.
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
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../config/default")
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
	}
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: settings.Namespace, Name: settings.DeploymentName}
	if err := c.Get(t.Context(), key, deployment); err != nil {
		t.Fatal(err)
	}
	return deployment
}

func TestCheck(t *testing.T) {
	c, _ := newNamespace(t)
	out, code := runCommand(t, "check", "--pre")
	wantOutput(t, "before the installation", out, code, 0, "ok you may create all objects", "ok no operator is installed", "ok OpenKruise is not installed")
	out, code = runCommand(t, "check")
	wantOutput(t, "nothing is installed", out, code, 1, "failure no operator found in namespace sidecar-termination-system", "ok CRD sidecarterminationpolicies")
	out, code = runCommand(t, "check", "--pre", "--as", "nobody")
	wantOutput(t, "someone who may not install", out, code, 1, "failure you may not create customresourcedefinitions",
		"clusterrolebindings, roles, rolebindings,", "poddisruptionbudgets -> ask a cluster administrator")

	deployment := install(t, c)
	out, code = runCommand(t, "check")
	wantOutput(t, "the operator does not start", out, code, 1, "failure Deployment sidecar-termination-system/sidecar-termination-controller-manager has 0 of 2 ready pods",
		"ok ServiceAccount sidecar-termination-controller-manager has all", "ok the quick-exit image is ghcr.io/",
		"ok metrics are served on :8443 to users who may get /metrics", "ok admission policy sidecar-termination-mode-image requires authors",
		"ok admission policy sidecar-termination-mode-pre-pull requires authors",
		"ok admission policy sidecar-termination-operator-requests limits the operator")

	deployment.Status = appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UpdatedReplicas: 2}
	if err := c.Status().Update(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	checkLease(t, c)
	checkFlags(t, c, deployment)
	checkDefinitions(t, c)
	out, _ = runCommand(t, "check")
	if strings.Contains(out, "failure") {
		t.Errorf("something fails though all is installed:\n%s", out)
	}
	out, code = runCommand(t, "check", "--pre")
	wantOutput(t, "before an upgrade", out, code, 0, "warning the operator is already installed", "to check the current one, run: "+settings.PluginName+" check")
	out, code = runCommand(t, "check", "--as", "nobody")
	wantOutput(t, "someone who may read nothing", out, code, 2, "error: you may not read anything that this command checks")
	if strings.Contains(out, "warning") {
		t.Errorf("there is more than one message:\n%s", out)
	}

	checkPolicies(t, c)
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
	wantOutput(t, "a role is missing", out, code, 1, "failure ServiceAccount sidecar-termination-controller-manager may not patch pods (mode Image)")

	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: "sidecar-termination-leader-election-rolebinding"}}
	if err := c.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the right to the lease is missed", func(context.Context) error {
		out, code = runCommand(t, "check")
		if !strings.Contains(strings.Join(strings.Fields(out), " "), "may not create leases") {
			return errors.New("it is not")
		}
		return nil
	})
	wantOutput(t, "the copies may not agree", out, code, 1, "failure ServiceAccount sidecar-termination-controller-manager may not create"+
		" leases.coordination.k8s.io in namespace sidecar-termination-system (leader election)",
		"may not get, update leases.coordination.k8s.io named "+settings.LeaseName+" in namespace sidecar-termination-system (leader election)")
}

// checkLease changes the holder of the lease, and leaves it held.
func checkLease(t *testing.T, c client.Client) {
	t.Helper()
	const name = settings.Namespace + "/" + settings.LeaseName
	out, code := runCommand(t, "check")
	wantOutput(t, "no copy has led yet", out, code, 1, "failure the operator has no leader: lease "+name+" not found",
		"find the cause: kubectl logs -n sidecar-termination-system deployment/sidecar-termination-controller-manager")

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: settings.Namespace, Name: settings.LeaseName}}
	create(t, c, lease)
	hold := func(ctx context.Context, holder string, since time.Duration, seconds int32) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
			return err
		}
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-since))),
		}
		return c.Update(ctx, lease)
	}
	if err := hold(t.Context(), "copy-1_1234", time.Hour, 15); err != nil {
		t.Fatal(err)
	}
	out, code = runCommand(t, "check")
	wantOutput(t, "the leader is gone", out, code, 1, "failure the operator has no leader: copy-1 holds lease "+name+" but last renewed it 60m ago")

	renewing, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.UntilWithContext(renewing, func(ctx context.Context) {
			if err := hold(ctx, "copy-1_1234", time.Hour, 15); err != nil && ctx.Err() == nil {
				t.Errorf("renew the lease: %v", err)
			}
		}, 100*time.Millisecond)
	}()
	out, code = runCommand(t, "check")
	stop()
	<-done
	wantOutput(t, "the leader's clock is an hour behind", out, code, 0, "ok copy-1 is the leader: it holds lease "+name)

	if err := hold(t.Context(), "", 0, 1); err != nil {
		t.Fatal(err)
	}
	out, code = runCommand(t, "check")
	wantOutput(t, "the leader has released the lease", out, code, 1, "failure the operator has no leader: lease "+name+" has no holder")

	// Nothing renews it for as long as the other tests take.
	if err := hold(t.Context(), "copy-1_1234", 0, 600); err != nil {
		t.Fatal(err)
	}
	out, code = runCommand(t, "check")
	wantOutput(t, "a copy leads", out, code, 0, "ok copy-1 is the leader: it holds lease "+name+", renewed ")
}

// checkFlags sets invalid flags and restores the old ones.
func checkFlags(t *testing.T, c client.Client, deployment *appsv1.Deployment) {
	t.Helper()
	before := slices.Clone(deployment.Spec.Template.Spec.Containers[0].Args)
	run := func(arguments ...string) (string, int) {
		deployment.Spec.Template.Spec.Containers[0].Args = arguments
		if err := c.Update(t.Context(), deployment); err != nil {
			t.Fatal(err)
		}
		return runCommand(t, "check")
	}
	out, code := run("--leader-elect=perhaps")
	wantOutput(t, "the operator cannot start with its flags", out, code, 1, "failure the operator cannot start with its flags",
		"kubectl edit deployment/sidecar-termination-controller-manager -n sidecar-termination-system", "ok admission policy", "ok OpenKruise is not installed")
	out, code = run("--leader-elect=false")
	wantOutput(t, "every copy acts", out, code, 0, "warning the operator runs without leader election")
	out, code = run(before...)
	wantOutput(t, "the flags are as they were", out, code, 0, "ok copy-1 is the leader")
}

// checkDefinitions installs a CRD of another version and restores it.
func checkDefinitions(t *testing.T, c client.Client) {
	t.Helper()
	const name = "sidecarterminationpolicies.sidecartermination.dev"
	out, _ := runCommand(t, "check")
	wantOutput(t, "the definitions of this version", out, 0, 0, "ok CRD "+name+" serves version v1alpha1 with every field",
		"ok CRD cluster"+name+" serves version v1alpha1 with every field")

	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, definition); err != nil {
		t.Fatal(err)
	}
	set := func(schema *apiextensionsv1.JSONSchemaProps) {
		t.Helper()
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema = schema
		if err := c.Update(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
	}
	current := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.DeepCopy()
	other := current.DeepCopy()
	delete(other.Properties["spec"].Properties, "prePull")
	other.Properties["spec"].Properties["grace"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	set(other)
	out, code := runCommand(t, "check")
	set(current)
	wantOutput(t, "a definition of another version", out, code, 0,
		"warning CRD "+name+" has another version and lacks spec.prePull -> install the CRDs of this version",
		"warning CRD "+name+" has another version and fields unknown to this program: spec.grace")
}

// checkPolicies creates a policy that is not ready, then degraded.
func checkPolicies(t *testing.T, c client.Client) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-"}}
	create(t, c, namespace)
	policy := newPolicy(namespace.Name)
	create(t, c, policy)
	look := "-> run: " + settings.PluginName + " explain policy/" + policy.Name + " -n " + namespace.Name
	for _, tc := range []struct {
		name       string
		conditions []metav1.Condition
		want       string
	}{
		{"a policy that is not ready", []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: string(v1alpha1.ReasonInvalidSelector), Message: "no"},
		}, "is not ready (InvalidSelector): no " + look},
		{"a policy that is degraded", []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: string(v1alpha1.ReasonEnforced)},
			{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: string(v1alpha1.ReasonStuck), Message: "1 pod is stuck"},
		}, "is degraded (Stuck): 1 pod is stuck " + look},
	} {
		policy.Status.ObservedGeneration, policy.Status.Conditions = policy.Generation, tc.conditions
		for i := range policy.Status.Conditions {
			policy.Status.Conditions[i].LastTransitionTime = metav1.Now()
		}
		if err := c.Status().Update(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		out, code := runCommand(t, "check")
		wantOutput(t, tc.name, out, code, 0, tc.want)
	}
	if err := c.Delete(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
}

// checkKruise installs OpenKruise piece by piece.
func checkKruise(t *testing.T, c client.Client) {
	t.Helper()
	newNode(t, c)
	// These nodes cannot run OpenKruise's daemon.
	addNode(t, c, "fargate-of-cli-tests", map[string]string{"eks.amazonaws.com/compute-type": "fargate"})
	addNode(t, c, "virtual-of-cli-tests", map[string]string{"type": "virtual-kubelet"})
	testenv.NewKruise(t, c).Install(t)
	out, _ := runCommand(t, "check")
	wantOutput(t, "OpenKruise without manager and daemon", out, 0, 0, "ok CRD containerrecreaterequests.apps.kruise.io is served",
		"ok kruise-mutating-webhook-configuration guards CRRs", "warning DaemonSet kruise-daemon not found", "warning Deployment kruise-controller-manager not found")

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
	wantOutput(t, "OpenKruise with its own terminator", out, 0, 0, "warning OpenKruise's SidecarTerminator is on",
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
	wantOutput(t, "OpenKruise as it should be", out, code, 0, "ok kruise-daemon is ready on all 1 real nodes", "ok OpenKruise's SidecarTerminator is off")

	grant(t, c, "reader",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"list"}})
	testenv.Eventually(t, "the reader may read DaemonSets", func(context.Context) error {
		if out, code = runCommand(t, "check", "--as", "reader"); code != 0 || strings.Contains(out, "you may not read DaemonSets") || strings.Contains(out, "you may not read nodes") {
			return fmt.Errorf("exit code %d:\n%s", code, out)
		}
		return nil
	})
	wantOutput(t, "someone who may not read OpenKruise's pods", out, code, 0, "warning you may not read pods in namespace kruise-system")
}
