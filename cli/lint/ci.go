// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/settings"
)

// The formats that CI systems read.
const (
	formatGitHub output.Format = "github"
	formatSARIF  output.Format = "sarif"
)

// objects returns every object with findings. The last one has the findings on the manifests as a whole.
func (r *result) objects() []workloadReport {
	whole := workloadReport{Kind: "manifests", Findings: r.Findings}
	return slices.Concat(r.Policies, r.Workloads, r.Objects, []workloadReport{whole})
}

// levels are the names of severities in GitHub and SARIF, which differ in that of a note.
var levels = map[explain.Severity]string{explain.SeverityProblem: "error", explain.SeverityWarning: "warning"}

// advice is the finding as one text, with its hint and commands.
func advice(finding explain.Finding) string {
	lines := append([]string{finding.Message, finding.Hint}, finding.Commands...)
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == "" }), "\n")
}

// line returns the line of what the finding is about, or 0.
func (w workloadReport) line(finding explain.Finding) int {
	path := w.Path
	if finding.Reason == v1alpha1.ReasonInvalidManifest {
		path, _, _ = strings.Cut(finding.Message, ": ")
	}
	return w.LineOf(path, finding.Container)
}

// github returns the findings as workflow commands, which GitHub shows beside the changed files.
func (r *result) github() string {
	var text strings.Builder
	message := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, object := range r.objects() {
		for _, finding := range object.Findings {
			place := "title=" + property.Replace(string(finding.Reason))
			if path := object.RepositoryPath; path != "" {
				place += ",file=" + property.Replace(path)
				if line := object.line(finding); line > 0 {
					place += fmt.Sprintf(",line=%d", line)
				}
			}
			fmt.Fprintf(&text, "::%s %s::%s\n", cmp.Or(levels[finding.Severity], "notice"), place, message.Replace(object.name()+": "+advice(finding)))
		}
	}
	return text.String()
}

const repository = "https://github.com/sidecar-termination/operator"

// sarif returns the findings in the Static Analysis Results Interchange Format 2.1.0 of OASIS, with what GitHub's code scanning requires: a
// result is in a file of the repository. It also returns the number of findings that are in none.
func (r *result) sarif() (text string, leftOut int, err error) {
	type object = map[string]any
	results, reasons := []object{}, sets.New[string]()
	for _, o := range r.objects() {
		for _, finding := range o.Findings {
			if o.RepositoryPath == "" {
				leftOut++
				continue
			}
			reasons.Insert(string(finding.Reason))
			results = append(results, object{
				"ruleId": finding.Reason, "level": cmp.Or(levels[finding.Severity], "note"),
				"message": object{"text": o.name() + ": " + advice(finding)},
				"locations": []object{{"physicalLocation": object{
					"artifactLocation": object{"uri": (&url.URL{Path: o.RepositoryPath}).String(), "uriBaseId": "%SRCROOT%"},
					"region":           object{"startLine": max(1, o.line(finding))},
				}}},
			})
		}
	}
	rules := []object{}
	for _, reason := range sets.List(reasons) {
		page := repository + "/blob/main/docs/troubleshooting.md#" + strings.ToLower(reason)
		rules = append(rules, object{
			"id": reason, "name": reason, "shortDescription": object{"text": reason}, "fullDescription": object{"text": reason + " of " + settings.Name},
			"help": object{"text": "What it means, and what to do: " + page}, "helpUri": page,
		})
	}
	driver := object{"name": settings.PluginProgram, "version": settings.Version(), "informationUri": repository, "rules": rules}
	log := object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}},
	}
	data, err := json.MarshalIndent(log, "", "  ")
	return string(data) + "\n", leftOut, err
}

// junit returns a test for each object with findings, and one for all others. A test fails by the findings that fail the command.
func (r *result) junit(failOn output.FailOn) []output.JUnitCase {
	cases := []output.JUnitCase{{Class: "lint", Name: "objects without findings"}}
	for _, object := range r.objects() {
		if len(object.Findings) == 0 {
			continue
		}
		test := output.JUnitCase{Class: "lint", Name: object.name() + object.inFile()}
		for _, finding := range object.Findings {
			text := fmt.Sprintf("%s: %s", finding.Reason, advice(finding))
			if failOn.Judge(finding.Severity) != nil {
				test.Failures = append(test.Failures, text)
			} else {
				test.Output += text + "\n"
			}
		}
		cases = append(cases, test)
	}
	return cases
}
