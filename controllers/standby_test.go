// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/podtest"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// A leader that stops without releasing its lease is, to everybody else, one that was killed.
func TestStandbyActsWhileKilledLeaderHoldsLease(t *testing.T) {
	f := newFixture(t)
	newKruise(t).Install(t)
	elect := func(o *manager.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, settings.LeaseName, systemNamespace
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = ptr.To(15*time.Second), ptr.To(10*time.Second), ptr.To(500*time.Millisecond)
	}
	holder := func() string {
		lease := &coordinationv1.Lease{}
		if err := f.Get(t.Context(), types.NamespacedName{Namespace: systemNamespace, Name: settings.LeaseName}, lease); err != nil {
			t.Fatal(err)
		}
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}
	options := testOptions()
	options.StandbyDelay = time.Second
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect))
	kill := f.startOperator(options, elect)
	f.untilCounts(policy, counts{})
	f.startOperator(options, elect)
	const each = 5
	var pods []*corev1.Pod
	end := func(name string) {
		for i := range each {
			pods = append(pods, f.newPod(fmt.Sprintf("%s-%d", name, i), podtest.MainDone))
		}
		f.untilCRRs(len(pods))
	}
	end("leader")
	f.untilCounts(policy, counts{matched: each, terminating: each})
	for _, pod := range pods {
		f.untilEvent(pod)
	}
	leader := holder()
	kill()
	end("standby")
	if now := holder(); now != leader {
		t.Fatalf("%s holds the lease, not %s: the standby has become the leader before it acted", now, leader)
	}
	// The standby writes no status before it leads. Then it counts what it has done before.
	f.untilCounts(policy, counts{matched: 2 * each, terminating: 2 * each})
	if now := holder(); now == leader {
		t.Errorf("the status was written while %s held the lease", leader)
	}
	for _, pod := range pods {
		f.untilEvent(pod)
		f.change(pod, podtest.SidecarDone, podtest.Succeeded)
	}
	f.untilCounts(policy, counts{terminated: 2 * each})
	f.untilCRRs(len(pods))
	for _, pod := range pods {
		testenv.Eventually(t, pod.Name+": one event", func(ctx context.Context) error {
			got, err := f.eventsOn(ctx, pod)
			if diff := cmp.Diff([]string{"Normal Terminating SidecarTerminationPolicy/mesh"}, got); diff != "" {
				return errors.Join(err, errors.New("events (-want +got):\n"+diff))
			}
			return nil
		})
	}
	f.nothingWentWrong()
}
