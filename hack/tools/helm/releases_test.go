// SPDX-License-Identifier: Apache-2.0

package helm_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNames(t *testing.T) {
	for name, tc := range map[string]struct {
		release string
		values  values
		want    string
	}{
		"documented":           {chartName, nil, "sidecar-termination"},
		"short":                {"sidecar-termination", nil, "sidecar-termination"},
		"prefix":               {"prod-sidecar-termination", nil, "prod-sidecar-termination"},
		"another":              {"batch", nil, "batch-sidecar-termination"},
		"operator":             {"batch-operator", nil, "batch-operator-sidecar-termination"},
		"long":                 {strings.Repeat("a", 53), nil, strings.Repeat("a", 36)},
		"nameOverride":         {"batch", values{"nameOverride": "sidecars"}, "batch-sidecars"},
		"release has the name": {"sidecars", values{"nameOverride": "sidecars"}, "sidecars"},
		"fullnameOverride":     {"batch", values{"nameOverride": "sidecars", "fullnameOverride": "jobs"}, "jobs"},
	} {
		t.Run(name, func(t *testing.T) {
			installed := render(t, tc.values, as(tc.release, namespace))
			if installed["Deployment "+tc.want+"-controller-manager"] == nil {
				t.Errorf("no Deployment %s-controller-manager among %v", tc.want, slices.Sorted(maps.Keys(installed)))
			}
		})
	}
}

// Two releases have only the definitions in common: Helm lets one of them own each.
func TestReleasesDoNotCollide(t *testing.T) {
	given := copied(everything)
	for _, name := range []string{"serviceMonitor", "prometheusRule", "dashboard"} {
		given[name] = values{"enabled": true, "namespace": "monitoring"}
	}
	first := render(t, given, as("team-a", "a"))
	second := render(t, given, as("team-b", "b"))
	var common []string
	for key, object := range first {
		if other := second[key]; other != nil && other.GetNamespace() == object.GetNamespace() {
			common = append(common, key)
		}
	}
	slices.Sort(common)
	if difference := cmp.Diff(definitions, common); difference != "" {
		t.Errorf("objects of both releases (-want +got):\n%s", difference)
	}
}

// References to objects follow their names, in expressions and messages as well.
func TestReferencesFollowNames(t *testing.T) {
	original := render(t, everything)
	installed := render(t, values{
		"fullnameOverride": "jobs",
		"serviceMonitor":   values{"enabled": true},
		"prometheusRule":   values{"enabled": true},
		"networkPolicy":    values{"enabled": true},
	}, as("team-a", namespace))
	for key := range original {
		_, name, _ := strings.Cut(key, " ")
		// The operator has the name of its lease built in. The name of the PrometheusRule is also the name of the program.
		if slices.Contains(definitions, key) || key == lease || name == chartName {
			continue
		}
		reference := regexp.MustCompile(`(^|[^-a-z])` + regexp.QuoteMeta(name) + `($|[^-a-z])`)
		for user, object := range installed {
			if found := reference.FindString(text(t, object)); found != "" {
				t.Errorf("%s refers to %s", user, found)
			}
		}
	}
	const want = `[^:]*jobs-controller-manager[^:]*$`
	if limits := text(t, installed["ValidatingAdmissionPolicy jobs-operator-limits"]); !strings.Contains(limits, want) {
		t.Errorf("the limits do not apply to the operator: %s", limits)
	}
}
