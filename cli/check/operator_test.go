// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/internal/settings"
)

func TestVersionOfOperator(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	const same, other = "OK the operator and this program have version ", "Warning the operator has version "
	const unknown = "Warning cannot tell whether the operator and this program are the same build: the operator has image "
	const pseudo, dirty = "v0.1.1-0.20260301120000-589d0926f3a1", "v0.1.1-0.20260301120000-589d0926f3a1+dirty"
	for name, tc := range map[string]struct{ image, own, want string }{
		"same version":          {"registry.example/operator:v0.1.0", "v0.1.0", same + "v0.1.0"},
		"without v":             {"registry.example:5000/operator:0.1.0", "v0.1.0", same + "0.1.0"},
		"with a digest":         {"registry.example/operator:v0.1.0" + digest, "v0.1.0", same + "v0.1.0"},
		"other version":         {"registry.example/operator:v0.2.0-rc1", "v0.1.0", other + "v0.2.0-rc1, but this program has version v0.1.0"},
		"release and commit":    {"registry.example/operator:v0.1.0", pseudo, other + "v0.1.0, but this program has version " + pseudo},
		"same commit":           {"localhost/operator:sha-589d092", pseudo, "OK the operator and this program are built from commit 589d092"},
		"version of the commit": {"localhost/operator:v0.0.0-589d0926f3a1c0ffee", pseudo, "OK the operator and this program are built from commit 589d0926f3a1c0ffee"},
		"other commit": {"localhost/operator:0123abc", pseudo,
			"Warning the operator is built from commit 0123abc, but this program is built from commit 589d0926f3a1"},
		"changed sources":       {"localhost/operator:589d0926f3a1", dirty, unknown + "localhost/operator:589d0926f3a1, and this program has version " + dirty},
		"commit and release":    {"localhost/operator:589d0926f3a1", "v0.1.0", unknown + "localhost/operator:589d0926f3a1, and this program has version v0.1.0"},
		"only a digest":         {"registry.example/operator" + digest, "v0.1.0", unknown + "registry.example/operator" + digest + ", and this program has version v0.1.0"},
		"no tag":                {"registry.example:5000/operator", "v0.1.0", unknown + "registry.example:5000/operator, and this program has version v0.1.0"},
		"tag without a version": {"localhost/operator:dev", "v0.1.0", unknown + "localhost/operator:dev, and this program has version v0.1.0"},
	} {
		c := newChecker(t)
		c.programVersion, c.deployment.Spec.Template.Spec.Containers = tc.own, []corev1.Container{
			{Name: "proxy", Image: "registry.example/proxy:v9"}, {Name: settings.ContainerName, Image: tc.image},
		}
		if err := c.checkVersion(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := string(c.results[0].Outcome) + " " + c.results[0].Message; got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
		if hint := c.results[0].Hint; strings.HasPrefix(tc.want, unknown) != strings.Contains(hint, "-c manager -- /sidecar-termination-operator --version") {
			t.Errorf("%s: the hint is %q", name, hint)
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
