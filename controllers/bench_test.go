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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// bench has the reconcilers with running caches, but without controllers.
type bench struct {
	*fixture
	reconcilers
	events *recordedEvents
	by     denier // of scripts
}

// newBench returns a bench with OpenKruise, unless nil. Nothing delays the statuses of policies.
func newBench(t *testing.T, withKruise *testenv.Kruise, change ...func(*Options)) *bench {
	t.Helper()
	options := testOptions()
	options.StatusPeriod = 0
	for _, c := range change {
		c(&options)
	}
	return newBenchAs(newFixture(t), asOperator(), options, withKruise)
}

// newBenchAs returns a bench with the permissions of the connection.
func newBenchAs(f *fixture, connection *rest.Config, options Options, withKruise *testenv.Kruise) *bench {
	t := f.T
	t.Helper()
	mgr := f.newManagerAs(connection)
	caches, err := newCaches(t.Context(), mgr, options)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := followKruise(mgr, caches.pods, options, &queues{})
	if err != nil {
		t.Fatal(err)
	}
	if withKruise != nil {
		withKruise.Install(t)
	}
	b := &bench{fixture: f, events: &recordedEvents{}}
	reporter := newReporter(b.events, options.Clock, func(resolve.PolicyRef) {})
	b.reconcilers = newReconcilers(mgr.GetClient(), caches, kinds, reporter, options)
	f.start(mgr)
	testenv.Eventually(t, "Kruise is known to be there, or not", func(context.Context) error {
		if there := withKruise != nil; kinds.crrs.Available() != there || kinds.pullJobs.Available() != there {
			return errors.New("not yet")
		}
		return nil
	})
	return b
}

// newTimedBench returns a bench with or without OpenKruise and its clock, which stands still.
func newTimedBench(t *testing.T, withKruise bool) (*bench, *clocktesting.FakePassiveClock) {
	t.Helper()
	return newTimedBenchAs(newFixture(t), asOperator(), withKruise)
}

func newTimedBenchAs(f *fixture, connection *rest.Config, withKruise bool) (*bench, *clocktesting.FakePassiveClock) {
	f.Helper()
	clock, options := clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second)), testOptions()
	options.Clock, options.StatusPeriod = clock, 0
	var k *testenv.Kruise
	if withKruise {
		k = newKruise(f.T)
	}
	return newBenchAs(f, connection, options, k), clock
}

// caughtUp waits until the caches have the current pod, policies and CRRs.
func (b *bench) caughtUp(pod *corev1.Pod) {
	b.Helper()
	b.reload(pod)
	testenv.Eventually(b.T, "the caches have caught up", func(ctx context.Context) error {
		cached, err := b.pods.reader.pods.Pod(keyOf(pod))
		if plan.HasTerminalPhase(pod) && apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if cached.ResourceVersion != pod.ResourceVersion {
			return fmt.Errorf("the pod is at version %s and not %s", cached.ResourceVersion, pod.ResourceVersion)
		}
		var known, live v1alpha1.SidecarTerminationPolicyList
		if err := errors.Join(b.pods.reader.Objects.List(ctx, &known), b.List(ctx, &live)); err != nil {
			return err
		}
		if diff := cmp.Diff(generations(live), generations(known)); diff != "" {
			return fmt.Errorf("generations of policies (-live +known):\n%s", diff)
		}
		if err := b.pods.reader.AddState(ctx, &podinput.Input{Pod: cached}); err != nil {
			return err
		}
		if !b.pods.reader.crrServed() {
			return nil
		}
		attempts, err := b.pods.terminators[v1alpha1.ModeCRR].Observe(ctx, cached)
		if requests := b.crrsOf(pod); err != nil || len(attempts) != len(requests) {
			return fmt.Errorf("%d of %d requests are known: %w", len(attempts), len(requests), err)
		}
		return nil
	})
}

// generations returns the generations of the policies by name.
func generations(policies v1alpha1.SidecarTerminationPolicyList) map[string]int64 {
	all := make(map[string]int64, len(policies.Items))
	for i := range policies.Items {
		policy := &policies.Items[i]
		all[client.ObjectKeyFromObject(policy).String()] = policy.Generation
	}
	return all
}

// reconcile waits for current caches and reconciles the pod. An error ends the test.
func (b *bench) reconcile(pod *corev1.Pod) {
	b.Helper()
	b.caughtUp(pod)
	b.reconcileStale(pod)
}

// reconcileStale reconciles the pod with the caches as they are.
func (b *bench) reconcileStale(pod *corev1.Pod) ctrl.Result {
	b.Helper()
	result, err := b.pods.Reconcile(b.Context(), ctrl.Request{NamespacedName: keyOf(pod)})
	if err != nil {
		b.Fatalf("reconcile: %v", err)
	}
	return result
}

// wrote compares the writes so far.
func (b *bench) wrote(want ...string) {
	b.Helper()
	if diff := cmp.Diff(want, b.writes.in(b.namespace)); diff != "" {
		b.Errorf("writes (-want +got):\n%s", diff)
	}
}

func newKruise(t *testing.T) *testenv.Kruise {
	t.Helper()
	admin, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return testenv.NewKruise(t, admin)
}
