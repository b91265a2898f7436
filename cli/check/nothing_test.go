// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
)

// newChecker returns a checker of the kubectl plugin for a cluster with the objects.
func newChecker(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) (*checker, *countingClient) {
	t.Helper()
	types, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	reads := &countingClient{Client: fake.NewClientBuilder().WithScheme(types).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()}
	return &checker{
		Live: &source.Live{Client: reads}, client: reads, namespace: settings.Namespace, program: settings.PluginName,
		version: &version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0"},
		now:     func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) },
	}, reads
}

func TestNothingInstalledIsOneFailure(t *testing.T) {
	c, _ := newChecker(t, interceptor.Funcs{})
	got, err := c.check(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	want := []checkResult{
		{"Kubernetes", "KubernetesVersion", outcomeOK, "Kubernetes v1.36.0 supports the operator", ""},
		{"Operator", "Deployment", outcomeFailure,
			"the operator is not installed: namespace sidecar-termination-system has no Deployment of it, and the cluster has none of its CRDs",
			"install the operator: kubectl apply --server-side -k 'https://github.com/sidecar-termination/operator//config/default?ref=" + settings.Release + "', or install its Helm chart"},
	}
	if diff := cmp.Diff(want, got.Checks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPartOfAnInstallation(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: settings.Namespace, Name: settings.DeploymentName, Labels: source.OperatorLabels}}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: settings.ContainerName, Image: "operator:v1"}}
	for name, tc := range map[string]struct {
		objects []client.Object
		funcs   interceptor.Funcs
		want    bool
	}{
		"nothing":      {nil, interceptor.Funcs{}, false},
		"a Deployment": {[]client.Object{deployment}, interceptor.Funcs{}, true},
		"a CRD": {[]client.Object{&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "sidecarterminationpolicies.sidecartermination.dev"},
		}}, interceptor.Funcs{}, true},
		"unreadable Deployments": {nil, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbidden
		}}, true},
		"unreadable CRDs": {nil, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbidden
		}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newChecker(t, tc.funcs, tc.objects...)
			if err := c.readSettings(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, err := c.isInstalled(t.Context()); err != nil || got != tc.want {
				t.Errorf("got %t, %v, want %t", got, err, tc.want)
			}
		})
	}
}

func TestNothingReadableIsAnError(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
	deny := interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbidden
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbidden
		},
	}
	c, reads := newChecker(t, deny)
	if err := reads.err(); err != nil {
		t.Errorf("before the first read: %v", err)
	}
	if _, err := c.check(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := reads.err(); !errors.Is(err, errNothingReadable) {
		t.Errorf("got %v after %d denied and %d permitted reads", err, reads.denied, reads.permitted)
	}
	deny.Get = func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	c, reads = newChecker(t, deny)
	if _, err := c.check(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := reads.err(); err != nil {
		t.Errorf("objects that do not exist are readable: %v", err)
	}
}

func TestHintsFitTheInstallation(t *testing.T) {
	helm := map[string]string{"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "batch-sidecars"}
	const upgrade = "helm upgrade batch-sidecars CHART -n operators --reset-then-reuse-values"
	for name, tc := range map[string]struct {
		labels  map[string]string
		program string
		want    []string
	}{
		"checkout": {nil, settings.Name, []string{
			"kubectl apply --server-side -k config/admission", "set --crr=Enabled", "set --stabilization-window=0s"}},
		"kubectl plugin": {nil, settings.PluginName, []string{
			"kubectl apply --server-side -k 'https://github.com/sidecar-termination/operator//config/admission?ref=" + settings.Release + "'",
			"set --crr=Enabled", "set --stabilization-window=0s"}},
		"Helm": {helm, settings.PluginName, []string{
			upgrade + " --set admissionPolicies.enabled=true", upgrade + " --set modes.crr=Enabled", upgrade + " --set flags.stabilization-window=0s"}},
		"Helm without a release": {map[string]string{"app.kubernetes.io/managed-by": "Helm"}, settings.Name, []string{
			"helm upgrade RELEASE CHART -n operators --reset-then-reuse-values --set admissionPolicies.enabled=true",
			"helm upgrade RELEASE CHART -n operators --reset-then-reuse-values --set modes.crr=Enabled",
			"helm upgrade RELEASE CHART -n operators --reset-then-reuse-values --set flags.stabilization-window=0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			i := installerOf(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Labels: tc.labels}}, tc.program)
			got := []string{i.apply("admission", "admissionPolicies.enabled=true"), i.set("--crr=Enabled", "modes.crr=Enabled"), i.set("--stabilization-window=0s")}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("hints (-want +got):\n%s", diff)
			}
		})
	}
}
