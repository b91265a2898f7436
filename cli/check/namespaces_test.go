// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/scheme"
	"github.com/sidecar-termination/operator/internal/settings"
)

// newNamespacedChecker returns a checker of an operator with the flags, in a cluster with the objects.
func newNamespacedChecker(t *testing.T, flag string, objects ...client.Object) *checker {
	t.Helper()
	types, err := scheme.New()
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{client: fake.NewClientBuilder().WithScheme(types).WithObjects(objects...).Build()}
	if c.settings, err = settings.Parse([]string{flag, "--metrics-authentication=Disabled"}); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWatchedNamespaces(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}
	cluster := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mesh"}}
	const only = "OK the operator watches only batch; it uses neither cluster policies nor OpenKruise"
	const kind = "Warning the operator may not read nodes and does not know their kind, so it uses only mode Image"
	for name, tc := range map[string]struct {
		flag    string
		objects []client.Object
		want    []string
	}{
		"the whole cluster": {"--crr=Enabled", []client.Object{cluster}, nil},
		"a namespace":       {"--watch-namespaces=batch", []client.Object{namespace}, []string{only, kind}},
		"no such namespace": {"--watch-namespaces=batch", nil, []string{
			"Warning the operator watches namespaces that do not exist: batch", only, kind,
		}},
		"cluster policies": {"--watch-namespaces=batch", []client.Object{namespace, cluster}, []string{
			only, kind, "Warning the operator does not read cluster policies, because it runs with --watch-namespaces: mesh",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newNamespacedChecker(t, tc.flag, tc.objects...)
			if err := c.namespaces(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, check := range c.checks {
				got = append(got, string(check.Outcome)+" "+check.Message)
			}
			if difference := cmp.Diff(tc.want, got); difference != "" {
				t.Errorf("checks (-want +got):\n%s", difference)
			}
		})
	}
}

func TestPoliciesOfOtherNamespacesAreNotChecked(t *testing.T) {
	policy := func(namespace string) client.Object {
		return &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mesh"}}
	}
	cluster := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mesh"}}
	c := newNamespacedChecker(t, "--watch-namespaces=batch,etl", policy("batch"), policy("etl"), policy("web"), cluster)
	namespaced, ofCluster, err := c.listPolicies(t.Context())
	if err != nil || len(ofCluster) > 0 {
		t.Errorf("cluster policies %v: %v", ofCluster, err)
	}
	var got []string
	for i := range namespaced {
		got = append(got, namespaced[i].Namespace)
	}
	if !slices.Equal(got, []string{"batch", "etl"}) {
		t.Errorf("policies of namespaces %v", got)
	}
}

func TestPermissionsByFlagsInNamespaces(t *testing.T) {
	c := newNamespacedChecker(t, "--watch-namespaces=batch,etl")
	c.settings.NodeKindRules.All, c.settings.Metrics.Authenticated = "", true
	var got []string
	for _, r := range c.permissions() {
		got = append(got, r.namespace+"/"+r.resource)
	}
	slices.Sort(got)
	want := []string{
		"/nodes", "/subjectaccessreviews", "/tokenreviews",
		"batch/events", "batch/pods", "batch/pods/status", "batch/sidecarterminationpolicies", "batch/sidecarterminationpolicies/status",
		"etl/events", "etl/pods", "etl/pods/status", "etl/sidecarterminationpolicies", "etl/sidecarterminationpolicies/status",
	}
	if difference := cmp.Diff(want, slices.Compact(got)); difference != "" {
		t.Errorf("permissions (-want +got):\n%s", difference)
	}
}
