// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// completed is a Job that has finished as it should. Its main container ended 10 seconds after the boot of the machine.
func completed(milliseconds int) *jobRecord {
	at := 10*time.Second + time.Duration(milliseconds)*time.Millisecond
	return &jobRecord{
		ended: 10 * time.Second, at: map[step]time.Duration{stepReported: at - 500*time.Millisecond, stepJob: at},
		result: batchv1.JobComplete, phase: corev1.PodSucceeded,
	}
}

func TestCompletionAdd(t *testing.T) {
	got := &Completion{Contender: ContenderOperator, times: map[step][]time.Duration{}}
	for first := range 2 {
		records := jobRecords{}
		for i := range 50 {
			records[fmt.Sprint(i)] = completed(1000 + (first+2*i)*10)
		}
		got.add(records)
	}
	want := &Completion{Contender: ContenderOperator, Jobs: 100, P50: map[step]float64{stepReported: 990, stepJob: 1490}, P99: 1980}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Completion{})); diff != "" {
		t.Errorf("after 100 Jobs (-want +got):\n%s", diff)
	}
	if err := got.failure(); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	silent, reverted, failed := completed(90000), completed(2000), completed(3000)
	silent.ended, reverted.reversals, failed.result = 0, 2, batchv1.JobFailed
	got.add(jobRecords{"a": silent})
	got.add(jobRecords{"b": reverted})
	got.add(jobRecords{"c": failed})
	want = &Completion{
		Contender: ContenderOperator, Jobs: 103, P50: map[step]float64{stepReported: 1000, stepJob: 1500}, P99: 2000, Reversals: 2, Wrong: 1,
		Problems: []string{
			`Job b: result "Complete", phase Succeeded after 2 reversals, main container fails false, ran again false`,
			`Job c: result "Failed", phase Succeeded after 0 reversals, main container fails false, ran again false`,
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Completion{})); diff != "" {
		t.Errorf("after three more (-want +got):\n%s", diff)
	}
	if err := got.failure(); err == nil || !strings.Contains(err.Error(), "103 Jobs with 2 phase reversals and 1 wrong outcomes: Job b") {
		t.Errorf("got %v, want an error about both", err)
	}
	if err := (&Completion{Contender: ContenderKruise, Wrong: 1}).failure(); err != nil {
		t.Errorf("another contender: got %v, want no error", err)
	}
}

func TestFiguresRelativeToNative(t *testing.T) {
	native := &Completion{Contender: ContenderNative, P50: map[step]float64{stepJob: 4000}, P99: 5000}
	operator := &Completion{Contender: ContenderOperator, P50: map[step]float64{stepJob: 2000}, P99: 6000}
	all := (&Report{Completions: []*Completion{native, operator}}).figures()
	for name, want := range map[string]float64{toNativeP50: 0.5, toNativeP99: 1.5, string(stepJob) + ": p50": 2} {
		if got := all.named(name); got == nil || got.values[ContenderOperator].median != want {
			t.Errorf("%s: got %+v, want %g", name, got, want)
		}
	}
	all = (&Report{Completions: []*Completion{operator}}).figures()
	if got := all.named(toNativeP50); got != nil {
		t.Errorf("without native: got %+v, want no ratio", got)
	}
}

func TestMixedJobs(t *testing.T) {
	r := &jobRunner{mixed: true, created: map[Contender]int{}}
	variants, names := map[string]bool{}, map[string]bool{}
	for number := range 9 {
		job, fails := r.job(ContenderOperator, "n")
		pod := job.Spec.Template.Spec
		if pod.RestartPolicy == corev1.RestartPolicyOnFailure && fails {
			t.Errorf("Job %d restarts a main container that never succeeds", number)
		}
		if got := strings.HasSuffix(pod.Containers[0].Command[2], "exit 3"); got != fails {
			t.Errorf("Job %d: main container %q, fails %t", number, pod.Containers[0].Command, fails)
		}
		variants[string(pod.RestartPolicy)+pod.Containers[0].Command[2]+pod.Containers[1].Command[2]] = true
		names[job.Name] = true
	}
	if len(variants) != 9 || len(names) != 9 {
		t.Errorf("9 Jobs have %d variants and %d names", len(variants), len(names))
	}
}

func TestJobsOfContenders(t *testing.T) {
	for contender, want := range map[Contender]string{
		ContenderAlone: "[main] [] []", ContenderNative: "[main] [proxy] []", ContenderKruise: "[main proxy] [] [proxy]", ContenderImage: "[main proxy] [] []",
	} {
		job, fails := (&jobRunner{created: map[Contender]int{}}).job(contender, "n")
		var regular, initial, declared []string
		for _, container := range job.Spec.Template.Spec.Containers {
			regular = append(regular, container.Name)
			if len(container.Env) > 0 {
				declared = append(declared, container.Name)
			}
		}
		for _, container := range job.Spec.Template.Spec.InitContainers {
			initial = append(initial, container.Name)
		}
		if got := fmt.Sprint(regular, initial, declared); got != want || fails {
			t.Errorf("%s: got %s, fails %t, want %s", contender, got, fails, want)
		}
	}
}

func TestPoliciesOfContenders(t *testing.T) {
	var without []Contender
	for _, contender := range onKubelets {
		if _, ok := terminations[contender]; !ok {
			without = append(without, contender)
		}
	}
	if diff := cmp.Diff([]Contender{ContenderAlone, ContenderNative}, without); diff != "" || len(onKubelets) != len(terminations)+2 {
		t.Errorf("%d of %v without a policy (-want +got):\n%s", len(without), onKubelets, diff)
	}
}
