// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
)

func TestSimilar(t *testing.T) {
	long := strings.Repeat("a", maxNameLength)
	for name, tc := range map[string]struct {
		name       string
		candidates []string
		want       string
	}{
		"missing letter":             {"istio-prxy", []string{"main", "istio-proxy"}, "istio-proxy"},
		"additional letter":          {"istio-prooxy", []string{"istio-proxy"}, "istio-proxy"},
		"wrong letter":               {"istio-praxy", []string{"istio-proxy"}, "istio-proxy"},
		"swapped letters":            {"elt", []string{"etl"}, "etl"},
		"two edits in a long name":   {"flunetbit", []string{"fluent-bit"}, "fluent-bit"},
		"two edits in a short name":  {"prixi", []string{"proxy"}, ""},
		"one edit in a short name":   {"db", []string{"dv"}, ""},
		"three edits":                {"istio", []string{"istio-px"}, ""},
		"the closest of several":     {"istio-prxy", []string{"istio-prxyab", "istio-proxy", "istio-prxzz"}, "istio-proxy"},
		"the first of equally close": {"proxi", []string{"proxy", "proxo"}, "proxy"},
		"equal names":                {"proxy", []string{"proxy"}, ""},
		"other number":               {"worker-1", []string{"worker-2", "worker-12", "worker"}, "worker"},
		"other version":              {"v1beta1", []string{"v1beta2"}, ""},
		"no candidates":              {"proxy", nil, ""},
		"empty name":                 {"", []string{"a", ""}, ""},
		"longest names":              {long[1:] + "b", []string{long[1:] + "c"}, long[1:] + "c"},
		"longer names":               {long + "b", []string{long + "c"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Similar(tc.name, tc.candidates); got != tc.want {
				t.Errorf("Similar(%q, %q) is %q, want %q", tc.name, tc.candidates, got, tc.want)
			}
		})
	}
}

func TestSimilarBoundsCandidates(t *testing.T) {
	candidates := make([]string, maxCandidates, maxCandidates+1)
	if got := Similar("prxy", append(candidates, "proxy")); got != "" {
		t.Errorf("got candidate %d: %q", maxCandidates+1, got)
	}
	if got := Similar("prxy", append(candidates[1:], "proxy")); got != "proxy" {
		t.Errorf("got %q for the last candidate", got)
	}
}
