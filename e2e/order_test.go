//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// pool is the name of a connection pool that needs the sidecar while it flushes. OpenKruise stops the containers of a request in the order of
// their names.
const pool = "upstream-pool"

// TestTerminationOrder ends a connection pool before the proxy that it flushes through. Without the order, the pool finds no proxy.
func TestTerminationOrder(t *testing.T) {
	harness.Shared(t)
	never, onFailure := corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
	runBehaviours(t, []behaviour{
		{"CRR", ordered(v1alpha1.ModeCRR), flushes(never), poolExits(0)},
		{"CRR, no order", inNoOrder(v1alpha1.ModeCRR), flushes(never), poolExits(9)},
		{"CRR, OnFailure", ordered(v1alpha1.ModeCRR), flushes(onFailure), poolExits(0)},
		{"Auto", ordered(v1alpha1.ModeAuto), flushes(never), poolExits(0)},
		{"Auto, OnFailure", ordered(v1alpha1.ModeAuto), flushes(onFailure), poolExits(0)},
		{"Auto, no daemon: image, then phase", ordered(v1alpha1.ModeAuto), onNode(flushes(never), fargateNode), poolExits(0)},
		{"Auto, no daemon, no order: phase", inNoOrder(v1alpha1.ModeAuto), onNode(flushes(never), fargateNode), poolExits(9)},
		{"Image", ordered(v1alpha1.ModeImage), flushes(never), poolExits(0)},
		{"virtual node", ordered(v1alpha1.ModeImage), onNode(flushes(never), virtualNode), completed},
		{"PodPhase: not kept", ordered(v1alpha1.ModePodPhase), flushes(never), both(poolExits(9), event(corev1.EventTypeWarning, v1alpha1.ReasonOrderNotKept))},
	})
}

// ordered declares the pool, and the sidecar, which ends after it.
func ordered(mode v1alpha1.Mode) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(mode, pool, harness.SidecarName)
	policy.Spec.Image, policy.Spec.QuickExitPaths = harness.QuickExitImage, []v1alpha1.QuickExitPath{"*"}
	policy.Spec.Sidecars[1].TerminationOrder = ptr.To[int32](100)
	return policy
}

func inNoOrder(mode v1alpha1.Mode) *v1alpha1.SidecarTerminationPolicy {
	policy := ordered(mode)
	policy.Spec.Sidecars[1].TerminationOrder = nil
	return policy
}

// flushes returns a Job with a pool that takes four seconds to flush, and exits 9 if the proxy shows no sign of life meanwhile.
func flushes(restartPolicy corev1.RestartPolicy) *batchv1.Job {
	job := harness.Job("job", restartPolicy, harness.Main(3),
		harness.Container(pool, "trap 'sleep 2; rm -f /shared/alive; sleep 2; [ -e /shared/alive ] || exit 9; exit 0' TERM; sleep 3600 & wait"),
		harness.Sidecar("trap 'exit 0' TERM; while :; do touch /shared/alive; sleep 0.2; done"))
	job = sharing(job)
	job.Spec.BackoffLimit = ptr.To[int32](6)
	return job
}

// poolExits requires that the Job completes, and that the first run of the pool leaves the exit code.
func poolExits(code int32) requirement {
	return func(test *harness.Test) {
		test.Helper()
		test.RequireCompleted("job")
		status := test.RequireFinished("job").Container(pool)
		end := status.LastTerminationState.Terminated
		if end == nil {
			end = status.State.Terminated
		}
		if end == nil || end.ExitCode != code {
			test.Errorf("Container %s ended with %+v, want exit code %d", pool, end, code)
		}
	}
}

// Restarts of sidecars must not fail a Job whose main container has succeeded, whatever its backoffLimit. A sidecar that has drained waits for
// the other one.
func TestRestartsDoNotCount(t *testing.T) {
	harness.Shared(t)
	limits := map[string]int32{"backoffLimit 0": 0}
	if testenv.Long() {
		limits["backoffLimit 1"], limits["backoffLimit 6"] = 1, 6
	}
	var all []behaviour
	for name, limit := range limits {
		for kind, c := range map[string]struct{ first, second string }{
			"both fail on SIGTERM": {harness.ExitsSevenOnTerm, harness.ExitsSevenOnTerm},
			"one ignores SIGTERM":  {harness.ExitsSevenOnTerm, harness.IgnoresTerm},
		} {
			for drained, drain := range map[string]int32{"one drain": 0, "two drains": 8} {
				policy := harness.Policy(v1alpha1.ModeAuto, "first", "second")
				policy.Spec.Sidecars[1].DrainSeconds = &drain
				job := harness.Job("job", corev1.RestartPolicyOnFailure, harness.Main(2), harness.Container("first", c.first), harness.Container("second", c.second))
				job.Spec.BackoffLimit = &limit
				all = append(all, behaviour{name + ", " + kind + ", " + drained, policy, job, completed})
			}
		}
	}
	runBehaviours(t, all)
}
