// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
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
		want := "https://github.com/sidecar-termination/operator/blob/main/" + document + "#" + strings.ToLower(alert.Alert)
		if got := alert.Annotations["runbook_url"]; got != want || !strings.Contains(content, "\n### "+alert.Alert+"\n") {
			t.Errorf("%s: the runbook is at %s, want %s and a section there", alert.Alert, got, want)
		}
	}
}
