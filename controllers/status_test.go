// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

// summarise waits for a current cache and reconciles the policy.
func (b *bench) summarise(policy *v1alpha1.SidecarTerminationPolicy) time.Duration {
	b.Helper()
	b.knows(policy)
	return b.summariseStale(policy)
}

// knows waits until the cache has the current policy.
func (b *bench) knows(policy *v1alpha1.SidecarTerminationPolicy) {
	b.Helper()
	b.reload(policy)
	testenv.Eventually(b.T, "the cache has the policy", func(ctx context.Context) error {
		cached := &v1alpha1.SidecarTerminationPolicy{}
		if err := b.policies.client.Get(ctx, client.ObjectKeyFromObject(policy), cached); err != nil {
			return err
		}
		if cached.ResourceVersion != policy.ResourceVersion {
			return fmt.Errorf("it is at version %s and not %s", cached.ResourceVersion, policy.ResourceVersion)
		}
		return nil
	})
}

// summariseStale reconciles the policy with the cache as it is.
func (b *bench) summariseStale(policy *v1alpha1.SidecarTerminationPolicy) time.Duration {
	b.Helper()
	result, err := b.policies.Reconcile(b.Context(), resolve.RefOf(policy))
	if err != nil {
		b.Fatalf("reconcile: %v", err)
	}
	return result.RequeueAfter
}

func TestUnchangedStatusIsNotWritten(t *testing.T) {
	b := newBench(t, nil)
	policy := b.newPolicy("mesh")
	b.caughtUp(b.newPod("job-1"))
	for range 3 {
		if again := b.summarise(policy); again != 0 {
			t.Errorf("requeued after %s", again)
		}
	}
	b.wrote("PUT sidecarterminationpolicies/status")
}

func TestStatusWriteWaitsForPeriod(t *testing.T) {
	b := newBench(t, nil, func(o *Options) { o.StatusPeriod = time.Hour })
	policy := b.newPolicy("mesh")
	b.summarise(policy)
	b.caughtUp(b.newPod("job-1"))
	if again := b.summarise(policy); again <= 0 || again > time.Hour {
		t.Errorf("requeued after %s", again)
	}
	b.wrote("PUT sidecarterminationpolicies/status")
}

// outdated is a client that reads an old version of a policy.
type outdated struct {
	client.Client
	policy *v1alpha1.SidecarTerminationPolicy
}

func (o outdated) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	o.policy.DeepCopyInto(object.(*v1alpha1.SidecarTerminationPolicy))
	return nil
}

func TestTotalsIgnoreStaleStatus(t *testing.T) {
	b := newBench(t, nil)
	policy := b.newPolicy("mesh")
	b.policies.reporter.add(resolve.RefOf(policy), rollup.Tally{Terminated: 1})
	current := b.policies.client
	b.policies.client = outdated{current, policy.DeepCopy()}
	b.summariseStale(policy)
	b.policies.reporter.add(resolve.RefOf(policy), rollup.Tally{Terminated: 1})
	if again := b.summariseStale(policy); again != conflictRetry {
		t.Errorf("requeued after %s, want %s", again, conflictRetry)
	}
	b.policies.client = current
	b.summarise(policy)
	if b.reload(policy); policy.Status.TerminatedPods != 2 {
		t.Errorf("counted %d, want 2", policy.Status.TerminatedPods)
	}
}

func TestDeletedPolicyIsForgotten(t *testing.T) {
	b := newBench(t, nil)
	policy := b.newPolicy("mesh")
	b.summarise(policy)
	b.policies.reporter.add(resolve.RefOf(policy), rollup.Tally{Terminated: 1})
	b.remove(policy)
	testenv.Eventually(t, "it is forgotten", func(ctx context.Context) error {
		if _, err := b.policies.Reconcile(ctx, resolve.RefOf(policy)); err != nil {
			return err
		}
		if len(b.policies.states.policies)+len(b.policies.reporter.tallies) > 0 {
			return fmt.Errorf("held: %v and %v", b.policies.states.policies, b.policies.reporter.tallies)
		}
		return nil
	})
}
