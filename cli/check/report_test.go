// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/cli/output"
)

func TestCheckReport(t *testing.T) {
	r := newResult([]checkResult{
		{"Operator", "Deployment", outcomeOK, "Deployment a/b is ready", ""},
		{"Operator", "Flags", outcomeWarning, "mode CRR is disabled", "set --crr=Enabled"},
		{"OpenKruise", "OpenKruise", outcomeFailure, "CRD c is missing", "install it"},
	})
	const asJSON = `{
  "apiVersion": "cli.sidecartermination.dev/v1alpha1",
  "kind": "CheckReport",
  "summary": {
    "ok": 1,
    "warnings": 1,
    "failures": 1
  },
  "checks": [
    {
      "section": "Operator",
      "name": "Deployment",
      "outcome": "OK",
      "message": "Deployment a/b is ready"
    },
    {
      "section": "Operator",
      "name": "Flags",
      "outcome": "Warning",
      "message": "mode CRR is disabled",
      "hint": "set --crr=Enabled"
    },
    {
      "section": "OpenKruise",
      "name": "OpenKruise",
      "outcome": "Failure",
      "message": "CRD c is missing",
      "hint": "install it"
    }
  ]
}
`
	const asText = `Operator
  ok       Deployment a/b is ready
  warning  mode CRR is disabled
           -> set --crr=Enabled

OpenKruise
  failure  CRD c is missing
           -> install it

failures: 1, warnings: 1, ok: 1
`
	for format, want := range map[output.Format]string{output.FormatJSON: asJSON, output.FormatTable: asText} {
		var out strings.Builder
		if err := format.Write(&out, r, r.text); err != nil {
			t.Fatal(err)
		}
		if difference := cmp.Diff(want, out.String()); difference != "" {
			t.Errorf("%s (-want +got):\n%s", format, difference)
		}
	}
}
