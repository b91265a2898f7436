// SPDX-License-Identifier: Apache-2.0

// Package monitoring_test checks the alerts and the dashboard with Prometheus's own code. It is a module of its own, because
// the operator needs none of that.
package monitoring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const (
	repository    = "../../.."
	alertsFile    = "config/components/alerts/prometheus_rule.yaml"
	dashboardFile = "config/components/dashboard/dashboard.json"
	testsFile     = "testdata/alerts.yaml"
)

// group is the group of the alerts.
type group struct {
	Name  string           `json:"name"`
	Rules []map[string]any `json:"rules"`
}

// alerts returns the group of the alerts, without the Prometheus operator's frame.
func alerts(t *testing.T) group {
	t.Helper()
	var object struct{ Spec struct{ Groups []group } }
	unmarshal(t, filepath.Join(repository, alertsFile), &object)
	if len(object.Spec.Groups) != 1 || len(object.Spec.Groups[0].Rules) == 0 {
		t.Fatal("the alerts are not one group of rules")
	}
	return object.Spec.Groups[0]
}

func unmarshal(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

// promtool runs a command of promtool after it wrote the group next to the tests.
func promtool(t *testing.T, alerts group, command, file string) {
	t.Helper()
	content, err := yaml.Marshal(map[string]any{"groups": []group{alerts}})
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(testsFile)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	for name, text := range map[string][]byte{"rules.yaml": content, "alerts.yaml": tests} {
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output, err := exec.CommandContext(t.Context(), "go", "tool", "promtool", command, "rules", filepath.Join(directory, file)).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// Prometheus refuses a whole file for one mistake in it. Each alert must be seen to fire and to keep quiet.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	group := alerts(t)
	promtool(t, group, "check", "rules.yaml")
	// Descriptions and runbooks are fixed texts, which the tests do not repeat. What has values in it stays.
	for _, rule := range group.Rules {
		annotations := rule["annotations"].(map[string]any)
		delete(annotations, "description")
		delete(annotations, "runbook_url")
	}
	promtool(t, group, "test", "alerts.yaml")
}

func TestEveryAlertIsTested(t *testing.T) {
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string `json:"alertname"`
				Want  []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	unmarshal(t, testsFile, &file)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, tc := range test.Cases {
			fires[tc.Alert] = fires[tc.Alert] || len(tc.Want) > 0
			quiet[tc.Alert] = quiet[tc.Alert] || len(tc.Want) == 0
		}
	}
	var names []string
	for _, rule := range alerts(t).Rules {
		name := rule["alert"].(string)
		names = append(names, name)
		if !fires[name] || !quiet[name] {
			t.Errorf("%s: a test sees it fire: %t, keep quiet: %t", name, fires[name], quiet[name])
		}
	}
	for name := range fires {
		if !slices.Contains(names, name) {
			t.Errorf("%s is tested, and there is no such alert", name)
		}
	}
}

func TestPrometheusUnderstandsTheDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	unmarshal(t, filepath.Join(repository, dashboardFile), &dashboard)
	if len(dashboard.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	variables := strings.NewReplacer("$__rate_interval", "2m", "$__range", "1h", "$namespace", "sidecar-termination-system", "$job", "metrics")
	parse := parser.NewParser(parser.Options{})
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expanded := variables.Replace(target.Expr)
			if strings.Contains(expanded, "$") {
				t.Errorf("%s: a variable is not known: %s", panel.Title, expanded)
			}
			expression, err := parse.ParseExpr(expanded)
			if err != nil {
				t.Errorf("%s: %v", panel.Title, err)
				continue
			}
			// The namespace and job are chosen at the top of the dashboard.
			for _, matchers := range parser.ExtractSelectors(expression) {
				for _, name := range []string{"namespace", "job"} {
					if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == name }) {
						t.Errorf("%s: a series %s is not selected by %s", panel.Title, matchers, name)
					}
				}
			}
		}
	}
}
