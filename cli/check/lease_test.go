// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestLeaseExpires(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		renewed *time.Time
		lasts   *int32
		want    bool
	}{
		"just renewed":             {ptr.To(now), ptr.To[int32](15), false},
		"renewed one duration ago": {ptr.To(now.Add(-15 * time.Second)), ptr.To[int32](15), false},
		"renewed longer ago":       {ptr.To(now.Add(-16 * time.Second)), ptr.To[int32](15), true},
		"renewed by a fast clock":  {ptr.To(now.Add(time.Hour)), ptr.To[int32](15), false},
		"never renewed":            {nil, ptr.To[int32](15), true},
		"without a duration":       {ptr.To(now.Add(-time.Second)), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: tc.lasts}}
			if tc.renewed != nil {
				lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(*tc.renewed))
			}
			if got := isExpired(lease, now); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestLeaseIsRenewed(t *testing.T) {
	renewed := func(at time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(at))}}
	}
	// The clock of the cluster is a year behind.
	first := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		before, after *coordinationv1.Lease
		want          bool
	}{
		"read once":                  {nil, renewed(first), false},
		"not renewed between reads":  {renewed(first), renewed(first), false},
		"renewed between reads":      {renewed(first), renewed(first.Add(2 * time.Second)), true},
		"renewed for the first time": {&coordinationv1.Lease{}, renewed(first), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isRenewed(tc.before, tc.after); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestLeaderName(t *testing.T) {
	for identity, want := range map[*string]string{
		nil:                      "",
		ptr.To(""):               "",
		ptr.To("pod-1_a1b2c3d4"): "pod-1",
		ptr.To("by-hand"):        "by-hand",
	} {
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: identity}}
		if got := leaderOf(lease); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
