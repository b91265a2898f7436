//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	tektonImage  = "localhost/tekton:v1.6.0"
	taskRunLabel = "tekton.dev/taskRun"
)

// The guide's selector. Tekton ends the sidecar by an image of its own.
func TestToolsTektonLeftAlone(t *testing.T) {
	harness.RequireAddons(t, "tekton")
	harness.Shared(t)
	test := newTekton(t, argoSidecars["without a shell"])
	policy := harness.Policy(v1alpha1.ModeAuto)
	policy.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: taskRunLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}
	test.Create(policy)
	record := test.runTask("True", 0)
	// The Job shows that the operator had time to act.
	test.Create(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1)))
	test.RequireCompleted("job")
	test.RequireImage(record, harness.SidecarName, tektonImage)
	test.requireNoTrace(record)
}

// A policy that selects every pod does not change the outcome of a TaskRun, by any mode.
func TestToolsTektonWithPolicies(t *testing.T) {
	harness.RequireAddons(t, "tekton")
	harness.Shared(t)
	policies := map[string]*v1alpha1.SidecarTerminationPolicy{"without a main container": {
		ObjectMeta: metav1.ObjectMeta{Name: "policy"},
		Spec:       v1alpha1.SidecarTerminationPolicySpec{PolicySpec: v1alpha1.PolicySpec{MainContainers: []v1alpha1.ContainerName{harness.MainName, waitName}}},
	}}
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeAuto, v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase} {
		policies[string(mode)] = harness.Policy(mode)
	}
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := newTekton(t, harness.Sidecar(harness.ExitsSevenOnTerm))
			test.Create(policy)
			test.runTask("True", 0)
		})
	}
}

func TestToolsTektonFailedStep(t *testing.T) {
	harness.RequireAddons(t, "tekton")
	harness.Shared(t)
	test := newTekton(t, harness.Sidecar(harness.ExitsSevenOnTerm))
	test.Create(harness.Policy(v1alpha1.ModeAuto))
	test.runTask("False", 3)
}

// tektonTest is a test with a TaskRun in its namespace.
type tektonTest struct{ *harness.Test }

// newTekton returns a test in which OpenKruise injects the sidecar into the pods of TaskRuns.
func newTekton(t *testing.T, sidecar corev1.Container) *tektonTest {
	t.Helper()
	test := harness.New(t)
	injectWhereLabelled(test, taskRunLabel, sidecar)
	return &tektonTest{test}
}

// runTask runs a task of two steps. The second one exits with the code. It requires the status of the TaskRun's condition Succeeded,
// the result of the first step, and that the containers end, and returns the pod.
func (t *tektonTest) runTask(succeeded string, exitCode int) *harness.PodRecord {
	t.Helper()
	run := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: run}
spec:
  taskSpec:
    results: [{name: greeting}]
    steps:
    - name: one
      image: localhost/busybox:1
      script: |
        #!/bin/sh
        printf hello > $(results.greeting.path)
    - name: two
      image: localhost/busybox:1
      script: |
        #!/bin/sh
        cat $(results.greeting.path)
        exit %d
`, exitCode), run); err != nil {
		t.Fatal(err)
	}
	run.SetNamespace(t.Namespace)
	// Tekton's webhook writes its authority into its configuration after it has started.
	t.Eventually("the TaskRun to be created", harness.StartTimeout, func(ctx context.Context) error { return t.Client.Create(ctx, run) })
	status := ""
	t.EventuallyGet(run, "the TaskRun to end", harness.FinishTimeout, func() error {
		conditions, _, _ := unstructured.NestedSlice(run.Object, "status", "conditions")
		for _, condition := range conditions {
			if fields, ok := condition.(map[string]any); ok && fields["type"] == "Succeeded" {
				status = fmt.Sprint(fields["status"])
			}
		}
		if status == "" || status == "Unknown" {
			var description string
			t.Recorder.Look(func(seen harness.Seen) { description = seen.Describe("run") })
			return fmt.Errorf("its status is %v: %s", run.Object["status"], description)
		}
		return nil
	})
	results, _, _ := unstructured.NestedSlice(run.Object, "status", "results")
	if got := fmt.Sprint(results); status != succeeded || !strings.Contains(got, "value:hello") {
		t.Errorf("The TaskRun's condition is %s with results %s, want %s and hello: %v", status, got, succeeded, run.Object["status"])
	}
	var finished harness.PodRecord
	t.EventuallySeen("the pod to finish", harness.FinishTimeout, func(seen harness.Seen) error {
		pods := seen.Pods("run")
		if len(pods) != 1 || !pods[0].Finished() || len(pods[0].Running()) > 0 {
			return errors.New(seen.Describe("run"))
		}
		finished = *pods[0]
		return nil
	})
	for name, want := range map[string]int32{"step-one": 0, "step-two": int32(exitCode)} {
		step := finished.Container(name)
		if ended := step.State.Terminated; ended == nil || ended.ExitCode != want || step.RestartCount != 0 {
			t.Errorf("Container %s is %+v, want exit code %d and no restart", name, step.State, want)
		}
	}
	t.Get(run)
	if after, _, _ := unstructured.NestedSlice(run.Object, "status", "conditions"); !strings.Contains(fmt.Sprint(after), "status:"+succeeded) {
		t.Errorf("The TaskRun's conditions became %v when the sidecar ended", after)
	}
	return &finished
}

// requireNoTrace requires that the operator has not written to the pod, and has emitted no event about it.
func (t *tektonTest) requireNoTrace(record *harness.PodRecord) {
	t.Helper()
	t.RequireCRRs(record, 0)
	if events := eventsOfOperator(t.Test, record.Pod); len(events) > 0 {
		t.Errorf("Pod %s has events %v of the operator", record.Pod.Name, events)
	}
	if slices.ContainsFunc(record.Pod.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return strings.Contains(entry.Manager, "sidecar-termination")
	}) {
		t.Errorf("Pod %s was written by the operator", record.Pod.Name)
	}
}
