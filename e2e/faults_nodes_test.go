//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

const (
	// awayFor exceeds the deadline of every attempt.
	awayFor = 10 * time.Minute
	// stuckTimeout is for the operator to try every mode in vain.
	stuckTimeout = 6 * time.Minute
)

// The kubelet and OpenKruise's daemon are away while sidecars terminate.
func TestFaultsNodeAway(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
	f := newFaultJobs(t)
	f.inWaves = true
	// Kubernetes would delete the pods after 5 minutes, which a Job counts as failures.
	f.change = func(job *batchv1.Job) {
		job.Spec.Template.Spec.Tolerations = append(job.Spec.Template.Spec.Tolerations, corev1.Toleration{
			Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		})
	}
	components := []string{kubelet, kruiseDaemon}
	for _, component := range components {
		f.RestoreWith("component", "start", component)
	}
	f.plan(jobsOfWave)
	f.disturbEnds("node away for 10 minutes during termination", 1, func() {
		left := time.Now()
		for _, component := range components {
			f.LocalCluster("component", "stop", component)
		}
		f.waitForNode(corev1.ConditionUnknown)
		f.waitForStuck(true, stuckTimeout)
		if f.SeenWithin(time.Until(left.Add(awayFor)), f.anyDeleted) {
			t.Error("A pod was deleted while its node was away")
		}
		for _, component := range components {
			f.LocalCluster("component", "start", component)
		}
		f.waitForNode(corev1.ConditionTrue)
	})
	f.waitForStuck(false, harness.StatusTimeout)
}

// waitForStuck waits until a policy reports stuck pods, or none does.
func (f *faultJobs) waitForStuck(wanted bool, timeout time.Duration) {
	f.Helper()
	f.Eventually(fmt.Sprintf("a policy to report stuck pods to be %t", wanted), timeout, func(ctx context.Context) error {
		policies := &v1alpha1.SidecarTerminationPolicyList{}
		if err := f.Client.List(ctx, policies, client.InNamespace(f.Namespace)); err != nil {
			return err
		}
		stuck := 0
		for i := range policies.Items {
			status := policies.Items[i].Status
			if status.StuckPods > 0 && harness.Condition(status, v1alpha1.ConditionDegraded).Reason == string(v1alpha1.ReasonStuck) {
				stuck++
			}
		}
		if (stuck > 0) != wanted {
			return fmt.Errorf("%d policies do", stuck)
		}
		return nil
	})
}

// anyDeleted returns nil if a pod was deleted.
func (f *faultJobs) anyDeleted(seen harness.Seen) error {
	for _, record := range seen.AllPods() {
		if record.Deleted || record.Pod.DeletionTimestamp != nil {
			return nil
		}
	}
	return errors.New("no pod was deleted")
}

// drainTimeout is for the pods of a wave to be evicted and gone.
const drainTimeout = 3 * time.Minute

// The operator leaves evicted pods alone. Their sidecars end within the grace period, and their Jobs have the right outcome.
func TestFaultsNodeDrained(t *testing.T) {
	testenv.SkipUnlessLong(t)
	harness.Exclusive(t)
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
	f.disturbEnds("node drained during termination", 1, func() {
		f.EventuallySeen("an attempt on each pod", time.Minute, f.allAttempted)
		before := f.operatorWrites()
		kubectl(f.Test, "drain", faultNode, "--pod-selector="+policyLabel, "--timeout="+drainTimeout.String())
		if after := f.operatorWrites(); !slices.Equal(after, before) {
			t.Errorf("The operator has written to evicted pods: %v, before %v", after, before)
		}
		kubectl(f.Test, "uncordon", faultNode)
	})
}

// allAttempted returns an error unless there was an attempt on each pod.
func (f *faultJobs) allAttempted(seen harness.Seen) error {
	for _, record := range seen.AllPods() {
		if len(record.Running()) > 0 && !attempted(seen, record) {
			return fmt.Errorf("pod %s has annotations %v", record.Pod.Name, record.Pod.Annotations)
		}
	}
	return nil
}

// operatorWrites returns the last writes of the operator to each pod, and the CRRs of all pods, sorted.
func (f *faultJobs) operatorWrites() []string {
	f.Helper()
	var writes []string
	f.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.AllPods() {
			for _, crr := range seen.CRRs(record.Pod.Name) {
				writes = append(writes, crr.Name)
			}
			for _, entry := range writesOfOperator(record.Pod) {
				writes = append(writes, fmt.Sprintf("%s %s at %s", record.Pod.Name, entry.Subresource, entry.Time))
			}
		}
	})
	slices.Sort(writes)
	return writes
}
