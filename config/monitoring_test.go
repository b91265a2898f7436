// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	// Registers the operator's metrics.
	_ "github.com/sidecar-termination/operator/controllers"
)

// rule is an alert of the Prometheus operator's kind PrometheusRule.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []rule {
	t.Helper()
	for _, object := range withComponents(t, "service-monitor", "alerts") {
		if object.GetKind() == "PrometheusRule" {
			content, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			return decode[struct {
				Spec struct{ Groups []struct{ Rules []rule } }
			}](t, content).Spec.Groups[0].Rules
		}
	}
	t.Fatal("no PrometheusRule")
	return nil
}

// expressions returns the expressions of alerts and of the dashboard, by name.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, alert := range alerts(t) {
		found[alert.Alert] = alert.Expr
	}
	for _, panel := range readDashboard(t).Panels {
		for index, target := range panel.Targets {
			found[fmt.Sprintf("panel %d, %s, query %d", panel.ID, panel.Title, index)] = target.Expr
		}
	}
	for _, variable := range readDashboard(t).Templating.List {
		if variable.Type == "query" {
			found["variable "+variable.Name] = variable.Definition
		}
	}
	return found
}

// scraped are the labels that Prometheus adds, and the label le of histograms.
var scraped = []string{"job", "namespace", "instance", "le"}

func TestAlertsAndDashboardUseKnownMetrics(t *testing.T) {
	known := registeredMetrics(t)
	names := regexp.MustCompile(`\b(?:sidecar_termination|controller_runtime|leader_election|workqueue|rest_client|process|go)_[a-z_]+`)
	grouping := regexp.MustCompile(`\bby \(([^)]*)\)`)
	for user, expression := range expressions(t) {
		used := names.FindAllString(expression, -1)
		if len(used) == 0 {
			t.Errorf("%s uses no metric: %s", user, expression)
		}
		usable := slices.Clone(scraped)
		for _, name := range used {
			labels, ok := known[strings.TrimSuffix(name, "_bucket")]
			if !ok {
				t.Errorf("%s uses unknown metric %s", user, name)
			}
			for _, label := range labelsOf(expression, name) {
				if !slices.Contains(labels, label) && !slices.Contains(scraped, label) {
					t.Errorf("%s uses label %s of %s, which has %v", user, label, name, labels)
				}
			}
			usable = append(usable, labels...)
		}
		for _, group := range grouping.FindAllStringSubmatch(expression, -1) {
			for label := range strings.SplitSeq(group[1], ", ") {
				if !slices.Contains(usable, label) {
					t.Errorf("%s groups by %s, which is not among %v", user, label, usable)
				}
			}
		}
	}
}

// labelsOf returns the labels in an expression's selectors of a metric.
func labelsOf(expression, metric string) []string {
	var names []string
	for _, selector := range regexp.MustCompile(regexp.QuoteMeta(metric)+`\{([^}]*)\}`).FindAllStringSubmatch(expression, -1) {
		for _, matcher := range regexp.MustCompile(`([a-z_]+)\s*[=!]`).FindAllStringSubmatch(selector[1], -1) {
			names = append(names, matcher[1])
		}
	}
	return names
}

// registeredMetrics returns the labels of every metric that the operator registers, by name.
func registeredMetrics(t *testing.T) map[string][]string {
	t.Helper()
	collector, ok := metrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatal("the registry does not describe its metrics")
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		collector.Describe(descriptions)
		close(descriptions)
	}()
	pattern := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	known := map[string][]string{}
	for description := range descriptions {
		match := pattern.FindStringSubmatch(description.String())
		if match == nil {
			t.Fatalf("unexpected description: %s", description)
		}
		known[match[1]] = strings.Split(match[2], ",")
	}
	return known
}

// dashboard contains the tested fields of a Grafana dashboard.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	board := only[corev1.ConfigMap](t, withComponents(t, "dashboard"), "ConfigMap")
	if board.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the ConfigMap has labels %v, want grafana_dashboard", board.Labels)
	}
	return decode[dashboard](t, []byte(board.Data["sidecar-termination-operator.json"]))
}

// A runbook is a section with the alert's name.
func TestAlertAnnotations(t *testing.T) {
	const document = "docs/operations.md"
	content := string(readConfig(t, "../"+document))
	for _, alert := range alerts(t) {
		if alert.Annotations["summary"] == "" || len(alert.Annotations["description"]) < 80 {
			t.Errorf("%s has no summary or a short description", alert.Alert)
		}
		if !slices.Contains([]string{"info", "warning", "critical"}, alert.Labels["severity"]) || alert.For == "" {
			t.Errorf("%s: severity %q, for %q", alert.Alert, alert.Labels["severity"], alert.For)
		}
		// namePrefix changes the name of the Service, which is the name of the job.
		if regexp.MustCompile(`\b(job|namespace|service)\s*[=!]`).MatchString(alert.Expr) {
			t.Errorf("%s depends on names of the installation: %s", alert.Alert, alert.Expr)
		}
		for _, name := range regexp.MustCompile(`deploy/(\S+?)`+"`").FindAllStringSubmatch(alert.Annotations["description"], -1) {
			if name[1] != deployment {
				t.Errorf("%s names the Deployment %s", alert.Alert, name[1])
			}
		}
		want := "https://github.com/sidecar-termination/operator/blob/main/" + document + "#" + strings.ToLower(alert.Alert)
		if got := alert.Annotations["runbook_url"]; got != want || !strings.Contains(content, "\n### "+alert.Alert+"\n") {
			t.Errorf("%s: the runbook is at %s, want %s and a section there", alert.Alert, got, want)
		}
	}
}
