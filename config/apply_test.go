// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
)

// server is the configuration of the API server.
var server *rest.Config

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // otherwise clients warn after a while, in the middle of a benchmark's results
	os.Exit(testenv.Run(m, "crd/bases", func(config *rest.Config) { server = config }))
}

// newClient returns a client with strict field validation, and the server's warnings.
func newClient(tb testing.TB) (client.Client, *strings.Builder) {
	tb.Helper()
	warnings := &strings.Builder{}
	config := rest.CopyConfig(server)
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{})
	plain, err := client.New(config, client.Options{Scheme: kinds(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	return client.WithFieldValidation(plain, "Strict"), warnings
}

// kinds returns a scheme with the types of the tests.
func kinds(tb testing.TB) *runtime.Scheme {
	tb.Helper()
	all, err := scheme.New()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// foreign are API groups without CRDs on the server: of the Prometheus operator and of an example.
var foreign = []string{"monitoring.coreos.com", "example.com"}

// deletedAtEnd are the kinds of objects that apply deletes when the test ends: Deployments, which overlays cannot change into each other, and
// bindings, which would have effect on other overlays.
var deletedAtEnd = []string{"Deployment", "Job", "ClusterRoleBinding", "RoleBinding"}

// apply does what kubectl apply --server-side -k does, in the rendered order.
func apply(tb testing.TB, directory string) resources {
	tb.Helper()
	return applyChanged(tb, directory, nil)
}

// applied are the objects that applyChanged has applied, by kind, namespace and name.
type applied map[string]map[string]any

// applyChanged is apply without the objects that are as it applied them last. Another manager must be able to apply the same.
func applyChanged(tb testing.TB, directory string, last applied) resources {
	tb.Helper()
	c, warnings := newClient(tb)
	rendered := render(tb, directory)
	for _, object := range rendered {
		kind := object.GetKind()
		if slices.Contains(foreign, object.GroupVersionKind().Group) {
			continue
		}
		if namespaced, err := c.IsObjectNamespaced(&object); err != nil {
			tb.Fatal(err)
		} else if namespaced && object.GetNamespace() == "" {
			object.SetNamespace("default")
		}
		ensureNamespace(tb, c, object.GetNamespace())
		if slices.Contains(deletedAtEnd, kind) {
			tb.Cleanup(func() {
				err := c.Delete(context.Background(), &object, client.PropagationPolicy(metav1.DeletePropagationBackground))
				if client.IgnoreNotFound(err) != nil {
					tb.Errorf("remove the %s: %v", kind, err)
				}
			})
		} else if id := kind + " " + client.ObjectKeyFromObject(&object).String(); last != nil {
			if cmp.Equal(last[id], object.Object) {
				continue
			}
			last[id] = object.Object
		}
		written := object.DeepCopy()
		if err := c.Apply(tb.Context(), client.ApplyConfigurationFromUnstructured(written), client.ForceOwnership, client.FieldOwner("kubectl")); err != nil {
			tb.Errorf("%s: apply %s %s: %v", directory, kind, object.GetName(), err)
		}
		if last == nil {
			continue
		}
		// A list that the server owns as one value conflicts where it has added defaults to its items.
		again := object.DeepCopy()
		if err := c.Apply(tb.Context(), client.ApplyConfigurationFromUnstructured(again), client.FieldOwner("gitops"), client.DryRunAll); err != nil {
			tb.Errorf("%s: another manager applies %s %s: %v", directory, kind, object.GetName(), err)
		} else if diff := cmp.Diff(withoutManagers(written), withoutManagers(again)); diff != "" {
			tb.Errorf("%s: another manager changes %s %s (-before +after):\n%s", directory, kind, object.GetName(), diff)
		}
	}
	if warnings.Len() > 0 {
		tb.Errorf("apply %s: %s", directory, warnings)
	}
	return rendered
}

// withoutManagers returns what the object says, without what the server notes about its writers.
func withoutManagers(object *unstructured.Unstructured) map[string]any {
	object.SetManagedFields(nil)
	object.SetResourceVersion("")
	delete(object.Object, "status")
	return object.Object
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

// The API server decides which objects have a namespace, and the namespace's pod security level decides whether the operator's pod runs.
func TestServerAcceptsKustomizations(t *testing.T) {
	c, _ := newClient(t)
	last := applied{}
	for _, directory := range directories(t, types.KustomizationKind) {
		// These need the namespace of default.
		if directory == "manager" || directory == "rbac" {
			continue
		}
		t.Run(directory, func(t *testing.T) {
			rendered := applyChanged(t, directory, last)
			if !slices.Contains(installations(), directory) {
				return
			}
			for _, object := range rendered {
				if namespaced, err := c.IsObjectNamespaced(&object); err != nil || namespaced != (object.GetNamespace() == namespace) {
					t.Errorf("%s %s has namespace %q, error %v", object.GetKind(), object.GetName(), object.GetNamespace(), err)
				}
				name, label := object.GetName(), object.GetLabels()["app.kubernetes.io/name"]
				if !strings.HasPrefix(name, "sidecar-termination-") && !strings.HasSuffix(name, ".sidecartermination.dev") || label != settings.Name {
					t.Errorf("%s %s has no project prefix, or label app.kubernetes.io/name %q", object.GetKind(), name, label)
				}
			}
			template := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template
			pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			pod.Namespace, pod.GenerateName = namespace, "operator-"
			if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
	// TestComponentsCombine shows that components do the same together.
	for _, directory := range directories(t, types.ComponentKind) {
		bases := []string{"CONFIG/default", "CONFIG/" + namespacedOverlay}
		if strings.HasPrefix(directory, "kustomize/") {
			bases = []string{"CONFIG/presets/istio-proxy"}
		}
		for _, base := range bases {
			t.Run(directory+" on "+base, func(t *testing.T) {
				kustomization := "resources: [" + base + "]\ncomponents: [CONFIG/" + directory + "]\n"
				applyChanged(t, writeFiles(t, map[string]string{"kustomization.yaml": kustomization}), last)
			})
		}
	}
}
