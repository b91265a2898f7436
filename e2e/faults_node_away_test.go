//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	// awayFor exceeds the deadline of every attempt, and the time after which the operator removes the phase guard.
	awayFor = 10 * time.Minute
	// stuckTimeout is for the operator to try every mode in vain.
	stuckTimeout = 6 * time.Minute
)

// The kubelet and OpenKruise's daemon are away while sidecars terminate, and while main containers end unseen.
func TestFaultsNodeAway(t *testing.T) {
	onlyWithAllFaults(t)
	f := newFaultJobs(t)
	f.inWaves, f.change = true, tolerateUnreachable
	running := newGatedJobs(t, tolerateUnreachable)
	components := []string{kubelet, kruiseDaemon}
	for _, component := range components {
		f.RestoreWith("component", "start", component)
	}
	f.plan(jobsOfWave)
	f.disturbEnds("node away for 10 minutes during termination", exactly(1), func() {
		left := time.Now()
		for _, component := range components {
			f.LocalCluster("component", "stop", component)
		}
		f.waitForNode(corev1.ConditionUnknown)
		running.open()
		f.waitForStuck(true, stuckTimeout)
		if f.SeenWithin(time.Until(left.Add(awayFor)), f.anyDeleted) {
			t.Error("A pod was deleted while its node was away")
		}
		for _, component := range components {
			f.LocalCluster("component", "start", component)
		}
		f.waitForNode(corev1.ConditionTrue)
	})
	running.requireCompleted()
	f.waitForStuck(false, harness.StatusTimeout)
}

// tolerateUnreachable keeps Kubernetes from deleting the pods after 5 minutes, which a Job counts as failures.
func tolerateUnreachable(job *batchv1.Job) {
	job.Spec.Template.Spec.Tolerations = append(job.Spec.Template.Spec.Tolerations, corev1.Toleration{
		Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
	})
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
