// SPDX-License-Identifier: Apache-2.0

// Package monitoring_test checks the alerts and the dashboard with Prometheus's own code. It is a module of its own, because
// the operator needs none of that.
package monitoring_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const (
	repository    = "../../.."
	alertsFile    = "config/components/alerts/prometheus_rule.yaml"
	dashboardFile = "config/components/dashboard/dashboard.json"
	testsFile     = "testdata/alerts.yaml"
)

// rules returns the groups of the alerts as Prometheus reads them, without the Prometheus operator's frame.
func rules(t *testing.T) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, alertsFile))
	if err != nil {
		t.Fatal(err)
	}
	var object struct{ Spec any }
	if err := yaml.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	groups, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

func parsed(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, problems := rulefmt.Parse(rules(t), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, problem := range problems {
		t.Error(problem)
	}
	if groups == nil || len(groups.Groups) != 1 || len(groups.Groups[0].Rules) == 0 {
		t.Fatal("the alerts are not one group of rules")
	}
	return groups.Groups[0].Rules
}

// Prometheus refuses a whole file for one mistake in it.
func TestPrometheusTakesTheAlerts(t *testing.T) {
	parsed(t)
}

// Each alert must be seen to fire and to keep quiet.
func TestAlertsFireWhenTheyShould(t *testing.T) {
	directory := t.TempDir()
	// Descriptions and runbooks are fixed texts, which the tests do not repeat. What has values in it stays.
	var file struct {
		Groups []struct {
			Name  string           `json:"name"`
			Rules []map[string]any `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(rules(t), &file); err != nil {
		t.Fatal(err)
	}
	for _, rule := range file.Groups[0].Rules {
		annotations := rule["annotations"].(map[string]any)
		delete(annotations, "description")
		delete(annotations, "runbook_url")
	}
	content, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(testsFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"rules.yaml": string(content), "alerts.yaml": string(tests)} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output, err := exec.CommandContext(t.Context(), "go", "tool", "promtool", "test", "rules", filepath.Join(directory, "alerts.yaml")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

func TestEveryAlertIsTested(t *testing.T) {
	content, err := os.ReadFile(testsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Cases []struct {
				Alert string `json:"alertname"`
				Want  []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, tc := range test.Cases {
			fires[tc.Alert] = fires[tc.Alert] || len(tc.Want) > 0
			quiet[tc.Alert] = quiet[tc.Alert] || len(tc.Want) == 0
		}
	}
	var names []string
	for _, rule := range parsed(t) {
		names = append(names, rule.Alert)
		if !fires[rule.Alert] || !quiet[rule.Alert] {
			t.Errorf("%s: a test sees it fire: %t, keep quiet: %t", rule.Alert, fires[rule.Alert], quiet[rule.Alert])
		}
	}
	for name := range fires {
		if !slices.Contains(names, name) {
			t.Errorf("%s is tested, and there is no such alert", name)
		}
	}
}

func TestPrometheusUnderstandsTheDashboard(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository, dashboardFile))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
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
			parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
				if selector, ok := node.(*parser.VectorSelector); ok {
					checkSelector(t, panel.Title, selector)
				}
				return nil
			})
		}
	}
}

// checkSelector fails for a series that ignores the namespace and job chosen at the top of the dashboard.
func checkSelector(t *testing.T, panel string, selector *parser.VectorSelector) {
	t.Helper()
	for _, name := range []string{"namespace", "job"} {
		if !slices.ContainsFunc(selector.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == name }) {
			t.Errorf("%s: %s is not selected by %s", panel, selector, name)
		}
	}
}
