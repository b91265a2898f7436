// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

// conversionInterval is the interval of reads of the component native. It is polled, because the cluster may start to serve its kind
// when Kubernetes is upgraded, and a watch with permission for single objects would take one connection for each of them.
const conversionInterval = 30 * time.Second

// conversionRetry is the delay after a failed read.
const conversionRetry = time.Second

// conversion follows whether the cluster converts sidecars to native ones. Decisions about pods do not depend on it. It is a Runnable.
type conversion struct {
	live     client.Reader
	interval time.Duration
	// onChange is called, never concurrently, after the availability has changed.
	onChange func(ctx context.Context)

	state atomic.Pointer[conversionState] // nil while unknown
	known chan struct{}                   // closed after the first successful read
}

// conversionState says why the cluster does not convert on request of policies of each kind; empty if it does.
type conversionState struct{ namespaced, cluster string }

func newConversion(live client.Reader, interval time.Duration, onChange func(ctx context.Context)) *conversion {
	return &conversion{live: live, interval: interval, onChange: onChange, known: make(chan struct{})}
}

// conversionNotRead returns the state of an operator that may not read admission policies. It must not be started.
func conversionNotRead() *conversion {
	c := newConversion(nil, 0, nil)
	component := native.Component{NotRead: true}
	c.state.Store(&conversionState{component.Unavailable(resolve.KindNamespaced), component.Unavailable(resolve.KindCluster)})
	close(c.known)
	return c
}

// of returns the input of a policy's status about its conversion, or nil if the policy asks for none, or while the availability is
// unknown.
func (c *conversion) of(policy *policyObject) *rollup.Conversion {
	state := c.state.Load()
	if state == nil || !native.Requests(policy.spec) {
		return nil
	}
	unavailable := state.namespaced
	if policy.ref.Kind == resolve.KindCluster {
		unavailable = state.cluster
	}
	return &rollup.Conversion{Unavailable: unavailable, Labeled: native.Labeled(policy.GetLabels())}
}

// NeedLeaderElection is false: every replica follows the component, so that a new leader need not wait.
func (c *conversion) NeedLeaderElection() bool { return false }

// Start follows the component until the context ends.
func (c *conversion) Start(ctx context.Context) error {
	for {
		wait := c.interval
		if err := c.update(ctx); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Cannot read the component native, retrying", "cause", err.Error())
			wait = min(wait, conversionRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// update reads the component. After an error the last state remains.
func (c *conversion) update(ctx context.Context) error {
	component, err := observe.NativeComponent(ctx, c.live)
	if err != nil {
		return err
	}
	state := &conversionState{component.Unavailable(resolve.KindNamespaced), component.Unavailable(resolve.KindCluster)}
	before := c.state.Swap(state)
	if *state == (conversionState{}) {
		conversionAvailable.Set(1)
	} else {
		conversionAvailable.Set(0)
	}
	if before == nil {
		close(c.known)
	}
	if before == nil || *before != *state {
		c.onChange(ctx)
	}
	return nil
}

// WaitUntilKnown waits until the component was read once, and returns false when the context ends first.
func (c *conversion) WaitUntilKnown(ctx context.Context) bool {
	select {
	case <-c.known:
		return true
	case <-ctx.Done():
		return false
	}
}
