// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"
	"testing"
)

func TestParseWorkloads(t *testing.T) {
	for line, want := range map[string][]workload{
		"job/a":            {{kindJob, "a"}},
		"po/a cj/b":        {{kindPod, "a"}, {kindCronJob, "b"}},
		"Pods a b":         {{kindPod, "a"}, {kindPod, "b"}},
		"stp":              {{kindPolicy, ""}},
		"cronjobs.batch a": {{kindCronJob, "a"}},
		"sidecarterminationpolicies.sidecartermination.dev/a": {{kindPolicy, "a"}},
		"clusterpolicy/a": {{kindClusterPolicy, "a"}},
		"":                nil, "deployment/a": nil, "job/": nil, "job a pod/b": nil, "job/a b": nil,
	} {
		got, err := parseWorkloads(strings.Fields(line))
		if !slices.Equal(got, want) || (err != nil) != (want == nil) {
			t.Errorf("%q: got %v, %v, want %v", line, got, err, want)
		}
	}
}
