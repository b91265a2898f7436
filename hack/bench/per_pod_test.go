// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
)

func TestMemoryIsALineThroughTheLeastAndTheGreatestCount(t *testing.T) {
	at := func(count int, live ...float64) *Growth {
		growth := &Growth{Count: count}
		for _, figure := range live {
			growth.Runs = append(growth.Runs, GrowthRun{Live: figure})
		}
		return growth
	}
	for _, test := range []struct {
		name       string
		along      []*Growth
		found      bool
		base, each float64
	}{
		{name: "nothing"},
		{name: "one count", along: []*Growth{at(1000, 10)}},
		{name: "a figure that the subject does not tell", along: []*Growth{at(0, 0), at(1000, 0)}},
		{name: "medians of two counts", along: []*Growth{at(1000, 9, 11, 30), at(11_000, 21, 50, 1)}, found: true, base: 10, each: 1.048576},
		{name: "runs that lack the figure", along: []*Growth{at(1000, 11, 0, 0), at(11_000, 0, 21)}, found: true, base: 10, each: 1.048576},
		{name: "a count without the figure", along: []*Growth{at(0, 0), at(1000, 11), at(11_000, 21)}, found: true, base: 10, each: 1.048576},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, found := memoryLine(test.along, liveOf)
			if found != test.found || math.Abs(got.base-test.base) > 1e-9 || math.Abs(got.each-test.each) > 1e-9 {
				t.Errorf("got %+v, %t; want base %g and each %g, %t", got, found, test.base, test.each, test.found)
			}
			if found && math.Abs(got.at(11_000)-21) > 1e-9 {
				t.Errorf("the line is at %g MiB for the greatest count, want 21", got.at(11_000))
			}
		})
	}
}

func TestWritesCountRefusedOnesAndNeitherReadsNorOtherObjects(t *testing.T) {
	run := Run{Requests: map[string]float64{
		"POST containerrecreaterequests": 1, "PATCH pods/status": 0.5, "PATCH pods/status (409)": 0.25, "GET pods": 3,
		"PUT sidecarterminationpolicies/status": 0.01, "POST events": 1, "PATCH events": 0.5,
	}}
	if got := writes(run); got != 1.75 {
		t.Errorf("%g writes, want 1.75", got)
	}
	if got := events(run); got != 1.5 {
		t.Errorf("%g events, want 1.5", got)
	}
}
