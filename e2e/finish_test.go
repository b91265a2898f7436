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
				pod := test.RecordOf("job").Pod
				require := func(wantCode int, parts []string, arguments ...string) {
					t.Helper()
					output, code := plugin(test, append([]string{"finish", "-n", test.Namespace, "--mode", string(mode)}, arguments...)...)
					requireOutput(test, output, code, wantCode, parts...)
				}
				finish := []string{"pod/" + pod.Name, "--sidecars", harness.SidecarName, "--quick-exit-image", harness.QuickExitImage}
				require(1, []string{"refused", string(v1alpha1.ReasonMainContainersRunning)}, finish...)
				gate.Open()
				test.WaitForMain("job")
				require(1, []string{"refused", "name the sidecars with --sidecars"}, "-l", "batch.kubernetes.io/job-name=job")
				require(0, []string{"finished (server dry run)"}, append(finish, "--dry-run=server")...)
				if test.Get(pod); pod.Status.Phase != corev1.PodRunning {
					t.Fatalf("The pod is %s after a dry run, want Running", pod.Status.Phase)
				}

				require(0, []string{string(v1alpha1.ReasonFinishedByUser)}, finish...)
				if exitCode == 0 {
					test.RequireCompleted("job")
				} else {
					failedOnce(test)
				}
				if main := test.RequireFinished("job").Container(harness.MainName); main.State.Terminated == nil || int(main.State.Terminated.ExitCode) != exitCode {
					t.Errorf("The main container is %+v, want exit code %d", main.State, exitCode)
				}
				if event := test.WaitForEvent(pod, v1alpha1.ReasonFinishedByUser); !strings.Contains(event.Message, harness.SidecarName) {
					t.Errorf("The event does not name the sidecar: %s", event.Message)
				}
				require(0, []string{"unchanged", string(v1alpha1.ReasonPodFinished)}, finish...)
			})
		}
	}
}
