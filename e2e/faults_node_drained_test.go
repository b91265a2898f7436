//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/e2e/harness"
)

// drainTimeout is for the pods of a wave to be evicted and gone.
const drainTimeout = 3 * time.Minute

// The operator leaves evicted pods alone. Their sidecars end within the grace period, and their Jobs have the right outcome.
func TestFaultsNodeDrained(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.inWaves = true
	// By default a Job takes a deleted pod for failed before it has ended.
	f.change = func(job *batchv1.Job) { job.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }
	t.Cleanup(func() {
		if output, err := f.TryKubectl(context.Background(), "uncordon", faultNode); err != nil {
			t.Errorf("%v: %s", err, output)
		}
	})
	f.plan(jobsOfWave)
	f.disturbEnds("node drained during termination", exactly(1), func() {
		f.EventuallySeen("an attempt on each pod", time.Minute, f.allAttempted)
		before, crrs := f.OperatorWrites(), f.crrs()
		kubectl(f.Test, "drain", faultNode, "--pod-selector="+policyLabel, "--timeout="+drainTimeout.String())
		f.requireNoWriteSince(before, crrs)
		kubectl(f.Test, "uncordon", faultNode)
	})
}

// allAttempted returns an error unless there was an attempt on each pod, and the kubelet knows the phases that were written.
func (f *faultJobs) allAttempted(seen harness.Seen) error {
	for _, record := range seen.AllPods() {
		if len(record.Running()) == 0 {
			continue
		}
		unknown := record.Pod.Status.Phase == corev1.PodSucceeded && !slices.ContainsFunc(record.Pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Reason == "PodCompleted"
		})
		if !attempted(seen, record) || unknown {
			return fmt.Errorf("pod %s has annotations %v and conditions %+v", record.Pod.Name, record.Pod.Annotations, record.Pod.Status.Conditions)
		}
	}
	return nil
}

// crrs returns the number of CRRs of all pods.
func (f *faultJobs) crrs() int {
	f.Helper()
	count := 0
	f.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.AllPods() {
			count += len(seen.CRRs(record.Pod.Name))
		}
	})
	return count
}

// requireNoWriteSince requires that the operator has written nothing since the writes.
func (f *faultJobs) requireNoWriteSince(before map[string][]string, crrs int) {
	f.Helper()
	for pod, writes := range f.OperatorWrites() {
		if len(writes) > len(before[pod]) {
			f.Errorf("The operator made more writes to evicted pod %s: %v, before %v", pod, writes, before[pod])
		}
	}
	if now := f.crrs(); now > crrs {
		f.Errorf("The operator created %d CRRs for evicted pods", now-crrs)
	}
}
