// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync"

	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/pulljob"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// prePulls knows all that bears on the pull jobs of policies. It writes nothing.
type prePulls struct {
	jobs     *pulljob.Jobs
	options  Options
	refusals refusals
}

// decide looks at the policy's jobs and says what is to be done about them, and how they are.
func (p *prePulls) decide(ctx context.Context, object *policyObject) (prepull.Decision, error) {
	existing, err := p.jobs.Of(ctx, object.GetUID())
	if err != nil {
		return prepull.Decision{}, err
	}
	return prepull.Decide(prepull.Situation{
		Policy:        object.toPrePull(),
		Namespace:     p.options.PrePullNamespace,
		DefaultImage:  p.options.Resolve.Image,
		Images:        p.options.Images,
		ImageDisabled: p.options.ImageDisabled,
		Disabled:      p.options.PrePullDisabled,
		Served:        p.jobs.Availability.Served(),
		Existing:      existing,
		Refusal:       p.refusals.of(object.ref),
		Now:           p.options.Clock.Now(),
	}), nil
}

func (o *policyObject) toPrePull() prepull.Policy {
	return prepull.Policy{Ref: o.ref, UID: o.GetUID(), Spec: o.spec, Deleted: o.GetDeletionTimestamp() != nil}
}

// refusals notes why a job of a policy was last refused, for there is no object that could tell. No decision about jobs
// depends on it: a refused job is tried again.
type refusals struct {
	mu       sync.Mutex
	policies map[resolve.PolicyRef]string
}

func (r *refusals) of(ref resolve.PolicyRef) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policies[ref]
}

// set notes the refusal, or that there is none, and reports whether that is new.
func (r *refusals) set(ref resolve.PolicyRef, refusal string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.policies[ref] == refusal {
		return false
	}
	if r.policies == nil {
		r.policies = map[resolve.PolicyRef]string{}
	}
	r.policies[ref] = refusal
	if refusal == "" {
		delete(r.policies, ref)
	}
	return true
}
