// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func reportOf(change func(*Report)) *Report {
	r := &Report{Machine: Machine{CPUs: 2, Kernel: "6.1", Go: "go1.26", Load: 0.1}, Kubernetes: "v1.36.3", Kruise: "v1.8.3", Operator: "sha256:1"}
	if change != nil {
		change(r)
	}
	return r
}

func TestWhatIsMeasuredAgainIsReplacedAndTheRestStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	small, large := Scenario{Mode: v1alpha1.ModeCRR, Pods: 500}, Scenario{Mode: v1alpha1.ModeCRR, Pods: 5000}
	sessions := []func(*Report){
		func(r *Report) {
			for _, p50 := range []float64{1, 2} {
				r.add(ContenderFloor, small, Run{P50: p50})
				r.add(ContenderOperator, small, Run{P50: p50})
			}
			r.addGrowth(ContenderOperator, AxisPolicies, 1, GrowthRun{RSS: 1})
			r.addColdStart(ContenderOperator, "", 1000, ColdStartRun{Ready: 1})
			r.addColdStart(ContenderOperator, AxisLarge, 1000, ColdStartRun{Ready: 4})
			r.addHandover(true, 600, 20, HandoverRun{Gap: 1})
		},
		func(r *Report) {
			for _, p50 := range []float64{3, 4, 5} {
				r.add(ContenderOperator, small, Run{P50: p50})
			}
			r.add(ContenderOperator, large, Run{P50: 6})
			for _, rss := range []float64{2, 3} {
				r.addGrowth(ContenderOperator, AxisPolicies, 1, GrowthRun{RSS: rss})
			}
			for _, ready := range []float64{2, 3} {
				r.addColdStart(ContenderOperator, AxisCandidates, 20000, ColdStartRun{Ready: ready})
			}
		},
	}
	for _, measure := range sessions {
		r, err := reportOf(nil).continued(file, false)
		if err != nil {
			t.Fatal(err)
		}
		measure(r)
		if err := r.save(file); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	want := reportOf(func(r *Report) {
		r.Results = []*Result{
			{ContenderFloor, small, []Run{{P50: 1}, {P50: 2}}},
			{ContenderOperator, small, []Run{{P50: 3}, {P50: 4}, {P50: 5}}},
			{ContenderOperator, large, []Run{{P50: 6}}},
		}
		r.Growth = []*Growth{{ContenderOperator, AxisPolicies, 1, []GrowthRun{{RSS: 2}, {RSS: 3}}}}
		r.ColdStarts = []*ColdStart{{ContenderOperator, AxisCandidates, 20000, 100, []ColdStartRun{{Ready: 2}, {Ready: 3}}}, {ContenderOperator, AxisLarge, 1000, 100, []ColdStartRun{{Ready: 4}}}}
		r.Handovers = []*Handover{{true, 600, 20, []HandoverRun{{Gap: 1}}}}
	})
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Report{})); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

func TestResultsOfSomethingElseAreNotAddedTo(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Report)
		want   string
	}{
		{"another machine", func(r *Report) { r.Machine.CPUs = 8 }, "CPUs"},
		{"another kernel", func(r *Report) { r.Machine.Kernel = "6.2" }, "kernel"},
		{"another Go", func(r *Report) { r.Machine.Go = "go1.27" }, "Go"},
		{"another Kubernetes", func(r *Report) { r.Kubernetes = "v1.37.0" }, "Kubernetes"},
		{"another OpenKruise", func(r *Report) { r.Kruise = "v1.9.0" }, "OpenKruise"},
		{"another operator", func(r *Report) { r.Operator = "sha256:2" }, "operator"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bench.json")
			if err := reportOf(test.change).save(file); err != nil {
				t.Fatal(err)
			}
			if _, err := reportOf(nil).continued(file, false); err == nil || !strings.Contains(err.Error(), "("+test.want+" ") {
				t.Errorf("got %v, want an error that names %s alone", err, test.want)
			}
			now := reportOf(nil)
			if got, err := now.continued(file, true); err != nil || got != now {
				t.Errorf("replaced: got %v, %v; want the new report", got, err)
			}
		})
	}
}

func TestTheGreatestLoadOfAllSessionsIsTold(t *testing.T) {
	for _, test := range []struct{ kept, now, want float64 }{{0.1, 9.5, 9.5}, {10, 9.5, 10}} {
		file := filepath.Join(t.TempDir(), "bench.json")
		if err := reportOf(func(r *Report) { r.Machine.Load = test.kept }).save(file); err != nil {
			t.Fatal(err)
		}
		got, err := reportOf(func(r *Report) { r.Machine.Load = test.now }).continued(file, false)
		if err != nil || got.Machine.Load != test.want {
			t.Errorf("%v and then %v: got %v, %v; want %v", test.kept, test.now, got.Machine.Load, err, test.want)
		}
	}
}
