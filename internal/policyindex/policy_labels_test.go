// SPDX-License-Identifier: Apache-2.0

package policyindex

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func TestIndexKeys(t *testing.T) {
	in := func(name string, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: name, Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	exists := metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpExists}
	for _, test := range []struct {
		name     string
		selector metav1.LabelSelector
		want     []string
		required string
	}{
		{"no label", metav1.LabelSelector{}, []string{"batch"}, ""},
		{"any value", metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{exists}}, []string{"batch"}, ""},
		{"one value", metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl"}}, []string{"batch\x00team\x00etl"}, "team"},
		{
			"the longest of many values",
			metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl", "app": "import", "enabled": "true"}},
			[]string{"batch\x00app\x00import"}, "app",
		},
		{
			"the first name of equally long values",
			metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl", "app": "csv"}},
			[]string{"batch\x00app\x00csv"}, "app",
		},
		{
			"an In expression",
			metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{exists, in("app", "import", "export")}},
			[]string{"batch\x00app\x00import", "batch\x00app\x00export"}, "app",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			labels := newRequiredLabels()
			keys, err := labels.index(indexedPolicy("batch", "mesh", test.selector))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, keys); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
			for _, name := range []string{"team", "app", "enabled"} {
				// Names may share a slot.
				if want := name == test.required; labels.mayRequire(name) != want && (want || labels.slot(name) != labels.slot(test.required)) {
					t.Errorf("label %s may be required: %t, want %t", name, !want, want)
				}
			}
		})
	}
	if _, err := newRequiredLabels().index(&v1alpha1.PolicySpec{}); err == nil {
		t.Error("an object of another kind was indexed")
	}
}

func TestUnrequiredLabelsAreSkipped(t *testing.T) {
	labels := newRequiredLabels()
	if _, err := labels.index(indexedPolicy("batch", "mesh", metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl"}})); err != nil {
		t.Fatal(err)
	}
	lookups := 0
	for i := range 1000 {
		if labels.mayRequire(fmt.Sprintf("label-%d", i)) {
			lookups++
		}
	}
	// One in 4,096 shares the slot.
	if lookups > 10 {
		t.Errorf("%d of 1000 labels that no policy requires cost a lookup", lookups)
	}
}
