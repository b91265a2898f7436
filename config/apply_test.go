// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// server is the configuration of the API server.
var server *rest.Config

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // otherwise clients warn after a while, in the middle of a benchmark's results
	os.Exit(testenv.Run(m, "crd/bases", func(config *rest.Config) { server = config }))
}

// warnings records the server's warnings.
type warnings struct {
	mutex sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.texts = append(w.texts, text)
}

// newClient returns a client with strict field validation, and its warnings.
func newClient(tb testing.TB) (client.Client, *warnings) {
	tb.Helper()
	got := &warnings{}
	config := rest.CopyConfig(server)
	config.WarningHandlerWithContext = got
	plain, err := client.New(config, client.Options{Scheme: kinds(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	return client.WithFieldValidation(plain, "Strict"), got
}

// kinds returns a scheme with the types of the tests.
func kinds(tb testing.TB) *runtime.Scheme {
	tb.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, kruise.AddToScheme} {
		if err := add(all); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

// foreign are API groups without CRDs on the server: of the Prometheus operator and of an example.
var foreign = []string{"monitoring.coreos.com", "example.com"}

// apply does what kubectl apply --server-side -k does, in the rendered order. When the test ends, it deletes Deployments, which
// overlays cannot change into each other, and bindings, which would have effect on other overlays.
func apply(tb testing.TB, directory string) resources {
	tb.Helper()
	c, got := newClient(tb)
	rendered := render(tb, directory)
	for _, object := range rendered {
		if slices.Contains(foreign, object.GroupVersionKind().Group) {
			continue
		}
		if namespaced, err := c.IsObjectNamespaced(&object); err != nil {
			tb.Fatal(err)
		} else if namespaced && object.GetNamespace() == "" {
			object.SetNamespace("default")
		}
		ensureNamespace(tb, c, object.GetNamespace())
		configuration := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
		if err := c.Apply(tb.Context(), configuration, client.ForceOwnership, client.FieldOwner("kubectl")); err != nil {
			tb.Errorf("%s: apply %s %s: %v", directory, object.GetKind(), object.GetName(), err)
		}
		if slices.Contains([]string{"Deployment", "Job", "ClusterRoleBinding", "RoleBinding"}, object.GetKind()) {
			tb.Cleanup(func() {
				err := c.Delete(context.Background(), &object, client.PropagationPolicy(metav1.DeletePropagationBackground))
				if client.IgnoreNotFound(err) != nil {
					tb.Errorf("remove the %s: %v", object.GetKind(), err)
				}
			})
		}
	}
	if len(got.texts) > 0 {
		tb.Errorf("apply %s: warnings %q", directory, got.texts)
	}
	return rendered
}

// ensureNamespace creates the namespace that a user's kustomization requires.
func ensureNamespace(tb testing.TB, c client.Client, name string) {
	tb.Helper()
	if name == "" || name == "default" || name == namespace {
		return
	}
	err := c.Create(tb.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatal(err)
	}
}

func TestServerAcceptsKustomizations(t *testing.T) {
	for _, directory := range directories(t, types.KustomizationKind) {
		// These need the namespace of default.
		if directory == "manager" || directory == "rbac" {
			continue
		}
		t.Run(directory, func(t *testing.T) { apply(t, directory) })
	}
	for _, directory := range directories(t, types.ComponentKind) {
		t.Run(directory, func(t *testing.T) {
			apply(t, writeFiles(t, map[string]string{"kustomization.yaml": componentUse(directory)}))
		})
	}
}

func TestServerAcceptsPatchedPolicies(t *testing.T) {
	for name, kustomization := range map[string]string{
		"merged":       component + "patches:" + patchBothKinds,
		"images":       component + "images: [{name: quick-exit, newName: mirror.example/quick-exit, digest: 'sha256:" + strings.Repeat("a", 64) + "'}]\n",
		"moved":        component + "namePrefix: team-\nnamespace: batch\n",
		"cluster-wide": "resources: [CONFIG/presets/istio-proxy]\ncomponents: [CONFIG/kustomize/cluster-wide]\n",
		"every preset": "namespace: batch\nresources: [CONFIG/presets/istio-proxy, CONFIG/presets/dapr, CONFIG/presets/vault-agent]\n",
		"JSON patch":   "resources: [base.yaml]\npatches: [{target: {name: p}, patch: '[{\"op\": \"add\", \"path\": \"/spec/sidecars/-\", \"value\": {\"name\": \"x\"}}]'}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newClient(t)
			for _, object := range overlay(t, kustomization) {
				if !strings.HasSuffix(object.GetKind(), "Policy") {
					continue
				}
				if object.GetNamespace() == "" && object.GetKind() == "SidecarTerminationPolicy" {
					object.SetNamespace("default")
				}
				ensureNamespace(t, c, object.GetNamespace())
				err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(&object), client.FieldOwner("user"), client.ForceOwnership, client.DryRunAll)
				if err != nil {
					t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
				}
			}
		})
	}
}

func TestServerNamesInvalidField(t *testing.T) {
	for name, tc := range map[string]struct{ patch, want string }{
		"unknown mode":                {"{sidecars: [{name: istio-proxy, mode: Crash}]}", "spec.sidecars[0].mode"},
		"negative drain":              {"{sidecars: [{name: istio-proxy, drainSeconds: -1}]}", "spec.sidecars[0].drainSeconds"},
		"unknown field":               {"{sidecars: [{name: istio-proxy, drain: 5}]}", `spec.sidecars[name="istio-proxy"].drain: field not declared`},
		"sidecars and mainContainers": {"{mainContainers: [main]}", "exactly one of sidecars and mainContainers"},
		"PodPhase with Respect":       {"{sidecars: [{name: istio-proxy, mode: PodPhase, exitCodes: Respect}]}", "spec.sidecars[0].exitCodes"},
		"image with spaces":           {"{sidecars: [{name: istio-proxy, image: quick exit}]}", "spec.sidecars[0].image"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newClient(t)
			rendered := overlay(t, `
resources: [CONFIG/presets/istio-proxy]
namespace: default
patches:
- patch: |-
    apiVersion: sidecartermination.dev/v1alpha1
    kind: SidecarTerminationPolicy
    metadata: {name: istio-proxy}
    spec: `+tc.patch+"\n")
			err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(&rendered[0]), client.FieldOwner("user"), client.ForceOwnership, client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %s", err, tc.want)
			}
		})
	}
}

