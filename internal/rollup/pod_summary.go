// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"cmp"
	"fmt"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// PodObservation is one unfinished pod that the policy selects and in which it gives a container a role.
type PodObservation struct {
	Namespace, Pod string
	// Applies is true when the policy declares at least one sidecar of the pod.
	Applies bool
	// Decision is the decision for the pod; for a DryRun policy the hypothetical one.
	Decision plan.Decision
	// Overrides are the overrides of this policy by others.
	Overrides []resolve.Override
	// Substitutions are those of the sidecars that the policy declares.
	Substitutions []plan.Substitution
	// NoTemplate is true if the policy includes injected containers, and the operator may not read the pod's Job.
	NoTemplate bool
}

func (o PodObservation) name() string { return o.Namespace + "/" + o.Pod }

// PodSummary sums up the observations of a policy's pods. The order of additions does not matter, and its size does not
// depend on their number. The zero value is the summary of no pods.
type PodSummary struct {
	matched, waiting, terminating  int32
	stuck, overridden, substituted podCount
	noTemplate                     podCount
}

// Add adds one pod, which must not have been added before.
func (s *PodSummary) Add(o PodObservation) {
	s.matched++
	if o.Applies {
		switch o.Decision.Stage {
		case plan.StageWaiting:
			s.waiting++
		case plan.StageTerminating:
			s.terminating++
		case plan.StageStuck:
			s.stuck.add(o)
		case plan.StageIgnored, plan.StageTerminated:
		}
	}
	if o.NoTemplate {
		s.noTemplate.add(o)
	}
	if len(o.Overrides) > 0 {
		s.overridden.add(o)
	}
	if len(o.Substitutions) > 0 {
		s.substituted.add(o)
	}
}

// podCount counts the pods with a property, and keeps the first one by namespace and name as an example.
type podCount struct {
	pods    int32
	example PodObservation
}

func (c *podCount) add(o PodObservation) {
	if c.pods++; c.pods == 1 || cmp.Or(cmp.Compare(o.Namespace, c.example.Namespace), cmp.Compare(o.Pod, c.example.Pod)) < 0 {
		c.example = o
	}
}

// withOthers adds the number of other pods to a message about the example.
func (c *podCount) withOthers(message string) string {
	if c.pods == 1 {
		return message
	}
	return fmt.Sprintf("%s, and %d more %s", message, c.pods-1, plural(c.pods-1, "pod", "pods"))
}
