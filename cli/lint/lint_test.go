// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/lint"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
)

// report is the part of the JSON output that the tests read.
type report struct {
	Summary struct {
		CheckedWorkloads, CheckedPolicies, UncheckedObjects int
	}
	Policies, Workloads, Objects []object
	Findings                     []explain.Finding
}

type object struct {
	Kind, Name, Path string
	Findings         []explain.Finding
}

// run lints the text with further arguments, and returns the standard output.
func run(t *testing.T, text string, arguments ...string) (output string, err error) {
	t.Helper()
	command := lint.New(func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) })
	var out bytes.Buffer
	command.SetArgs(append([]string{"-f", "-"}, arguments...))
	command.SetIn(strings.NewReader(text))
	command.SetOut(&out)
	command.SetErr(io.Discard)
	command.SilenceErrors, command.SilenceUsage = true, true
	err = command.ExecuteContext(t.Context())
	return out.String(), err
}

// lines returns each finding as SEVERITY REASON OBJECT, with the place and the container. The messages of mistakes and of what was
// not checked are the result, so they follow.
func (r report) lines() []string {
	var all []string
	add := func(object string, findings []explain.Finding) {
		for _, f := range findings {
			line := strings.Join([]string{string(f.Severity), string(f.Reason), object, f.Container}, " ")
			if f.Reason == v1alpha1.ReasonInvalidManifest || f.Reason == v1alpha1.ReasonNotChecked {
				line = strings.TrimSpace(line) + ": " + f.Message
			}
			all = append(all, strings.TrimSpace(line))
		}
	}
	for _, found := range slices.Concat(r.Policies, r.Workloads, r.Objects) {
		add(strings.TrimSpace(found.Kind+"/"+found.Name+" "+found.Path), found.Findings)
	}
	add("manifests", r.Findings)
	return all
}

// lintJSON lints the text with further arguments, and returns what the JSON output says.
func lintJSON(t *testing.T, text string, arguments ...string) (report, error) {
	t.Helper()
	out, failure := run(t, text, append([]string{"-o", "json"}, arguments...)...)
	var got report
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return got, failure
}

// checkPolicies checks that the policies that lint prints for the manifest declare what it has found there, and returns them.
func checkPolicies(t *testing.T, text string) string {
	t.Helper()
	policies, err := run(t, text, "-o", "policy")
	if err != nil {
		t.Errorf("a pipe into kubectl apply fails: %v", err)
	}
	got, _ := lintJSON(t, text+"\n---\n"+policies)
	for _, line := range got.lines() {
		if strings.Contains(line, string(v1alpha1.ReasonMayHang)) && !strings.HasPrefix(line, string(explain.SeverityWarning)) ||
			strings.Contains(line, string(v1alpha1.ReasonNoMainContainer)) {
			t.Errorf("with the policies: %s\n%s", line, policies)
		}
	}
	if again, _ := run(t, text+"\n---\n"+policies, "-o", "policy"); again != "" {
		t.Errorf("proposed once more:\n%s", again)
	}
	return policies
}

// Each manifest has the shape that the documentation of a tool describes, which its first line names. The findings follow.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	proposed := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(text), "# Source: ") {
				t.Error("the first line names no source")
			}
			var want []string
			for line := range strings.Lines(string(text)) {
				if _, comment, found := strings.Cut(line, "# Finding: "); found {
					want = append(want, strings.TrimSpace(comment))
				}
			}
			got, err := lintJSON(t, string(text), "--fail-on=warning")
			if diff := cmp.Diff(want, got.lines()); diff != "" {
				t.Errorf("findings differ (-want +got):\n%s", diff)
			}
			if checked := fmt.Sprintf("\n# Checked workloads: %d\n", got.Summary.CheckedWorkloads); !strings.Contains(string(text), checked) {
				t.Errorf("the manifest does not say %q", checked)
			}
			failed := slices.ContainsFunc(want, func(finding string) bool { return !strings.HasPrefix(finding, string(explain.SeverityNote)) })
			if errors.Is(err, output.ErrProblem) != failed {
				t.Errorf("error %v, want a failure: %v", err, failed)
			}
			if strings.Contains(checkPolicies(t, string(text)), "kind: ") {
				proposed++
			}
		})
	}
	if proposed < 10 {
		t.Errorf("only %d manifests have a proposal", proposed)
	}
}