func TestPodSecurityAdmitsOperator(t *testing.T) {
	for _, directory := range installations() {
		t.Run(directory, func(t *testing.T) {
			rendered := apply(t, directory)
			if err := createPod(t, rendered, func(*corev1.PodSpec) {}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPodSecurityDeniesPrivileges(t *testing.T) {
	rendered := apply(t, "default")
	for name, loosen := range map[string]func(*corev1.PodSpec){
		"hostNetwork":  func(spec *corev1.PodSpec) { spec.HostNetwork = true },
		"root":         func(spec *corev1.PodSpec) { *spec.SecurityContext.RunAsUser = 0 },
		"capabilities": func(spec *corev1.PodSpec) { spec.Containers[0].SecurityContext.Capabilities = nil },
	} {
		if err := createPod(t, rendered, loosen); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "violates PodSecurity") {
			t.Errorf("%s: got error %v, want Forbidden", name, err)
		}
	}
}

// createPod creates the operator's pod with a change, as a dry run.
func createPod(t *testing.T, rendered resources, change func(*corev1.PodSpec)) error {
	t.Helper()
	c, _ := newClient(t)
	template := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.GenerateName = namespace, "operator-"
	change(&pod.Spec)
	return c.Create(t.Context(), pod, client.DryRunAll)
}

func TestOperatorPermissions(t *testing.T) {
	apply(t, "default")
	const lease = settings.LeaseName
	leases := func(verb, namespace, name string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{
			Group: "coordination.k8s.io", Resource: "leases", Verb: verb, Namespace: namespace, Name: name,
		}
	}
	for name, access := range map[string]struct {
		what    authorizationv1.ResourceAttributes
		allowed bool
	}{
		"update own lease":            {leases("update", namespace, lease), true},
		"create lease":                {leases("create", namespace, ""), true},
		"update other lease":          {leases("update", namespace, "another"), false},
		"update lease in kube-system": {leases("update", "kube-system", lease), false},
		"create event for leader":     {authorizationv1.ResourceAttributes{Resource: "events", Verb: "create", Namespace: namespace}, true},
		"watch all pods":              {authorizationv1.ResourceAttributes{Resource: "pods", Verb: "watch"}, true},
		"patch pod":                   {authorizationv1.ResourceAttributes{Resource: "pods", Verb: "patch", Namespace: "default"}, true},
		"patch pod status":            {authorizationv1.ResourceAttributes{Resource: "pods", Subresource: "status", Verb: "patch", Namespace: "default"}, true},
		"update policy status":        {authorizationv1.ResourceAttributes{Group: "sidecartermination.dev", Resource: "sidecarterminationpolicies", Subresource: "status", Verb: "update", Namespace: "default"}, true},
		"create CRR":                  {authorizationv1.ResourceAttributes{Group: "apps.kruise.io", Resource: "containerrecreaterequests", Verb: "create", Namespace: "default"}, true},
		"create pod event":            {authorizationv1.ResourceAttributes{Group: "events.k8s.io", Resource: "events", Verb: "create", Namespace: "default"}, true},
		"get Secret":                  {authorizationv1.ResourceAttributes{Resource: "secrets", Verb: "get", Namespace: namespace}, false},
		"create pod":                  {authorizationv1.ResourceAttributes{Resource: "pods", Verb: "create", Namespace: "default"}, false},
		"delete pod":                  {authorizationv1.ResourceAttributes{Resource: "pods", Verb: "delete", Namespace: "default"}, false},
		"exec in pod":                 {authorizationv1.ResourceAttributes{Resource: "pods", Subresource: "exec", Verb: "create", Namespace: "default"}, false},
		"patch node":                  {authorizationv1.ResourceAttributes{Resource: "nodes", Verb: "patch"}, false},
		"update policy":               {authorizationv1.ResourceAttributes{Group: "sidecartermination.dev", Resource: "sidecarterminationpolicies", Verb: "update", Namespace: "default"}, false},
		"update ClusterRole":          {authorizationv1.ResourceAttributes{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verb: "update"}, false},
		"impersonate":                 {authorizationv1.ResourceAttributes{Resource: "users", Verb: "impersonate"}, false},
		"create token":                {authorizationv1.ResourceAttributes{Resource: "serviceaccounts", Subresource: "token", Verb: "create", Namespace: namespace}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if allowed, reason := operatorCan(t, access.what); allowed != access.allowed {
				t.Errorf("allowed: %t, want %t (%s)", allowed, access.allowed, reason)
			}
		})
	}
}

// operatorCan returns whether the operator has the permission, and the reason.
func operatorCan(t *testing.T, what authorizationv1.ResourceAttributes) (bool, string) {
	t.Helper()
	c, _ := newClient(t)
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + namespace + ":" + deployment, ResourceAttributes: &what,
	}}
	if err := c.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed, review.Status.Reason
}

func TestOverlayPermissions(t *testing.T) {
	type permissions struct{ crr, image, podPhase, prePull bool }
	for overlay, want := range map[string]permissions{
		"default":                {true, true, true, true},
		"overlays/kruise":        {true, false, true, false},
		"overlays/daemonless":    {false, true, true, false},
		"overlays/virtual-nodes": {false, true, false, false},
		"overlays/restricted":    {true, true, false, true},
	} {
		t.Run(overlay, func(t *testing.T) {
			apply(t, overlay)
			var got permissions
			got.crr, _ = operatorCan(t, authorizationv1.ResourceAttributes{Group: "apps.kruise.io", Resource: "containerrecreaterequests", Verb: "create", Namespace: "default"})
			got.image, _ = operatorCan(t, authorizationv1.ResourceAttributes{Resource: "pods", Verb: "patch", Namespace: "default"})
			got.podPhase, _ = operatorCan(t, authorizationv1.ResourceAttributes{Resource: "pods", Subresource: "status", Verb: "patch", Namespace: "default"})
			got.prePull, _ = operatorCan(t, authorizationv1.ResourceAttributes{Group: "apps.kruise.io", Resource: "imagepulljobs", Verb: "create", Namespace: "default"})
			if got != want {
				t.Errorf("the operator has permissions %+v, want %+v", got, want)
			}
		})
	}
}
