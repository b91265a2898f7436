// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

// difference is an expectation that does not hold.
type difference struct {
	Field string `json:"field"`
	Want  string `json:"want"`
	Got   string `json:"got"`
}

// isEmpty reports whether nothing is compared.
func (e expectation) isEmpty() bool {
	containers := slices.Collect(maps.Values(e.Containers))
	return e.Stage == "" && e.Reason == "" && e.Mode == "" && e.Phase == "" && len(e.Findings) == 0 &&
		!slices.ContainsFunc(containers, func(c containerExpectation) bool { return c != containerExpectation{} })
}

// comparison collects differences.
type comparison []difference

// field compares a value with an expectation that is not empty.
func (c *comparison) field(name, want, got string) {
	if got = cmp.Or(got, none); want != "" && want != got {
		*c = append(*c, difference{name, want, got})
	}
}

// compare returns the expectations that do not hold for the report of the fixture.
func (e expectation) compare(f fixture, report *explain.Report) []difference {
	var c comparison
	decision := report.Decision()
	c.field("stage", string(e.Stage), string(decision.Stage))
	c.field("reason", string(e.Reason), string(decision.Reason))
	c.field("mode", e.Mode, modesOf(decision.Actions, ""))
	c.field("phase", e.Phase, phaseOf(decision.Actions))
	for _, reason := range e.Findings {
		if !slices.ContainsFunc(report.Findings, func(found explain.Finding) bool { return found.Reason == reason }) {
			c = append(c, difference{"findings", string(reason), reasonsOf(report.Findings)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Containers)) {
		c.container(e.Containers[name], report, name)
	}
	return c
}

func (c *comparison) container(want containerExpectation, report *explain.Report, name string) {
	i := slices.IndexFunc(report.Containers, func(c explain.Container) bool { return c.Name == name })
	field, actions := "containers."+name+".", report.Decision().Actions
	c.field(field+"role", want.Role, string(report.Containers[i].Role))
	c.field(field+"declaredBy", want.DeclaredBy, report.Containers[i].DeclaredBy)
	c.field(field+"mode", want.Mode, modesOf(actions, name))
	c.field(field+"image", want.Image, imageOf(actions, name))
}

// modesOf returns the modes that the actions belong to. With a container, only actions that end it count.
func modesOf(actions []plan.Action, container string) string {
	var modes []string
	for _, action := range actions {
		if mode := string(action.For); !slices.Contains(modes, mode) && (container == "" || slices.Contains(action.Containers, container)) {
			modes = append(modes, mode)
		}
	}
	return strings.Join(modes, ", ")
}

// phaseOf returns the phase that the actions write, or nothing.
func phaseOf(actions []plan.Action) string {
	for _, action := range actions {
		if action.Mode == v1alpha1.ModePodPhase {
			return string(action.Phase)
		}
	}
	return ""
}

// imageOf returns the image that the actions give the container, or nothing.
func imageOf(actions []plan.Action, container string) string {
	for _, action := range actions {
		if image := action.Images[container]; image != "" {
			return image
		}
	}
	return ""
}

// reasonsOf returns the reasons of the findings, each once.
func reasonsOf(findings []explain.Finding) string {
	var reasons []string
	for _, found := range findings {
		if reason := string(found.Reason); !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return cmp.Or(strings.Join(reasons, ", "), none)
}
