// SPDX-License-Identifier: Apache-2.0

package rollup

import (
	"cmp"
	"fmt"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Observation is one live pod that the policy selects and of which it names a container.
type Observation struct {
	Namespace, Pod string
	// Governs is true when the policy decides over at least one container of the pod.
	Governs bool
	// Decision is what was decided for the pod; for a DryRun policy what would be.
	Decision plan.Decision
	// Losses are the containers that the policy names and another policy decides over.
	Losses []resolve.Loss
	// Substitutions are those of the containers that the policy governs.
	Substitutions []plan.Substitution
}

func (o Observation) name() string { return o.Namespace + "/" + o.Pod }

// Census is what the observations of a policy's pods add up to, in whatever order they were added. It takes the same room
// for one pod and for very many. The zero value has seen none.
type Census struct {
	matched, waiting, terminating  int32
	stuck, overridden, substituted finding
}

// CensusOf returns what the observations add up to.
func CensusOf(observations ...Observation) Census {
	var census Census
	for _, o := range observations {
		census.Add(o)
	}
	return census
}

// Add adds one pod, which must not have been added before.
func (c *Census) Add(o Observation) {
	c.matched++
	if o.Governs {
		switch o.Decision.Stage {
		case plan.StageWaiting:
			c.waiting++
		case plan.StageTerminating:
			c.terminating++
		case plan.StageStuck:
			c.stuck.add(o)
		}
	}
	if len(o.Losses) > 0 {
		c.overridden.add(o)
	}
	if len(o.Substitutions) > 0 {
		c.substituted.add(o)
	}
}

// finding is something that holds for some pods, and the first of them by namespace and name.
type finding struct {
	pods    int32
	example Observation
}

func (f *finding) add(o Observation) {
	if f.pods++; f.pods == 1 || cmp.Or(cmp.Compare(o.Namespace, f.example.Namespace), cmp.Compare(o.Pod, f.example.Pod)) < 0 {
		f.example = o
	}
}

// withOthers adds to a message about the example how many more there are.
func (f *finding) withOthers(message string) string {
	if f.pods == 1 {
		return message
	}
	return fmt.Sprintf("%s, and %d more %s", message, f.pods-1, plural(f.pods-1, "pod", "pods"))
}
