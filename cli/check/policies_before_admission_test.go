// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func TestUncheckedPolicies(t *testing.T) {
	installed := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	written := func(after time.Duration, subresource, fields string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(installed.Add(after))
		return metav1.ManagedFieldsEntry{Time: &at, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const spec, status, labels = `{"f:spec":{"f:mode":{}}}`, `{"f:status":{}}`, `{"f:metadata":{"f:labels":{"f:spec":{}}}}`
	both := map[string]time.Time{modePolicyPrefix + "crr": installed, modePolicyPrefix + "pre-pull": installed.Add(time.Hour)}
	for name, tc := range map[string]struct {
		created time.Duration
		fields  []metav1.ManagedFieldsEntry
		prePull bool
		want    bool
	}{
		"created before":                      {created: -time.Minute, want: true},
		"created in the same second":          {created: 0, want: true},
		"created before they were enforced":   {created: 4 * time.Second, want: true},
		"created after":                       {created: time.Minute, want: false},
		"spec changed after":                  {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "", spec)}, want: false},
		"spec last changed after":             {created: -time.Hour, fields: []metav1.ManagedFieldsEntry{written(-time.Minute, "", spec), written(time.Minute, "", spec)}, want: false},
		"only status changed after":           {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "status", status)}, want: true},
		"only labels changed after":           {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "", labels)}, want: true},
		"invalid managed fields":              {created: -time.Minute, fields: []metav1.ManagedFieldsEntry{written(time.Minute, "", "{")}, want: true},
		"prePull before its admission policy": {created: time.Minute, prePull: true, want: true},
		"prePull after its admission policy":  {created: 2 * time.Hour, prePull: true, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(installed.Add(tc.created)), ManagedFields: tc.fields,
			}}
			if got := (writtenPolicy{object: policy, prePull: tc.prePull}).isUnchecked(both); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
