//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// No policy declares the sidecar in these tests, so that only the command can end it.
func TestFinish(t *testing.T) {
	harness.Shared(t)
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModePodPhase, v1alpha1.ModeImage} {
		for _, exitCode := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s/exit %d", mode, exitCode), func(t *testing.T) {
				t.Parallel()
				test := harness.New(t)
				job := harness.Job("job", corev1.RestartPolicyNever, harness.Main(0), harness.Sidecar(harness.ExitsZeroOnTerm))
				job.Spec.BackoffLimit = ptr.To[int32](0)
				gate := test.Gate(&job.Spec.Template)
				job.Spec.Template.Spec.Containers[0].Command[2] += fmt.Sprintf("; exit %d", exitCode)
				test.Create(job)
				test.WaitForRunning("job")
				gate.Open()
				pod := test.WaitForMain("job")

				finish := []string{"finish", "pod/" + pod.Name, "-n", test.Namespace, "--sidecars", harness.SidecarName,
					"--mode", string(mode), "--quick-exit-image", harness.QuickExitImage}
				output, code := plugin(test, append(finish, "--dry-run=server")...)
				requireOutput(test, output, code, 0, "finished (server dry run)")
				if test.Get(pod); pod.Status.Phase != corev1.PodRunning {
					t.Fatalf("The pod is %s after a dry run, want Running", pod.Status.Phase)
				}

				output, code = plugin(test, finish...)
				requireOutput(test, output, code, 0, string(v1alpha1.ReasonFinishedByUser))
				phase, wait := corev1.PodSucceeded, test.WaitForComplete
				if exitCode != 0 {
					phase, wait = corev1.PodFailed, test.WaitForFailed
				}
				wait("job")
				record := test.RequireFinished("job")
				if record.Pod.Status.Phase != phase {
					t.Errorf("The pod is %s, want %s", record.Pod.Status.Phase, phase)
				}
				if main := record.Container(harness.MainName); main.State.Terminated == nil || int(main.State.Terminated.ExitCode) != exitCode {
					t.Errorf("The main container is %+v, want exit code %d", main.State, exitCode)
				}
				if event := test.WaitForEvent(pod, v1alpha1.ReasonFinishedByUser); !strings.Contains(event.Message, harness.SidecarName) {
					t.Errorf("The event does not name the sidecar: %s", event.Message)
				}

				output, code = plugin(test, finish...)
				requireOutput(test, output, code, 0, "unchanged", string(v1alpha1.ReasonPodFinished))
			})
		}
	}
}

func TestFinishRefusesRunningMain(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(0))
	gate := test.Gate(&job.Spec.Template)
	test.Create(job)
	test.WaitForRunning("job")
	pod := test.PodOf("job")

	output, code := plugin(test, "finish", "pod/"+pod.Name, "-n", test.Namespace, "--sidecars", harness.SidecarName)
	requireOutput(test, output, code, 1, "refused", string(v1alpha1.ReasonMainContainersRunning))
	gate.Open()
	test.WaitForMain("job")
	output, code = plugin(test, "finish", "-l", "batch.kubernetes.io/job-name=job", "-n", test.Namespace)
	requireOutput(test, output, code, 1, "refused", "name the sidecars with --sidecars")
	output, code = plugin(test, "finish", "-l", "batch.kubernetes.io/job-name=job", "-n", test.Namespace, "--sidecars", harness.SidecarName)
	requireOutput(test, output, code, 0, string(v1alpha1.ReasonFinishedByUser))
	test.RequireCompleted("job")
}
