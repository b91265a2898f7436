// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func TestVersionOfOperator(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	const same, other = "OK the operator and this program have version ", "Warning the operator has version "
	for name, tc := range map[string]struct{ image, own, want string }{
		"same version":              {"registry.example/operator:v0.1.0", "v0.1.0", same + "v0.1.0"},
		"without v":                 {"registry.example:5000/operator:0.1.0", "v0.1.0", same + "0.1.0"},
		"with a digest":             {"registry.example/operator:v0.1.0" + digest, "v0.1.0", same + "v0.1.0"},
		"other version":             {"registry.example/operator:v0.2.0-rc1", "v0.1.0", other + "v0.2.0-rc1, but this program has version v0.1.0"},
		"only a digest":             {"registry.example/operator" + digest, "v0.1.0", ""},
		"no tag":                    {"registry.example:5000/operator", "v0.1.0", ""},
		"tag without a version":     {"localhost/operator:dev", "v0.1.0", ""},
		"not an image":              {"not an image", "v0.1.0", ""},
		"program without a version": {"registry.example/operator:v0.2.0", "", ""},
	} {
		c := &checker{programVersion: tc.own, deployment: &appsv1.Deployment{}}
		c.deployment.Spec.Template.Spec.Containers = []corev1.Container{{Image: tc.image}}
		var want []string
		if tc.want != "" {
			want = []string{tc.want}
		}
		requireResults(t, name, c, (*checker).checkVersion, want...)
	}
}

func TestLeaseIsHeld(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	lease := func(holder string, age time.Duration, seconds *int32) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-age))), LeaseDurationSeconds: seconds,
		}}
	}
	lasts, year := ptr.To[int32](15), 365*24*time.Hour
	never := lease("pod-1_a1b2c3d4", 0, lasts)
	never.Spec.RenewTime = nil
	for name, tc := range map[string]struct {
		before, lease *coordinationv1.Lease
		want          bool
	}{
		"renewed one duration ago":   {nil, lease("pod-1_a1b2c3d4", 15*time.Second, lasts), true},
		"renewed by a fast clock":    {nil, lease("pod-1_a1b2c3d4", -time.Hour, lasts), true},
		"never renewed":              {nil, never, false},
		"without a duration":         {nil, lease("by-hand", time.Second, nil), false},
		"released":                   {nil, lease("", 0, lasts), false},
		"renewed for the first time": {&coordinationv1.Lease{}, lease("pod-1_a1b2c3d4", year, lasts), true},
	} {
		if got := isHeld(tc.before, tc.lease, now); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestWatchedNamespaces(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}
	cluster := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mesh"}}
	const only = "OK the operator watches only batch; it uses neither cluster policies nor OpenKruise"
	const kind = "Warning the operator may not read nodes and does not know their kind, so it uses only mode Image"
	for name, tc := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"a namespace":       {[]client.Object{namespace}, []string{only, kind}},
		"no such namespace": {nil, []string{"Warning the operator watches namespaces that do not exist: batch", only, kind}},
		"cluster policies": {[]client.Object{namespace, cluster}, []string{
			only, kind, "Warning the operator does not read cluster policies, because it runs with --watch-namespaces: mesh",
		}},
	} {
		c := newChecker(t, []string{"--watch-namespaces=batch", "--metrics-authentication=Disabled"}, tc.objects...)
		requireResults(t, name, c, (*checker).checkNamespaces, tc.want...)
	}
}

func TestPoliciesOfOtherNamespacesAreNotChecked(t *testing.T) {
	policy := func(namespace string) client.Object {
		return &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mesh"}}
	}
	cluster := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mesh"}}
	c := newChecker(t, []string{"--watch-namespaces=batch,etl", "--metrics-authentication=Disabled"}, policy("batch"), policy("etl"), policy("web"), cluster)
	policies, err := c.listPolicies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, policy := range policies {
		got = append(got, policy.Ref.Namespace+"/"+policy.Ref.Name)
	}
	if diff := cmp.Diff([]string{"batch/mesh", "etl/mesh"}, got); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

func TestNetworkMattersForPhasesOnly(t *testing.T) {
	for use, want := range map[string]bool{"Enabled": true, "LastResort": false, "Disabled": false} {
		if got := newChecker(t, []string{"--pod-phase=" + use}).endsByPhase(); got != want {
			t.Errorf("--pod-phase=%s: got %t", use, got)
		}
	}
}
