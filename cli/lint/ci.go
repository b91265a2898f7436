// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

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

// level returns the name of a severity in GitHub and SARIF, which differ in the last one.
func level(severity explain.Severity, last string) string {
	switch severity {
	case explain.SeverityProblem:
		return "error"
	case explain.SeverityWarning:
		return "warning"
	}
	return last
}

// advice is the finding as one text, with its hint and commands.
func advice(finding explain.Finding) string {
	lines := append([]string{finding.Message, finding.Hint}, finding.Commands...)
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == "" }), "\n")
}

// github returns the findings as workflow commands, which GitHub shows beside the changed files.
func (r *result) github() string {
	var text strings.Builder
	message := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, object := range r.objects() {
		for _, finding := range object.Findings {
			place := "title=" + property.Replace(string(finding.Reason))
			if object.File != "" {
				place += ",file=" + property.Replace(object.File)
			}
			fmt.Fprintf(&text, "::%s %s::%s\n", level(finding.Severity, "notice"), place, message.Replace(object.title()+": "+advice(finding)))
		}
	}
	return text.String()
}

// sarif returns the findings in the Static Analysis Results Interchange Format 2.1.0 of OASIS.
func (r *result) sarif() (string, error) {
	type object = map[string]any
	results := []object{}
	for _, o := range r.objects() {
		for _, finding := range o.Findings {
			location := object{"logicalLocations": []object{{"fullyQualifiedName": o.title(), "kind": "resource"}}}
			if o.File != "" {
				location["physicalLocation"] = object{"artifactLocation": object{"uri": o.File}}
			}
			results = append(results, object{
				"ruleId": finding.Reason, "level": level(finding.Severity, "note"),
				"message": object{"text": o.title() + ": " + advice(finding)}, "locations": []object{location},
			})
		}
	}
	driver := object{"name": settings.PluginProgram, "version": settings.Version(), "informationUri": "https://github.com/sidecar-termination/operator"}
	log := object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}},
	}
	data, err := json.MarshalIndent(log, "", "  ")
	return string(data) + "\n", err
}

// junit returns a test for each object with findings, and one for all others. A test fails by the findings that fail the command.
func (r *result) junit(failOn output.FailOn) []output.JUnitCase {
	cases := []output.JUnitCase{{Class: "lint", Name: "objects without findings"}}
	for _, object := range r.objects() {
		if len(object.Findings) == 0 {
			continue
		}
		test := output.JUnitCase{Class: "lint", Name: object.title()}
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
