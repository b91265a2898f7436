//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/e2e/harness"
)

// TestKubeletAssumptions reads what the operator relies on and the Kubernetes API does not promise, on pods that the operator leaves
// alone. A failure names the assumption that a new kubelet breaks.
func TestKubeletAssumptions(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	// write makes the API server's phase of the pod Succeeded, with an annotation in the same write, as the admission policy does.
	write := func(test *harness.Test, pod *corev1.Pod) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e.sidecartermination.dev/phase":"%d"}},"status":{"phase":"Succeeded"}}`, time.Now().UnixNano())
		return test.Client.Status().Patch(test.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	}
	succeed := func(test *harness.Test, name string) {
		test.Helper()
		if err := write(test, test.WaitForMain(name)); err != nil {
			test.Fatal(err)
		}
	}
	// ended waits until no container of the pod runs, and returns the exit code of its sidecar.
	ended := func(test *harness.Test, name string) (exitCode int32) {
		test.Helper()
		test.EventuallySeen("the containers of "+name+" to end", harness.FinishTimeout, func(seen harness.Seen) error {
			for _, record := range seen.Pods(name) {
				if sidecar := record.Container(harness.SidecarName); sidecar != nil && sidecar.State.Terminated != nil && len(record.Running()) == 0 {
					exitCode = sidecar.State.Terminated.ExitCode
					return nil
				}
				// No admission policy keeps the phase of this pod, so that a write of a busy kubelet may take it back.
				if record.Pod.Status.Phase == corev1.PodRunning {
					if err := write(test, record.Pod); err != nil {
						return err
					}
				}
			}
			return fmt.Errorf("%s", seen.Describe(name))
		})
		return exitCode
	}
	create := func(test *harness.Test, name string, sidecar corev1.Container) {
		test.Helper()
		test.Create(harness.Pod(name, nil, harness.PodTemplate(corev1.RestartPolicyNever, sidecar, harness.Main(1))))
	}
	for name, check := range map[string]func(*harness.Test){
		"it ends a pod whose phase becomes terminal together with an annotation": func(test *harness.Test) {
			create(test, "ended", harness.Sidecar(harness.ExitsSevenOnTerm))
			succeed(test, "ended")
			if code := ended(test, "ended"); code != 7 {
				test.Errorf("The sidecar exited %d, want 7", code)
			}
		},
		"it runs preStop and waits for the grace period in a teardown": func(test *harness.Test) {
			sidecar := harness.Sidecar("trap '[ -e /tmp/stopping ] && sleep 3 && exit 5; exit 6' TERM; sleep 3600 & wait; wait")
			sidecar.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"touch", "/tmp/stopping"}}}}
			create(test, "teardown", sidecar)
			succeed(test, "teardown")
			if code := ended(test, "teardown"); code != 5 {
				test.Errorf("The sidecar exited %d, want 5: 6 without preStop, 137 if it was killed", code)
			}
		},
		"it reports no end of a single container while it stops the pod": func(test *harness.Test) {
			stopped := harness.Pod("stopped", nil, harness.PodTemplate(corev1.RestartPolicyNever,
				harness.Sidecar("trap 'sleep 5; exit 0' TERM; sleep 3600 & wait; wait"), harness.Container(harness.MainName, harness.ExitsZeroOnTerm)))
			test.Create(stopped)
			test.WaitForRunning("stopped")
			if err := test.Client.Delete(test.Context(), stopped); err != nil {
				test.Fatal(err)
			}
			test.EventuallySeen("the pod to be deleted", harness.FinishTimeout, func(seen harness.Seen) error {
				record := seen.Pods("stopped")[0]
				if main := record.Container(harness.MainName); main.State.Terminated != nil && len(record.Running()) > 0 {
					test.Errorf("The main container has ended, and %v runs", record.Running())
				}
				if !record.Deleted {
					return fmt.Errorf("%s", seen.Describe("stopped"))
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(harness.Within(t, test))
		})
	}
}
