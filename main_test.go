// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-termination/operator/internal/settings"
)

func TestSettingsReachTheOperator(t *testing.T) {
	var got settings.Operator
	err := execute(t.Context(), []string{"--default-exit-code-policy=Respect", "--pod-phase-max-grace-period=7s"}, nil, func(_ context.Context, operator settings.Operator) error {
		got = operator
		return nil
	})
	if limit := got.Capabilities.MaxGracePeriod; err != nil || limit != 7*time.Second || got.Resolve.ExitCodePolicy != "Respect" {
		t.Errorf("got grace period %s, exit codes %s, error %v", limit, got.Resolve.ExitCodePolicy, err)
	}
}

// The operator must not look for a cluster in any of these cases.
func TestArgumentsThatDoNotStartTheOperator(t *testing.T) {
	for name, tc := range map[string]struct {
		argument, output, err string
	}{
		"version":         {"--version", "sidecar-termination-operator version " + settings.Version() + "\n", ""},
		"help":            {"--help", "--quick-exit-image string", ""},
		"invalid value":   {"--pod-phase=no", "", `--pod-phase is "no"; it must be Enabled, LastResort or Disabled`},
		"unknown flag":    {"--status", "", "unknown flag: --status\nSee \"sidecar-termination-operator --help\""},
		"unknown command": {"explain", "", "unexpected argument \"explain\"\nSee \"sidecar-termination-operator --help\""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := execute(t.Context(), []string{tc.argument}, &out, func(context.Context, settings.Operator) error {
				t.Error("the operator started")
				return nil
			})
			message := ""
			if err != nil {
				message = err.Error()
			}
			if !strings.Contains(out.String(), tc.output) || (out.Len() == 0) != (tc.output == "") || message != tc.err {
				t.Errorf("output %q, error %q", out.String(), message)
			}
		})
	}
}
