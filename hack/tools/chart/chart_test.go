// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the charts in testdata anew")

// The charts in testdata are those of two panels: one with a spread, one with a logarithmic axis.
func TestTheSameDescriptionMakesTheSamePicture(t *testing.T) {
	description, err := os.ReadFile("testdata/charts.json")
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	if *update {
		directory = "testdata"
	}
	if err := run(strings.NewReader(string(description)), directory); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"panels.svg", "one.svg"} {
		got, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is drawn differently; go test . -update writes it anew", name)
		}
	}
}

func TestAPictureSaysWhatItShows(t *testing.T) {
	picture, err := aChart(func(*Chart) {}).draw()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"live candidate pods", "resident memory, MiB", "operator", "kruise", "20,000", "fill:#FFFFFF"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("the picture has no %q", want)
		}
	}
}

func TestWhatCannotBeDrawnIsRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Chart)
		want   string
	}{
		{"a file in another directory", func(c *Chart) { c.File = "../x.svg" }, "not the name of a file"},
		{"no panels", func(c *Chart) { c.Panels = nil }, "no panels"},
		{"no label", func(c *Chart) { c.Panels[0].X.Label = "" }, "need a label"},
		{"no series", func(c *Chart) { c.Panels[0].Series = nil }, "no series"},
		{"no points", func(c *Chart) { c.Panels[0].Series[0].Points = nil }, "no points"},
		{"zero on a logarithmic axis", func(c *Chart) { c.Panels[0].X.Logarithmic = true }, "logarithmic"},
		{"a median outside of its range", func(c *Chart) { c.Panels[0].Series[1].Points[0].Greatest = 1 }, "in a range of"},
	} {
		t.Run(test.name, func(t *testing.T) {
			description, err := json.Marshal([]Chart{aChart(test.change)})
			if err != nil {
				t.Fatal(err)
			}
			if err := run(strings.NewReader(string(description)), t.TempDir()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// aChart is a small sound chart, changed.
func aChart(change func(*Chart)) Chart {
	chart := Chart{File: "chart.svg", Panels: []Panel{{
		Title: "Memory", X: Axis{Label: "live candidate pods"}, Y: Axis{Label: "resident memory, MiB"},
		Series: []Series{
			{Name: "operator", Place: 0, Points: []Point{{X: 0, Median: 30, Least: 29, Greatest: 31}, {X: 20000, Median: 90, Least: 88, Greatest: 95}}},
			{Name: "kruise", Place: 1, Points: []Point{{X: 0, Median: 80, Least: 75, Greatest: 81}, {X: 20000, Median: 400, Least: 390, Greatest: 450}}},
		},
	}}}
	change(&chart)
	return chart
}
