// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/shipped"
)

// The other admission policies do not depend on it.
func TestOutcomePolicyThatIsNotServed(t *testing.T) {
	c := newChecker(t)
	c.reportAdmission(shipped.AdmissionPolicy{Name: shipped.OutcomePolicy}, shipped.Status{State: shipped.NotServed})
	c.reportAdmission(shipped.AdmissionPolicy{Name: shipped.PhasePolicy}, shipped.Status{State: shipped.Missing})
	if len(c.results) != 2 || c.results[0].Outcome != outcomeOK || !strings.Contains(c.results[0].Message, "From 1.36 on, admission policy sidecar-termination-outcome does") ||
		!strings.Contains(c.results[1].Hint, "/config/admission/phase.yaml") {
		t.Errorf("got %+v", c.results)
	}
}

func TestUncheckedPolicies(t *testing.T) {
	installed := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	written := func(after time.Duration, subresource, fields string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(installed.Add(after))
		return metav1.ManagedFieldsEntry{Time: &at, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const spec, status, labels = `{"f:spec":{"f:mode":{}}}`, `{"f:status":{}}`, `{"f:metadata":{"f:labels":{"f:spec":{}}}}`
	since := map[string]time.Time{shipped.AuthorsPrefix + "crr": installed, shipped.AuthorsOfPrePull: installed.Add(time.Hour)}
	for name, tc := range map[string]struct {
		created time.Duration
		fields  []metav1.ManagedFieldsEntry
		prePull *v1alpha1.PrePull
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
		"prePull before its admission policy": {created: time.Minute, prePull: &v1alpha1.PrePull{}, want: true},
		"prePull after its admission policy":  {created: 2 * time.Hour, prePull: &v1alpha1.PrePull{}, want: false},
	} {
		object := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{
			CreationTimestamp: metav1.NewTime(installed.Add(tc.created)), ManagedFields: tc.fields,
		}}
		if got := isUnchecked(explain.Policy{Policy: resolve.Policy{Spec: &v1alpha1.PolicySpec{PrePull: tc.prePull}}, Object: object}, since); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
