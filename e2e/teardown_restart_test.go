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
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// kubeletOfFargate is the kubelet of a node with few other pods.
const kubeletOfFargate = "kubelet-" + fargateNode

// A restarted kubelet gives a pod no grace period if the pod was deleted after its phase was written, and a full new one otherwise.
func TestTeardownKubeletRestart(t *testing.T) {
	onlyWithAllFaults(t)
	test := harness.New(t)
	test.WholeAtEnd()
	flushes := test.Flushes()
	var ways []teardown
	for _, d := range teardowns {
		if d.native || d.mode == v1alpha1.ModePodPhase || d.mode == v1alpha1.ModeImage { // OpenKruise's daemon does not run on this node
			ways = append(ways, d)
		}
	}
	createTeardownPolicies(test, ways)
	test.Cleanup(func() { releaseHeldPods(test) })

	type restartCase struct {
		deletionCase
		deleted bool
		job     *batchv1.Job
	}
	var all []*restartCase
	for _, d := range ways {
		all = append(all,
			&restartCase{deletionCase: deletionCase{teardown: d}},
			&restartCase{deletionCase: deletionCase{teardown: d, deletion: deletePod}, deleted: true},
			&restartCase{deletionCase: deletionCase{teardown: d, deletion: deletePod, held: true}, deleted: true})
	}
	for i, c := range all {
		name := fmt.Sprintf("job-%d", i)
		c.job = onNode(c.teardown.job(name, flushes.Container(harness.SidecarName, name, 20*time.Second), harness.Main(2)), fargateNode)
		flushes.Mount(&c.job.Spec.Template.Spec, harness.SidecarName)
		c.job.Spec.BackoffLimit = ptr.To[int32](0)
		c.job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](teardownGrace)
		if c.held {
			c.job.Spec.Template.Finalizers = []string{foreignFinalizer}
		}
		test.Create(c.job)
	}
	for _, c := range all {
		pod := waitForTeardown(test, flushes, c.deletionCase, c.job.Name)
		if c.deleted {
			deleteAs(test, c.deletionCase, c.job, pod)
		}
	}
	test.RestoreWith("component", "start", kubeletOfFargate)
	test.LocalCluster("component", "stop", kubeletOfFargate)
	test.LocalCluster("component", "start", kubeletOfFargate)
	for _, c := range all {
		var flush harness.Flush
		test.Eventually("the sidecar to terminate", harness.FinishTimeout, func(context.Context) error {
			flush = flushes.Read(c.job.Name)
			if !flush.Complete && test.Uptime()-flush.Terminated-flush.Last <= longestPause {
				return errors.New("it still flushes")
			}
			return nil
		})
		t.Logf("%s, deleted %t, held %t: flushed for %v, complete %t", c.name, c.deleted, c.held, flush.Last, flush.Complete)
		if wanted := !c.deleted || !c.phaseFirst; flush.Complete != wanted {
			t.Errorf("%s, deleted %t, held %t: flush complete: %t, want %t", c.name, c.deleted, c.held, flush.Complete, wanted)
		}
	}
}
