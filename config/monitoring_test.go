// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	// Registers the operator's metrics.
	_ "github.com/sidecar-termination/operator/controllers"

	"github.com/sidecar-termination/operator/internal/settings"
)

// withComponents renders the operator with components.
func withComponents(t *testing.T, names ...string) resources {
	t.Helper()
	return renderOverlay(t, "resources: [CONFIG/default]\ncomponents: [CONFIG/components/"+strings.Join(names, ", CONFIG/components/")+"]\n")
}

// read decodes the object of a kind without a Go type.
func read(t *testing.T, rendered resources, kind string, into any) {
	t.Helper()
	for _, object := range rendered {
		if object.GetKind() == kind {
			content, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(content, into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no %s", kind)
}

func TestServiceMonitorSelectsService(t *testing.T) {
	rendered := withComponents(t, "service-monitor")
	var monitor struct {
		Metadata struct{ Namespace string }
		Spec     struct {
			Selector  struct{ MatchLabels map[string]string }
			Endpoints []struct{ Port string }
		}
	}
	read(t, rendered, "ServiceMonitor", &monitor)
	service := only[corev1.Service](t, rendered, "Service")
	if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) {
		t.Errorf("the ServiceMonitor selects %v, and the Service has %v", monitor.Spec.Selector.MatchLabels, service.Labels)
	}
	if monitor.Metadata.Namespace != service.Namespace || monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name {
		t.Errorf("the ServiceMonitor does not reach port %s of the Service", service.Spec.Ports[0].Name)
	}
	template := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(template.Labels)) {
		t.Errorf("the Service selects %v, and the pods have %v", service.Spec.Selector, template.Labels)
	}
	if port := service.Spec.Ports[0].TargetPort.StrVal; !slices.ContainsFunc(template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port }) {
		t.Errorf("the pods have no port %s", port)
	}
}

func TestNetworkPolicyMatchesOperator(t *testing.T) {
	rendered := withComponents(t, "network-policy")
	spec := only[networkingv1.NetworkPolicy](t, rendered, "NetworkPolicy").Spec
	template := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template
	if !labels.SelectorFromSet(spec.PodSelector.MatchLabels).Matches(labels.Set(template.Labels)) {
		t.Errorf("it selects %v, and the pods have %v", spec.PodSelector.MatchLabels, template.Labels)
	}
	if want := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}; !slices.Equal(spec.PolicyTypes, want) {
		t.Errorf("it is of types %v, want %v", spec.PolicyTypes, want)
	}
	reached := map[string]int{}
	for _, rule := range spec.Ingress {
		for _, port := range rule.Ports {
			name := port.Port.StrVal
			reached[name]++
			if !slices.ContainsFunc(template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == name }) {
				t.Errorf("ingress allows port %s, which the pods do not have", name)
			}
			if name == "metrics" && !slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
				return peer.NamespaceSelector != nil && len(peer.NamespaceSelector.MatchLabels) > 0
			}) {
				t.Error("ingress allows every namespace to reach the metrics")
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"metrics": 1, "health": 1}, reached); diff != "" {
		t.Errorf("ingress rules by port (-want +got):\n%s", diff)
	}
	var egress []int32
	for _, rule := range spec.Egress {
		for _, port := range rule.Ports {
			egress = append(egress, port.Port.IntVal)
		}
	}
	if want := []int32{443, 6443}; !slices.Equal(egress, want) {
		t.Errorf("egress allows ports %v, want %v", egress, want)
	}
}

// rule is an alert of the Prometheus operator's kind PrometheusRule.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var rules struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	read(t, withComponents(t, "service-monitor", "alerts"), "PrometheusRule", &rules)
	return rules.Spec.Groups[0].Rules
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

func TestAlertAnnotations(t *testing.T) {
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
	}
}

// A runbook is a section with the alert's name.
func TestAlertsHaveRunbooks(t *testing.T) {
	const document = "docs/operations.md"
	content, err := os.ReadFile("../" + document)
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alerts(t) {
		want := "https://github.com/sidecar-termination/operator/blob/main/" + document + "#" + strings.ToLower(alert.Alert)
		if got := alert.Annotations["runbook_url"]; got != want {
			t.Errorf("%s: the runbook is at %s, want %s", alert.Alert, got, want)
		}
		if !strings.Contains(string(content), "\n### "+alert.Alert+"\n") {
			t.Errorf("%s has no section %s", document, alert.Alert)
		}
	}
}

// dashboard contains the tested fields of a Grafana dashboard.
type dashboard struct {
	UID    string
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ Expr string }
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
	var result dashboard
	if err := json.Unmarshal([]byte(board.Data["sidecar-termination-operator.json"]), &result); err != nil {
		t.Fatal(err)
	}
	return result
}

func TestDashboardLayout(t *testing.T) {
	board := readDashboard(t)
	// URLs contain the uid.
	if board.UID != settings.Name {
		t.Errorf("the uid is %q", board.UID)
	}
	var variables []string
	for _, variable := range board.Templating.List {
		variables = append(variables, variable.Name)
	}
	if diff := cmp.Diff([]string{"datasource", "namespace", "job"}, variables); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, panel := range board.Panels {
		if ids[panel.ID] {
			t.Errorf("the id %d is used twice", panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && (panel.Description == "" || len(panel.Targets) == 0) {
			t.Errorf("%s has no description or no targets", panel.Title)
		}
		at := panel.GridPos
		if at.X+at.W > 24 {
			t.Errorf("%s is wider than the grid", panel.Title)
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s overlaps %s", panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
	}
}
