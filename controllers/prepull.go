// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/prepull/pulljob"
)

// prePulls decides about the pull jobs of policies. It writes nothing.
type prePulls struct {
	jobs    *pulljob.Jobs
	options Options
	states  *policyStates
}

// decide reads the policy's jobs and returns what to do about them and how they are.
func (p *prePulls) decide(ctx context.Context, object *policyObject) (prepull.Decision, error) {
	existing, err := p.jobs.Of(ctx, object.GetUID())
	if err != nil {
		return prepull.Decision{}, err
	}
	return prepull.Decide(prepull.Situation{
		Policy:         object.toPrePull(),
		Namespace:      p.options.PrePullNamespace,
		DefaultImage:   p.options.Resolve.Image,
		Images:         p.options.Capabilities.Images,
		Enabled:        p.options.Capabilities.EnabledModes,
		NamespacesOnly: p.options.Capabilities.NamespacesOnly,
		Served:         p.jobs.Availability.Available(),
		Existing:       existing,
		Denial:         p.states.get(object.ref).pullDenial,
	}), nil
}

func (o *policyObject) toPrePull() prepull.Policy {
	return prepull.Policy{Ref: o.ref, UID: o.GetUID(), Spec: o.spec, Deleted: o.GetDeletionTimestamp() != nil}
}
