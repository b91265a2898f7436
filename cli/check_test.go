// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cli_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
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
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// object returns the object of a manifest.
func object(manifest string) client.Object {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		panic(err)
	}
	return object
}

// newRequest is a CRR of the operator.
func newRequest(pod *corev1.Pod) client.Object {
	return object(fmt.Sprintf(`{apiVersion: apps.kruise.io/v1alpha1, kind: ContainerRecreateRequest,
  metadata: {namespace: %s, name: sidecar-termination-%s-1, labels: {app.kubernetes.io/managed-by: sidecar-termination-operator}},
  spec: {podName: %s, containers: [{name: proxy}]}}`, pod.Namespace, pod.UID, pod.Name))
}

// operator returns the operator's Deployment.
func operator(t *testing.T, c client.Client, namespace string) *appsv1.Deployment {
	t.Helper()
	deployment := &appsv1.Deployment{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: settings.DeploymentName}, deployment))
	return deployment
}

// start makes the Deployment ready.
func start(t *testing.T, c client.Client, deployment *appsv1.Deployment) {
	t.Helper()
	deployment.Status = appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, UpdatedReplicas: 2}
	must(t, c.Status().Update(t.Context(), deployment))
}

// checkUntil runs check until its output has the text and it ends with the exit code: the API server reads roles and admission
// policies with a delay.
func checkUntil(t *testing.T, what, text string, wantCode int, arguments ...string) string {
	t.Helper()
	var out string
	testenv.Eventually(t, what, func(context.Context) error {
		var code int
		out, code = runCommand(t, append([]string{"check"}, arguments...)...)
		if code != wantCode || !strings.Contains(strings.Join(strings.Fields(out), " "), text) {
			return fmt.Errorf("exit code %d:\n%s", code, out)
		}
		return nil
	})
	return out
}

func TestCheck(t *testing.T) {
	c, namespace := newNamespace(t)
	wantCommand(t, "nothing is installed", "check", 1, "failure no operator found in any namespace")
	wantCommand(t, "before the installation", "check --pre", 0, "ok the API server serves all admission policies. Install the operator with: kubectl apply --server-side -k",
		"ok no operator found in any namespace", "warning CRD sidecarterminationpolicies.sidecartermination.dev exists",
		"ok you have the permissions to install the operator in namespace sidecar-termination-system", "OpenKruise is not installed")
	wantCommand(t, "someone who may not install", "check --pre --as nobody", 1, "warning you may not read Deployments",
		"failure you may not create, patch customresourcedefinitions.apiextensions.k8s.io -> let a cluster administrator install the operator",
		"failure you may not create, patch deployments.apps in namespace sidecar-termination-system", "failure you may not patch pods/status")
	wantCommand(t, "version without an operator", "version", 0, "Operator: unknown: no operator found in any namespace")

	// These policies are older than the admission policies.
	first, second, free := newPolicy(namespace), newPolicy(namespace), newPolicy(namespace)
	first.Name, second.Name, free.Name, free.Spec.Enforcement = "mesh-0", "mesh-1", "free", v1alpha1.EnforcementDryRun
	create(t, c, first, second, free)
	apply(t, c, "default")
	deployment := operator(t, c, settings.Namespace)
	wantCommand(t, "the operator does not start", "check", 1, "failure Deployment sidecar-termination-system/sidecar-termination-controller-manager has 0 of 2 ready pods",
		"ok ServiceAccount sidecar-termination-controller-manager has all", "ok the quick-exit image is ghcr.io/",
		"ok metrics are served on :8443 to users who may get /metrics", "ok all 9 admission policies are installed",
		"ok CRD sidecarterminationpolicies.sidecartermination.dev serves version v1alpha1 with every field",
		"ok CRD clustersidecarterminationpolicies.sidecartermination.dev serves version v1alpha1 with every field")

	wantCommand(t, "there is an operator", "check --pre", 0, "warning an operator is installed in namespace sidecar-termination-system -> check it without --pre")
	wantCommand(t, "version", "version", 0, "Operator: "+settings.Release+" in namespace sidecar-termination-system")

	start(t, c, deployment)
	checkLease(t, c)
	checkAuthors(t, c, first, second)
	checkFlags(t, c, deployment)
	checkDefinitions(t, c)
	checkWeakenedDeployment(t, c, deployment)
	checkDeletedPolicy(t, c)
	checkChangedObjects(t, c)
	wantCommand(t, "all is installed", "check", 0, "failures: 0,")
	out := wantCommand(t, "someone who may read nothing", "check --as nobody", 2, "error: you may not read anything of the operator")
	if strings.Contains(out, "warning") {
		t.Errorf("there is more than one message:\n%s", out)
	}

	checkPolicies(t, c)
	for _, policy := range []client.Object{first, free} {
		must(t, c.Delete(t.Context(), policy))
	}
	checkKruise(t, c)
	checkNetwork(t, c, namespace)

	checkOutcomePolicy(t, c)

	const account = "failure ServiceAccount sidecar-termination-controller-manager may not "
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sidecar-termination-manager-image-role"}}
	outcome := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sidecar-termination-manager-outcome-role"}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: "sidecar-termination-leader-election-rolebinding"}}
	for _, object := range []client.Object{role, outcome, binding} {
		must(t, c.Delete(t.Context(), object))
	}
	out = checkUntil(t, "a role and a binding are missing", "may not create leases", 1)
	wantOutput(t, "missing permissions", out, 1, 1, account+"patch pods (mode Image)", account+"patch pods/status (outcome of pods)",
		account+"create leases.coordination.k8s.io in namespace sidecar-termination-system (leader election)",
		account+"get, update leases.coordination.k8s.io named "+settings.LeaseName+" in namespace sidecar-termination-system (leader election)")
}

