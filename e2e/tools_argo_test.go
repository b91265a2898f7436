//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	waitName      = "wait"
	argoexecImage = "localhost/argoexec:v3.7.4"
	pauseImage    = "localhost/pause:1"
	workflowLabel = "workflows.argoproj.io/workflow"
)

// argoSidecars are sidecars that Argo Workflows cannot end: it runs a shell in the container that signals the first process.
var argoSidecars = map[string]corev1.Container{
	"without a shell": {Name: harness.SidecarName, Image: pauseImage, ImagePullPolicy: corev1.PullIfNotPresent},
	"ignores SIGTERM": harness.Sidecar(harness.IgnoresTerm),
}

// Each step reads the output of the last one.
const threeSteps = `
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: workflow}
spec:
  entrypoint: all
  hostNetwork: true
  podSpecPatch: 'terminationGracePeriodSeconds: 3'
  templates:
  - name: all
    steps:
    - - {name: one, template: append, arguments: {parameters: [{name: text, value: start}]}}
    - - {name: two, template: append, arguments: {parameters: [{name: text, value: "{{steps.one.outputs.parameters.text}}"}]}}
    - - {name: three, template: append, arguments: {parameters: [{name: text, value: "{{steps.two.outputs.parameters.text}}"}]}}
  - name: append
    inputs: {parameters: [{name: text}]}
    container:
      image: localhost/busybox:1
      command: [sh, -c, 'echo "{{inputs.parameters.text}}-step" > /tmp/text; echo "this step wrote $(cat /tmp/text)"']
    outputs: {parameters: [{name: text, valueFrom: {path: /tmp/text}}]}
`

// Each step starts when the pod of the last one is finished, and reads its output.
func TestToolsArgoWorkflow(t *testing.T) {
	harness.Shared(t)
	for name, sidecar := range argoSidecars {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := newArgo(t, sidecar)
			requirePhase(test, createManifest(test, threeSteps), "Succeeded")
			for i, record := range test.RequireAllFinished("workflow", 3) {
				requireMains(test, record, 0)
				log := kubectl(test, "logs", "--namespace="+test.Namespace, record.Pod.Name, "--container="+harness.MainName)
				if want := "start" + strings.Repeat("-step", i+1); !strings.Contains(log, "this step wrote "+want+"\n") {
					t.Errorf("The log of pod %s is %q, want %s", record.Pod.Name, log, want)
				}
			}
		})
	}
}

// oneStep has the command and the annotations of its pod.
const oneStep = `
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: workflow}
spec:
  entrypoint: work
  hostNetwork: true
  podSpecPatch: 'terminationGracePeriodSeconds: 3'
  podMetadata: {annotations: {%s}}
  templates:
  - name: work
    container:
      image: localhost/busybox:1
      command: [sh, -c, %s]
`

func TestToolsArgoFailedStep(t *testing.T) {
	harness.Shared(t)
	test := newArgo(t, argoSidecars["without a shell"])
	workflow := createManifest(test, fmt.Sprintf(oneStep, "", "exit 3"))
	requirePhase(test, workflow, "Failed")
	if message, _, _ := unstructured.NestedString(workflow.Object, "status", "message"); !strings.Contains(message, "(exit code 3)") {
		t.Errorf("The workflow's message is %q, want exit code 3", message)
	}
	requireMains(test, test.RequireFinished("workflow"), 3)
}

// The annotation of the guide keeps Argo Workflows from signalling a sidecar that exits with an error.
func TestToolsArgoKillCommand(t *testing.T) {
	harness.Shared(t)
	test := newArgo(t, harness.Sidecar(harness.ExitsSevenOnTerm))
	requirePhase(test, createManifest(test, fmt.Sprintf(oneStep, `workflows.argoproj.io/kill-cmd-sidecar: '["/bin/true"]'`, "sleep 1")), "Succeeded")
	requireMains(test, test.RequireFinished("workflow"), 0)
}

// newArgo returns a test with the preset whose workflows may run. OpenKruise injects the sidecar into their pods.
func newArgo(t *testing.T, sidecar corev1.Container) *harness.Test {
	t.Helper()
	test := newInjectedTool(t, "argo-workflows", workflowLabel, sidecar, "argo")
	permitPods(test, rbacv1.PolicyRule{
		APIGroups: []string{"argoproj.io"}, Resources: []string{"workflowtaskresults"}, Verbs: []string{"create", "patch"},
	})
	return test
}

// requirePhase waits until the workflow ends, and requires the phase.
func requirePhase(test *harness.Test, workflow *unstructured.Unstructured, wanted string) {
	test.Helper()
	phase := ""
	test.EventuallyGet(workflow, "the workflow to end", harness.FinishTimeout, func() error {
		phase, _, _ = unstructured.NestedString(workflow.Object, "status", "phase")
		if phase == "" || phase == "Pending" || phase == "Running" {
			var description string
			test.Recorder.Look(func(seen harness.Seen) { description = seen.Describe(workflow.GetName()) })
			return fmt.Errorf("it is %q: %s", phase, description)
		}
		return nil
	})
	if phase != wanted {
		test.Fatalf("The workflow is %s, want %s: %v", phase, wanted, workflow.Object["status"])
	}
}

// requireMains requires that main exited with the code and wait with 0, and that the operator ended only the sidecar.
func requireMains(test *harness.Test, record *harness.PodRecord, exitCode int32) {
	test.Helper()
	test.RequireImage(record, harness.MainName, harness.BusyboxImage)
	test.RequireImage(record, waitName, argoexecImage)
	for name, want := range map[string]int32{harness.MainName: exitCode, waitName: 0} {
		requireRun(test, record, name, want, 0)
	}
	test.Recorder.Look(func(seen harness.Seen) {
		for _, crr := range seen.CRRs(record.Pod.Name) {
			if !slices.Equal(crr.Containers, []string{harness.SidecarName}) {
				test.Errorf("CRR %s of pod %s ends %v", crr.Name, record.Pod.Name, crr.Containers)
			}
		}
	})
}
