// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

var automatic = Case{Contender: ContenderOperator, Mode: v1alpha1.ModeAuto}

// completed is a Job that has finished as it should. Its main container ended 10 seconds after the boot of the machine.
func completed(milliseconds int) *jobRecord {
	at := 10*time.Second + time.Duration(milliseconds)*time.Millisecond
	return &jobRecord{
		ended: 10 * time.Second, at: map[step]time.Duration{stepReported: at - 500*time.Millisecond, stepJob: at},
		result: batchv1.JobComplete, phases: []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded},
	}
}

func TestCompletionAdd(t *testing.T) {
	r := &Report{}
	var many []*jobRecord
	for i := range 100 {
		many = append(many, completed(1000+(i*37%100)*10))
	}
	r.addCompletion(automatic, 5, many[:50])
	r.addCompletion(automatic, 5, many[50:])
	silent := completed(1000)
	silent.ended = 0
	reverted := completed(2000)
	reverted.phases = append(reverted.phases, corev1.PodRunning, corev1.PodSucceeded)
	failed := completed(3000)
	failed.result = batchv1.JobFailed
	native := Case{Contender: ContenderNative}
	r.addCompletion(native, 5, []*jobRecord{silent, reverted, failed})
	mixed := Case{Contender: ContenderOperator, Mode: v1alpha1.ModeAuto, Mixed: true}
	r.addCompletion(mixed, 30, []*jobRecord{reverted})
	want := []*Completion{
		{Case: automatic, AtOnce: 5, Jobs: 100, P50: 1490, P99: 1980, Max: 1990, Steps: map[step]float64{stepReported: 990, stepJob: 1490}},
		{
			Case: native, AtOnce: 5, Jobs: 3, P50: 2000, P99: 3000, Max: 3000, Steps: map[step]float64{stepReported: 1500, stepJob: 2000},
			Reversals: 1, Wrong: 1, Problems: []string{reverted.String(), failed.String()},
		},
		{Case: mixed, AtOnce: 30, Jobs: 1, Steps: map[step]float64{}, Reversals: 1, Problems: []string{reverted.String()}},
	}
	if diff := cmp.Diff(want, r.Completions, cmpopts.IgnoreUnexported(Completion{})); diff != "" {
		t.Errorf("completions (-want +got):\n%s", diff)
	}
	if err := r.completionFailures(false); err != nil {
		t.Errorf("got %v, want no error about another contender", err)
	}
	if err := r.completionFailures(true); err == nil || !strings.Contains(err.Error(), "1 phase reversals and 0 wrong outcomes of 1 Jobs") {
		t.Errorf("got %v, want an error about a reversal", err)
	}
}

func TestCompletionTable(t *testing.T) {
	r := &Report{Completions: []*Completion{
		{Case: Case{Contender: ContenderNative}, Jobs: 100, P50: 4000, P99: 5000, Steps: map[step]float64{stepReported: 500, stepSidecar: 1000, stepPod: 1500}},
		{Case: automatic, Jobs: 100, P50: 2000, P99: 6000, Steps: map[step]float64{stepReported: 500, stepRequested: 510}},
		{Case: Case{Contender: ContenderOperator, Mode: v1alpha1.ModeAuto, Mixed: true}, Jobs: 1000, Reversals: 2, Wrong: 1},
	}}
	want := strings.TrimSpace(`
| | Jobs | p50 | ratio | p99 | ratio | main reported | termination requested | sidecar ended | pod finished | phase reversals | wrong outcomes |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| native | 100 | 4.00 s | 1.00 | 5.00 s | 1.00 | 0.50 s | - | 1.00 s | 1.50 s | 0 | 0 |
| operator, Auto | 100 | 2.00 s | 0.50 | 6.00 s | 1.20 | 0.50 s | 0.51 s | - | - | 0 | 0 |
| operator, Auto, mixed | 1000 | - | - | - | - | - | - | - | - | 2 | 1 |`)
	if diff := cmp.Diff(want, r.completionTable()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	all := r.figures()
	for name, want := range map[string]float64{ratioP50: 0.5, ratioP99: 1.5} {
		if got := all.named(name); got == nil || got.values[ContenderOperator].median != want {
			t.Errorf("%s: got %+v, want %g", name, got, want)
		}
	}
	if got := (&Report{}).completionTable(); got != "" {
		t.Errorf("without results: got %q, want no table", got)
	}
}

func TestMixedJobs(t *testing.T) {
	variants := map[string]bool{}
	for number := range 9 {
		job, fails := Case{Contender: ContenderOperator, Mixed: true}.job("n", "import", number)
		pod := job.Spec.Template.Spec
		if onFailure := pod.RestartPolicy == corev1.RestartPolicyOnFailure; onFailure && fails {
			t.Errorf("Job %d runs until its main container succeeds, which it never does", number)
		}
		if got := strings.HasSuffix(pod.Containers[0].Command[2], "exit 3"); got != fails {
			t.Errorf("Job %d: main container %q, fails %t", number, pod.Containers[0].Command, fails)
		}
		variants[string(pod.RestartPolicy)+pod.Containers[0].Command[2]+pod.Containers[1].Command[2]] = true
	}
	if len(variants) != 9 {
		t.Errorf("9 Jobs have %d variants", len(variants))
	}
}

func TestJobsOfContenders(t *testing.T) {
	for contender, want := range map[Contender]string{
		ContenderAlone: "[main] []", ContenderNative: "[main] [proxy]", ContenderKruise: "[main proxy] []", ContenderOperator: "[main proxy] []",
	} {
		job, fails := Case{Contender: contender}.job("n", "import", 2)
		pod := job.Spec.Template.Spec
		var regular, initial []string
		for _, container := range pod.Containers {
			regular = append(regular, container.Name)
			if declared := len(container.Env) > 0; declared != (contender == ContenderKruise && container.Name == sidecar) {
				t.Errorf("%s: container %s has variables %v", contender, container.Name, container.Env)
			}
		}
		for _, container := range pod.InitContainers {
			initial = append(initial, container.Name)
		}
		if got := "[" + strings.Join(regular, " ") + "] [" + strings.Join(initial, " ") + "]"; got != want || fails {
			t.Errorf("%s: got %s, fails %t, want %s", contender, got, fails, want)
		}
	}
}