// checkOutcomePolicy removes the binding of the admission policy that decides outcomes.
func checkOutcomePolicy(t *testing.T, c client.Client) {
	t.Helper()
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "sidecar-termination-outcome"}}
	must(t, c.Delete(t.Context(), binding))
	wantCommand(t, "no binding", "check", 0, "warning admission policy sidecar-termination-outcome is missing: the operator decides the outcome of pods, "+
		"and exit codes of sidecars count while it is away or slow -> install it: kubectl apply --server-side -f")
	guard := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "sidecar-termination-phase"}}
	must(t, c.Delete(t.Context(), guard))
	wantCommand(t, "nothing keeps outcomes", "check", 1, "failure neither admission policy sidecar-termination-outcome nor sidecar-termination-phase is at work: "+
		"a kubelet may take back the outcome of a pod -> install the second: kubectl apply --server-side -f")
}

// checkAuthors changes the first policy, which then passes the admission policies, and deletes the second.
func checkAuthors(t *testing.T, c client.Client, first, second *v1alpha1.SidecarTerminationPolicy) {
	t.Helper()
	wantCommand(t, "policies older than admission policies", "check", 0,
		"warning 2 of 2 enforced policies were last changed before the admission policies that check authors: policy "+first.Namespace+"/mesh-0, ",
		"-> review them", "let its author add a default to it, such as fallback: Enabled")
	patch := client.MergeFrom(first.DeepCopy())
	first.Spec.Priority++
	must(t, c.Patch(t.Context(), first, patch))
	wantCommand(t, "a change passes the admission policies", "check", 0, "warning 1 of 2 enforced policies")
	must(t, c.Delete(t.Context(), second))
	wantCommand(t, "checked policies only", "check", 0, "ok 1 of 1 enforced policies passed the admission policies")
}

