// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/hack/testenv"
)

func testMetrics(t *testing.T, program string) {
	t.Helper()
	rendered := apply(t, "default")
	address := testenv.FreeAddress(t)
	operator := start(t, program, append(arguments(t, rendered), "--metrics-bind-address="+address)...)
	defer operator.stop(t)
	if !operator.eventually(operator.isReady) {
		t.Fatal("the operator is not ready")
	}
	space := newNamespace(t)
	stranger, prometheus := newToken(t, space, "stranger"), newToken(t, space, "prometheus")
	elsewhere := newToken(t, space, "prometheus", "https://elsewhere.example")
	bindEverywhere(t, "sidecar-termination-metrics-reader", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: space, Name: "prometheus"})
	for _, tc := range []struct {
		name, token string
		want        int
	}{
		{"no token", "", http.StatusUnauthorized},
		{"no permission", stranger, http.StatusForbidden},
		{"role bound, other audience", elsewhere, http.StatusUnauthorized},
		{"role bound", prometheus, http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testenv.Eventually(t, "the permissions to be effective", func(ctx context.Context) error {
				status, body, err := scrape(ctx, "https://"+address+"/metrics", tc.token)
				switch {
				case err != nil:
					return err
				case status != tc.want:
					return errors.New(http.StatusText(status))
				case strings.Contains(body, "controller_runtime_") != (tc.want == http.StatusOK):
					return errors.New("unexpected body: " + body)
				}
				return nil
			})
		})
	}
	t.Run("other paths", func(t *testing.T) {
		for _, path := range []string{"/", "/debug/pprof/", "/metrics/other"} {
			status, _, err := scrape(t.Context(), "https://"+address+path, prometheus)
			if err != nil || status < http.StatusBadRequest {
				t.Errorf("%s: status %d, error %v; want an error status", path, status, err)
			}
		}
	})
	// The leader reads the admission policies a moment after it is ready.
	t.Run("queries", func(t *testing.T) {
		testenv.Eventually(t, "metrics for every query", func(ctx context.Context) error {
			exposed, err := exposedMetrics(ctx, "https://"+address+"/metrics", prometheus)
			return errors.Join(err, unknownInQueries(expressions(t), exposed))
		})
	})
	t.Run("document", func(t *testing.T) {
		exposed, err := exposedMetrics(t.Context(), "https://"+address+"/metrics", prometheus)
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(exposed, func(name string, _ []string) bool { return !strings.HasPrefix(name, "sidecar_termination_") })
		if diff := cmp.Diff(documentedMetrics(t), exposed, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("labels of metrics (-docs/operations.md +exposed):\n%s", diff)
		}
	})
}

// newToken returns a token of a ServiceAccount for the audiences, by default the API server.
func newToken(t *testing.T, space, name string, audiences ...string) string {
	t.Helper()
	c, _ := newClient(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}}
	if err := c.Create(t.Context(), account.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func scrape(ctx context.Context, url, token string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The operator's certificate is self-signed.
	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := trusting.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// exposedMetrics returns the labels of every metric that the operator exposes, by name, sorted.
func exposedMetrics(ctx context.Context, url, token string) (map[string][]string, error) {
	_, body, err := scrape(ctx, url, token)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	exposed := map[string][]string{}
	for name, family := range families {
		exposed[name] = []string{}
		for _, label := range family.GetMetric()[0].GetLabel() {
			exposed[name] = append(exposed[name], label.GetName())
		}
		slices.Sort(exposed[name])
	}
	return exposed, err
}

// documentedMetrics returns the labels of every metric in docs/operations.md, by name, sorted.
func documentedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `(sidecar_termination_[a-z_]+)` \\| [a-z]+ \\|([^|]*)\\|")
	documented := map[string][]string{}
	for _, match := range row.FindAllStringSubmatch(string(readConfig(t, "../docs/operations.md")), -1) {
		documented[match[1]] = slices.Sorted(strings.FieldsFuncSeq(match[2], func(r rune) bool { return strings.ContainsRune("`, ", r) }))
	}
	return documented
}

// expressions returns the expressions of alerts and of the dashboard, by name.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, alert := range alerts(t) {
		found[alert.Alert] = alert.Expr
	}
	board := only[corev1.ConfigMap](t, withComponents(t, "dashboard"), "ConfigMap")
	if board.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the ConfigMap has labels %v, want grafana_dashboard", board.Labels)
	}
	dashboard := decode[struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}](t, []byte(board.Data["sidecar-termination-operator.json"]))
	for _, panel := range dashboard.Panels {
		for index, target := range panel.Targets {
			found[fmt.Sprintf("panel %d, %s, query %d", panel.ID, panel.Title, index)] = target.Expr
		}
	}
	for _, variable := range dashboard.Templating.List {
		if variable.Type == "query" {
			found["variable "+variable.Name] = variable.Definition
		}
	}
	return found
}

// scraped are the labels that Prometheus adds, and the label le of histograms.
var scraped = []string{"job", "namespace", "instance", "le"}

var (
	metricName = regexp.MustCompile(`\b(?:sidecar_termination|controller_runtime|leader_election|workqueue|rest_client|process|go)_[a-z_]+(\{[^}]*\})?`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*[=!]`)
)

// unknownInQueries returns an error for each metric that a query names and that is not exposed with the labels that the query selects.
// A query can group by the labels of any of its metrics.
func unknownInQueries(queries map[string]string, exposed map[string][]string) error {
	var unknown []error
	for query, expression := range queries {
		groups := slices.Clone(scraped)
		selectors := metricName.FindAllString(expression, -1)
		if len(selectors) == 0 {
			unknown = append(unknown, fmt.Errorf("%s names no metric: %s", query, expression))
		}
		for _, selector := range selectors {
			name, matchers, _ := strings.Cut(selector, "{")
			labels, ok := exposed[strings.TrimSuffix(name, "_bucket")]
			if !ok {
				unknown = append(unknown, fmt.Errorf("%s names the unknown metric %s", query, name))
			}
			for _, label := range matcher.FindAllStringSubmatch(matchers, -1) {
				if !slices.Contains(labels, label[1]) && !slices.Contains(scraped, label[1]) {
					unknown = append(unknown, fmt.Errorf("%s selects by label %s of %s, which has %v", query, label[1], name, labels))
				}
			}
			groups = append(groups, labels...)
		}
		for _, group := range grouping.FindAllStringSubmatch(expression, -1) {
			for label := range strings.SplitSeq(group[1], ", ") {
				if !slices.Contains(groups, label) {
					unknown = append(unknown, fmt.Errorf("%s groups by %s, which is not among %v", query, label, groups))
				}
			}
		}
	}
	return errors.Join(unknown...)
}
