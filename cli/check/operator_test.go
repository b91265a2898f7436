// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
		c := newChecker(t)
		c.programVersion, c.deployment.Spec.Template.Spec.Containers = tc.own, []corev1.Container{{Image: tc.image}}
		if err := c.checkVersion(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, result := range c.results {
			got += string(result.Outcome) + " " + result.Message
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
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

func TestNetworkMattersForPhasesOnly(t *testing.T) {
	for use, want := range map[string]bool{"Enabled": true, "LastResort": false, "Disabled": false} {
		if got := newChecker(t, "--pod-phase="+use).endsByPhase(); got != want {
			t.Errorf("--pod-phase=%s: got %t", use, got)
		}
	}
}