// checkLease changes the holder of the lease, and leaves it held.
func checkLease(t *testing.T, c client.Client) {
	t.Helper()
	const name = settings.Namespace + "/" + settings.LeaseName
	wantCommand(t, "no copy has led yet", "check", 1, "failure the operator has no leader: lease "+name+" not found",
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
	must(t, hold(t.Context(), "copy-1_1234", time.Hour, 15))
	wantCommand(t, "the leader is gone", "check", 1, "failure the operator has no leader: copy-1 holds lease "+name+" but last renewed it 60m ago")

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
	wantCommand(t, "the leader's clock is an hour behind", "check", 0, "ok copy-1 is the leader: it holds lease "+name)
	stop()
	<-done

	// Nothing renews it for as long as the other tests take.
	must(t, hold(t.Context(), "copy-1_1234", 0, 600))
	wantCommand(t, "a copy leads", "check", 0, "ok copy-1 is the leader: it holds lease "+name+", renewed ")
}

// checkFlags sets invalid flags and restores the old ones.
func checkFlags(t *testing.T, c client.Client, deployment *appsv1.Deployment) {
	t.Helper()
	before := slices.Clone(deployment.Spec.Template.Spec.Containers[0].Args)
	set := func(arguments ...string) {
		t.Helper()
		deployment.Spec.Template.Spec.Containers[0].Args = arguments
		must(t, c.Update(t.Context(), deployment))
	}
	set("--leader-elect=perhaps")
	wantCommand(t, "the operator cannot start with its flags", "check", 1, "failure the operator cannot start with its flags",
		"kubectl edit deployment/sidecar-termination-controller-manager -n sidecar-termination-system", "ok all 9 admission policies", "ok OpenKruise is not installed")
	set("--leader-elect=false")
	wantCommand(t, "every copy acts", "check", 0, "warning the operator runs without leader election")
	set(before...)
}

// checkDefinitions installs a CRD of another version, then one without rules, and restores it.
func checkDefinitions(t *testing.T, c client.Client) {
	t.Helper()
	const name = "sidecarterminationpolicies.sidecartermination.dev"
	definition := &apiextensionsv1.CustomResourceDefinition{}
	must(t, c.Get(t.Context(), client.ObjectKey{Name: name}, definition))
	set := func(schema *apiextensionsv1.JSONSchemaProps) {
		t.Helper()
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema = schema
		must(t, c.Update(t.Context(), definition))
	}
	current := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.DeepCopy()
	other := current.DeepCopy()
	delete(other.Properties["spec"].Properties, "prePull")
	other.Properties["spec"].Properties["grace"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	set(other)
	wantCommand(t, "a definition of another version", "check", 0,
		"warning CRD "+name+" has another version and lacks spec.prePull -> install the CRDs of this version",
		"warning CRD "+name+" has another version and fields unknown to this program: spec.grace")
	weaker := current.DeepCopy()
	spec := weaker.Properties["spec"]
	spec.XValidations = nil
	weaker.Properties["spec"] = spec
	set(weaker)
	wantCommand(t, "a definition without rules", "check", 0, "warning CRD "+name+" accepts more than this version ships: spec.x-kubernetes-validations"+
		" -> if this is not intended, restore it: kubectl replace -k")
	set(current)
	wantCommand(t, "the definition is restored", "check", 0, "ok CRD "+name+" serves version v1alpha1 with every field and rule")
}

// checkWeakenedDeployment gives the operator more rights on its node, and changes its account. It restores all.
func checkWeakenedDeployment(t *testing.T, c client.Client, deployment *appsv1.Deployment) {
	t.Helper()
	shipped := deployment.Spec.DeepCopy()
	for what, tc := range map[string]struct {
		change func(pod *corev1.PodSpec)
		code   int
		want   string
	}{
		"privileged pod on the host's network": {func(pod *corev1.PodSpec) {
			pod.HostNetwork = true
			pod.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, 0, "warning the operator's pods have more rights on their node than this version ships: allowPrivilegeEscalation of container manager, " +
			"capabilities of container manager, hostNetwork, privileged of container manager, readOnlyRootFilesystem of container manager -> " +
			"if this is not intended, remove it: kubectl edit deployment/sidecar-termination-controller-manager"},
		"another account": {func(pod *corev1.PodSpec) { pod.ServiceAccountName, pod.DeprecatedServiceAccount = "sidecar", "sidecar" },
			1, "warning admission policy sidecar-termination-operator-limits does not apply to ServiceAccount sidecar, which runs the operator: " +
				"only RBAC limits what the operator's ServiceAccount can do to pods -> if this is not intended: kubectl set serviceaccount " +
				"deployment/sidecar-termination-controller-manager sidecar-termination-controller-manager -n sidecar-termination-system"},
	} {
		tc.change(&deployment.Spec.Template.Spec)
		must(t, c.Update(t.Context(), deployment))
		if out := wantCommand(t, what, "check", tc.code, tc.want); tc.code == 1 && strings.Contains(out, "they limit the operator") {
			t.Errorf("%s: the policies are said to limit the operator:\n%s", what, out)
		}
		deployment.Spec = *shipped.DeepCopy()
		must(t, c.Update(t.Context(), deployment))
	}
	wantCommand(t, "the Deployment is restored", "check", 0, "ok the operator's pods have at most the rights on their node that this version ships")
}

// checkDeletedPolicy deletes an admission policy that a finalizer keeps, and creates it again.
func checkDeletedPolicy(t *testing.T, c client.Client) {
	t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	must(t, c.Get(t.Context(), client.ObjectKey{Name: "sidecar-termination-operator-limits"}, policy))
	shipped := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy.Name, Labels: policy.Labels}, Spec: policy.Spec}
	policy.Finalizers = []string{"example.com/hold"}
	must(t, c.Update(t.Context(), policy))
	must(t, c.Delete(t.Context(), policy))
	wantCommand(t, "a policy is being deleted", "check", 0, "warning admission policy sidecar-termination-operator-limits is being deleted. Without it, "+
		"only RBAC limits what the operator's ServiceAccount can do to pods -> find out who deletes it and what its finalizers wait for. "+
		"When it is gone, install it: kubectl apply")
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	policy.Finalizers = nil
	must(t, c.Update(t.Context(), policy))
	create(t, c, shipped)
}

// checkChangedObjects changes an admission policy's binding and adds a rule to a role. It restores both.
func checkChangedObjects(t *testing.T, c client.Client) {
	t.Helper()
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "sidecar-termination-operator-limits"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "sidecar-termination-manager-role"}}
	for _, object := range []client.Object{binding, role} {
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	}
	actions, rules := binding.Spec.ValidationActions, role.Rules
	set := func(actions []admissionv1.ValidationAction, rules []rbacv1.PolicyRule) {
		t.Helper()
		binding.Spec.ValidationActions, role.Rules = actions, rules
		must(t, c.Update(t.Context(), binding))
		must(t, c.Update(t.Context(), role))
	}
	added := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}}
	set([]admissionv1.ValidationAction{admissionv1.Audit}, append(slices.Clone(rules), added))
	wantCommand(t, "changed objects", "check", 0, "warning admission policy sidecar-termination-operator-limits is not as this version ships it: "+
		"ValidatingAdmissionPolicyBinding spec.validationActions[0] -> if this is not intended, restore it: kubectl replace -f",
		"warning ClusterRole sidecar-termination-manager-role has rules that this version does not ship: get, list secrets "+
			"-> if this is not intended, restore it: apply the operator's manifests again, as you installed them")
	set(actions, rules)
}

