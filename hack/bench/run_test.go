// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

func TestUsageOf(t *testing.T) {
	self, err := process.Find(func(arguments []string) bool { return arguments[0] == os.Args[0] })
	if err != nil || len(self) == 0 {
		t.Fatalf("found %d processes and error %v", len(self), err)
	}
	before := ownCPU(t)
	used, err := usageOf(self[0])
	if err != nil {
		t.Fatal(err)
	}
	// Each of the two times that are added up is cut to hundredths of a second.
	if after := ownCPU(t); used.CPU < before-20*time.Millisecond || used.CPU > after {
		t.Errorf("the CPU time is %s, want it between %s and %s", used.CPU, before, after)
	}
	// No program of Go is as small as 1 MiB, and no number of KiB that this one takes is as large.
	if used.RSS < 1<<20 || used.Peak < used.RSS {
		t.Errorf("a process uses %+v", used)
	}
}

// ownCPU is the CPU time of this process so far.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		t.Fatal(err)
	}
	return time.Duration(own.Utime.Nano() + own.Stime.Nano())
}

func TestBusySince(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after cpuTimes
		want          float64
	}{
		{"a quarter of the time", cpuTimes{busy: 10, idle: 10}, cpuTimes{busy: 11, idle: 13}, 25},
		{"always", cpuTimes{busy: 10, idle: 10}, cpuTimes{busy: 12, idle: 10}, 100},
		{"no time has passed", cpuTimes{busy: 10, idle: 10}, cpuTimes{busy: 10, idle: 10}, 0},
	} {
		if got := c.after.busySince(c.before); got != c.want {
			t.Errorf("%s: got %g, want %g", c.name, got, c.want)
		}
	}
}

func TestRunOf(t *testing.T) {
	start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	at := func(milliseconds int) time.Time { return start.Add(time.Duration(milliseconds) * time.Millisecond) }
	run := runOf(
		map[string]time.Time{"a": at(0), "b": at(100)}, &observations{at: map[string]time.Time{"a": at(10), "b": at(500)}},
		reading{requests: requests{"PUT pods/status": 7, "POST events": 3}, contender: usage{CPU: time.Second}, kruiseManager: usage{CPU: time.Second}},
		reading{requests: requests{"PUT pods/status": 9, "POST events": 5}, contender: usage{CPU: 3 * time.Second, RSS: 64 << 20, Peak: 64 << 20},
			kruiseManager: usage{CPU: 2 * time.Second}, reconciles: 3},
		Scenario{})
	want := Run{
		P50: 10, P99: 400, Max: 400, PerSecond: 4, CPU: 1000, KruiseCPU: 500, RSS: 64, Peak: 64,
		Requests: map[string]float64{"POST events": 1}, Reconciles: 1.5,
	}
	if diff := cmp.Diff(want, run); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
}

func TestListedPodsHaveNoLatency(t *testing.T) {
	start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	second := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	begun := map[string]time.Time{"a": start, "b": start}
	for _, test := range []struct {
		name   string
		listed map[string]bool
		want   Run
	}{
		{"one of them", map[string]bool{"b": true}, Run{P50: 1000, P99: 1000, Max: 1000, PerSecond: 0.5, Watched: Watched{Listed: 1}}},
		{"all", map[string]bool{"a": true, "b": true}, Run{PerSecond: 0.5, Watched: Watched{Listed: 2}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := &observations{at: map[string]time.Time{"a": second(1), "b": second(4)}, listed: test.listed}
			test.want.Requests = map[string]float64{}
			got := runOf(begun, seen, reading{}, reading{}, Scenario{Backlog: true})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("run (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSpreadText(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   string
	}{
		{[]float64{3, 1, 2}, "2.0 (1.0-3.0)"},
		{[]float64{4, 1, 2, 3}, "2.5 (1.0-4.0)"},
		{[]float64{2}, "2.0"},
		{[]float64{2.01, 2, 1.99}, "2.0"},
	} {
		if got := spreadOf(test.values).text("%.1f"); got != test.want {
			t.Errorf("of %v: got %s, want %s", test.values, got, test.want)
		}
	}
}

func TestHeapPer(t *testing.T) {
	at := func(count int, live ...float64) *Growth {
		growth := &Growth{Count: count}
		for _, figure := range live {
			growth.Runs = append(growth.Runs, GrowthRun{Live: figure})
		}
		return growth
	}
	for _, test := range []struct {
		name  string
		along []*Growth
		want  []float64
	}{
		{name: "nothing"},
		{name: "one count", along: []*Growth{at(1000, 10)}},
		{name: "no run has the figure", along: []*Growth{at(0, 0), at(1000, 0)}},
		{name: "medians of two counts", along: []*Growth{at(1000, 9, 11, 30), at(11_000, 21, 50, 1)}, want: []float64{1.048576}},
		{name: "runs that lack the figure", along: []*Growth{at(1000, 11, 0, 0), at(11_000, 0, 21)}, want: []float64{1.048576}},
		{name: "a count without the figure", along: []*Growth{at(0, 0), at(1000, 11), at(11_000, 21)}, want: []float64{1.048576}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, heapPer(test.along)); diff != "" {
				t.Errorf("KB per pod (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWritesAndEvents(t *testing.T) {
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
