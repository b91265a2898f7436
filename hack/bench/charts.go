// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strconv"
	"strings"
)

// chart describes a picture for hack/tools/chart.
type chart struct {
	File   string  `json:"file"`
	Panels []panel `json:"panels"`
}

type panel struct {
	Title  string   `json:"title"`
	X      axis     `json:"x"`
	Y      axis     `json:"y"`
	Series []series `json:"series"`
}

type axis struct {
	Label       string `json:"label"`
	Logarithmic bool   `json:"logarithmic,omitempty"`
}

type series struct {
	Name   string  `json:"name"`
	Place  int     `json:"place"`
	Points []point `json:"points"`
}

type point struct {
	X        float64 `json:"x"`
	Median   float64 `json:"median"`
	Least    float64 `json:"least"`
	Greatest float64 `json:"greatest"`
}

// chartOf is the file of the chart along an axis.
func chartOf(a Axis) string {
	return map[Axis]string{
		AxisUnrelated: "performance-other-pods.svg", AxisCandidates: "performance-candidates.svg", AxisPolicies: "performance-policies.svg",
	}[a]
}

// chartTitle says what the chart shows.
func chartTitle(a Axis) string {
	return map[Axis]string{
		AxisUnrelated:  "Memory and CPU per termination by the number of other pods",
		AxisCandidates: "Memory and CPU per termination by the number of live candidates",
		AxisPolicies:   "Time of a decision and CPU per termination by the number of policies",
	}[a]
}

// charts are all that the results have data for.
func charts(r *Report, decisions []*Microbench) []chart {
	all := []chart{}
	if r == nil {
		return all
	}
	for _, a := range []Axis{AxisUnrelated, AxisCandidates, AxisPolicies} {
		x := axis{Label: map[Axis]string{AxisUnrelated: "other pods", AxisCandidates: "live candidate pods", AxisPolicies: "policies"}[a], Logarithmic: a == AxisPolicies}
		memory := panel{Title: "Memory at rest", X: x, Y: axis{Label: "resident memory, MiB"}}
		cpu := panel{Title: "CPU of a termination", X: x, Y: axis{Label: "CPU per pod of a burst, ms"}}
		for _, subject := range subjects {
			along := r.growth(subject, a)
			memory.add(subject, along, func(g *Growth) spread { return g.spread(rssOf) })
			cpu.add(subject, along, func(g *Growth) spread { return g.burstSpread(cpuOf) })
		}
		panels := []panel{memory, cpu}
		if a == AxisPolicies {
			panels[0] = decisionPanel(decisions, x)
		}
		// The section has no picture where it has no table.
		if len(memory.Series) == 0 {
			continue
		}
		panels = slices.DeleteFunc(panels, func(p panel) bool { return len(p.Series) == 0 })
		if len(panels) == 0 {
			panels = []panel{memory}
		}
		all = append(all, chart{File: chartOf(a), Panels: panels})
	}
	return all
}

// add adds the subject's line to the panel, if it has points.
func (p *panel) add(subject Subject, along []*Growth, figure func(*Growth) spread) {
	line := series{Name: string(subject), Place: place(subject)}
	for _, growth := range along {
		if s := figure(growth); s.greatest > 0 && (growth.Count > 0 || !p.X.Logarithmic) {
			line.Points = append(line.Points, pointAt(growth.Count, s))
		}
	}
	if len(line.Points) > 0 {
		p.Series = append(p.Series, line)
	}
}

// place gives the operator the first colour, and OpenKruise the next ones.
func place(subject Subject) int {
	return max(0, slices.Index([]Subject{SubjectOperator, SubjectKruise, SubjectKruiseLifted, SubjectFloor}, subject))
}

// decisionPanel shows the time of a pod event by the number of policies.
func decisionPanel(decisions []*Microbench, x axis) panel {
	p := panel{Title: "Time of a decision", X: x, Y: axis{Label: "pod event, microseconds"}}
	line := series{Name: string(SubjectOperator)}
	for _, benchmark := range decisions {
		count, err := strconv.Atoi(strings.TrimPrefix(benchmark.Name, "PodEvent/Policies"))
		if err == nil && count > 0 {
			line.Points = append(line.Points, pointAt(count, spreadOf(benchmark.Runs, microseconds)))
		}
	}
	if len(line.Points) > 0 {
		p.Series = []series{line}
	}
	return p
}

func pointAt(count int, s spread) point {
	return point{X: float64(count), Median: s.median, Least: s.least, Greatest: s.greatest}
}