// checkPolicies creates a policy that is not ready, then degraded.
func checkPolicies(t *testing.T, c client.Client) {
	t.Helper()
	_, namespace := newNamespace(t)
	policy := newPolicy(namespace)
	create(t, c, policy)
	look := "-> run: " + settings.PluginName + " explain policy/" + policy.Name + " -n " + namespace
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
		must(t, c.Status().Update(t.Context(), policy))
		wantCommand(t, tc.name, "check", 0, tc.want)
	}
	policy.Spec.IncludeInjected = true
	must(t, c.Update(t.Context(), policy))
	wantCommand(t, "the operator may not read Jobs", "check", 1, "failure ServiceAccount "+settings.DeploymentName+" may not get jobs.batch "+
		"(includeInjected of policies) -> install the operator with component include-injected")
	grant(t, c, "", "system:serviceaccount:"+settings.Namespace+":"+settings.DeploymentName,
		rbacv1.PolicyRule{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get"}})
	checkUntil(t, "the operator may read Jobs", "failures: 0,", 0)
	must(t, c.Delete(t.Context(), policy))
}

// checkKruise installs OpenKruise piece by piece.
func checkKruise(t *testing.T, c client.Client) {
	t.Helper()
	newNode(t, c)
	// These nodes cannot run OpenKruise's daemon.
	addNode(t, c, "fargate-of-cli-tests", map[string]string{"eks.amazonaws.com/compute-type": "fargate"})
	addNode(t, c, "virtual-of-cli-tests", map[string]string{"type": "virtual-kubelet"})
	testenv.NewKruise(t, c).Install(t)
	wantCommand(t, "OpenKruise without manager and daemon", "check", 0, "ok CRD containerrecreaterequests.apps.kruise.io is served",
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
	wantCommand(t, "OpenKruise with its own terminator", "check", 0, "warning OpenKruise's SidecarTerminator is on",
		"warning kruise-daemon is not ready on 1 of 1 real nodes: node-of-cli-tests")

	manager.Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=AllAlpha=true,SidecarTerminator=false"}
	must(t, c.Update(t.Context(), manager))
	ready := &corev1.Pod{ObjectMeta: meta("daemon-1"), Spec: pod.Spec}
	ready.Labels, ready.Spec.NodeName = labels, "node-of-cli-tests"
	create(t, c, ready)
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must(t, c.Status().Update(t.Context(), ready))
	wantCommand(t, "OpenKruise as it should be", "check --fail-on=warning", 0, "ok kruise-daemon is ready on all 1 real nodes", "ok OpenKruise's SidecarTerminator is off")

	grant(t, c, "", "reader",
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, Verbs: []string{"list"}})
	checkUntil(t, "someone who may not read OpenKruise's pods", "warning you may not read pods in namespace kruise-system", 0, "--as", "reader")
}

// checkNetwork installs parts of networks.
func checkNetwork(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	out := wantCommand(t, "no network plugin and no NetworkPolicy", "check", 0,
		"ok no NetworkPolicy limits who can connect to the metrics port 8443 -> to allow only Prometheus")
	if strings.Contains(out, "loses its network") {
		t.Errorf("unexpected network plugin:\n%s", out)
	}
	grant(t, c, "", "visitor", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"list"}})
	const unreadable = "warning you may not read DaemonSets, which identify the network plugin"
	out = checkUntil(t, "the visitor may read policies", unreadable, 0, "--as", "visitor")
	if strings.Count(out, "which identify the network") != 1 {
		t.Errorf("the warning is repeated:\n%s", out)
	}

	for _, name := range []string{"calico-node", "ztunnel"} {
		create(t, c, object(fmt.Sprintf(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {namespace: %s, name: %s}, spec: {selector: {matchLabels: {app: a}},
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: a}]}}}}`, namespace, name)))
	}
	wantCommand(t, "DaemonSets", "check", 0, "Network warning found Calico, Istio ambient: a pod loses its network when its phase is terminal",
		"set drainSeconds in their policy, or run the operator with --pod-phase=LastResort")

	create(t, c, object(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ciliumendpoints.cilium.io}, spec: {
  group: cilium.io, scope: Namespaced, names: {plural: ciliumendpoints, kind: CiliumEndpoint},
  versions: [{name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`))
	checkUntil(t, "the CRD is found without permissions", "found Cilium", 0, "--as", "visitor")
	create(t, c, object(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: `+settings.Namespace+`, name: deny-all}, spec: {podSelector: {}}}`))
	wantCommand(t, "all networks and a NetworkPolicy", "check", 0, "found Calico, Cilium, Istio ambient", "ok a NetworkPolicy limits who can connect to the metrics port 8443")
}

func TestCheckForSingleNamespaces(t *testing.T) {
	c, system := newNamespace(t)
	_, watched := newNamespace(t)
	apply(t, c, "overlays/namespaced", settings.Namespace, system, "namespace: batch", "namespace: "+watched, "namespaces=batch", "namespaces="+watched)
	start(t, c, operator(t, c, system))
	create(t, c, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: settings.LeaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("operator-1_0"), RenewTime: ptr.To(metav1.NewMicroTime(time.Now())), LeaseDurationSeconds: ptr.To(int32(3600)),
		},
	})
	wantCommand(t, "an operator in any namespace", "check", 0, "ok Deployment "+system+"/"+settings.DeploymentName+" is ready",
		"other commands need --operator-namespace "+system)
	wantCommand(t, "not in the usual namespace", "check --operator-namespace "+settings.Namespace, 1, "failure no operator found in namespace "+settings.Namespace)
	cluster := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "cluster-of-cli-tests"}}
	cluster.Spec.Sidecars = newPolicy("").Spec.Sidecars
	create(t, c, newPolicy(watched), newPolicy(system), cluster)
	out := wantCommand(t, "single namespaces", "check --operator-namespace "+system, 0,
		"ok the operator watches only "+watched+"; it uses neither cluster policies nor OpenKruise",
		"warning the operator may not read nodes and does not know their kind",
		"warning metrics are served on :8443 without TLS and authentication",
		"warning the operator does not read cluster policies, because it runs with --watch-namespaces: cluster-of-cli-tests",
		"warning policy "+watched+"/mesh has no current status", "ok ServiceAccount "+settings.DeploymentName+" has all")
	if strings.Contains(out, system+"/mesh") || strings.Contains(out, "clusterpolicy") {
		t.Errorf("policies that the operator does not read are checked:\n%s", out)
	}

	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: watched, Name: "sidecar-termination-manager-image-role"}}
	must(t, c.Delete(t.Context(), role))
	checkUntil(t, "a permission is missing", "may not patch pods in namespace "+watched+" (mode Image)", 1, "--operator-namespace", system)

	deployment := operator(t, c, system)
	container := &deployment.Spec.Template.Spec.Containers[0]
	container.Args = append(container.Args, "--watch-namespaces=missing-of-cli-tests")
	must(t, c.Update(t.Context(), deployment))
	wantCommand(t, "a namespace is missing", "check --operator-namespace "+system, 1,
		"warning the operator watches namespaces that do not exist: missing-of-cli-tests -> create them with the operator's roles")
}
