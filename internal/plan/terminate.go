// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// podPlan is one decision over all due sidecars of a pod.
type podPlan struct {
	*situation
	sidecars []sidecarPlan
}

// sidecarPlan is what comes next for one sidecar: a mode to use, an attempt or a start to wait for, or nothing (stuck).
// A stuck sidecar has a mode only when its CRR is repeated.
type sidecarPlan struct {
	sidecar resolve.Sidecar
	history
	// mode is the mode to use now, or empty.
	mode v1alpha1.Mode
	// phaseUsable means that mode PodPhase could be used as well.
	phaseUsable bool
	// starting means that the kubelet is creating the container.
	starting bool
	// stuck is why no usable mode is left, or empty. A CRR of such a sidecar may be repeated at retryAt, if repeats is true.
	stuck        v1alpha1.Reason
	message      string
	repeats      bool
	substitution *Substitution
}

// terminate is the last rule: the mains are done and at least one sidecar is due.
func terminate(s *situation) *Decision {
	p := podPlan{situation: s}
	for _, sidecar := range s.due {
		p.sidecars = append(p.sidecars, s.planSidecar(sidecar))
	}
	return p.decide()
}

// planSidecar picks what comes next for one sidecar.
func (s *situation) planSidecar(sidecar resolve.Sidecar) sidecarPlan {
	sp := sidecarPlan{sidecar: sidecar, history: s.history(sidecar)}
	if s.retry {
		sp.failed = nil
	}
	chain := s.fallbackChain(sidecar)
	next := firstMode(chain, sp.permits)
	exhausted := next == "" && len(sp.failures) > 0
	if exhausted {
		sp.stuck, sp.message = v1alpha1.ReasonStuck, allFailed(chain, sp.failures)
	}

	switch {
	case len(sp.live) > 0:
	case isStarting(statusOf(s.Pod, sidecar.Container)):
		// The usable modes depend on whether the container starts.
		sp.starting = true
		return sp
	case next != "":
		sp.mode = next
		sp.phaseUsable = slices.ContainsFunc(chain, func(o ModeOption) bool { return o.Mode == v1alpha1.ModePodPhase && sp.permits(o) })
	case exhausted && !sp.cameBack && slices.ContainsFunc(chain, func(o ModeOption) bool { return o.Usable() && o.Mode == v1alpha1.ModeCRR }):
		// Repeating helps for a CRR only: the daemon may be back.
		if sp.repeats = true; !s.now.Before(sp.retryAt) {
			sp.mode = v1alpha1.ModeCRR
		}
	case !exhausted:
		sp.stuck, sp.message = WhyUnusable(sidecar, chain)
	}
	sp.substitution = s.substitution(sidecar, chain, sp.history)
	return sp
}

// allFailed describes a fallback chain whose usable modes have all failed, and names the modes whose writes are denied.
func allFailed(chain []ModeOption, failures []Failure) string {
	message := "every usable mode has failed: " + failures[len(failures)-1].Message
	for _, o := range chain {
		if o.Reason == v1alpha1.ReasonWriteRefused {
			message += fmt.Sprintf("; %s: %s", o.Mode, o.Message)
		}
	}
	return message
}

// substitution reports a declared mode that cannot be used as declared, or nil. A usable mode that failed is a Failure
// and no Substitution.
func (s *situation) substitution(sidecar resolve.Sidecar, chain []ModeOption, history history) *Substitution {
	if sidecar.Mode == v1alpha1.ModeAuto || history.failed[sidecar.Mode] {
		return nil
	}
	declared := chain[0]
	if declared.Usable() {
		return nil
	}
	return &Substitution{
		Container: sidecar.Container, Wanted: sidecar.Mode, Used: firstMode(chain, ModeOption.Usable), Reason: declared.Reason,
		Message: fmt.Sprintf("mode %s cannot be used for container %s: %s", sidecar.Mode, sidecar.Container, declared.Message),
	}
}

// decide combines the plans of the sidecars: direct actions first, the phase last.
func (p podPlan) decide() *Decision {
	decision := p.summarize()
	direct, byPhase := p.split()
	decision.Writes = append(decision.Writes, p.imageAction(direct)...)
	decision.writeUnless(p.waitBeforeCRR(direct), p.crrAction(direct)...)
	if len(byPhase) > 0 {
		decision.writeUnless(p.waitBeforePhase(direct), p.phaseAction(byPhase))
	}
	p.explainWrites(decision)
	p.markStopped(decision)
	p.markSwapped(decision)
	return decision
}

// writeUnless adds the writes to the decision, or the wait of some of the sidecars.
func (d *Decision) writeUnless(wait *Decision, writes ...Write) {
	switch {
	case wait == nil:
		d.Writes = append(d.Writes, writes...)
	case len(d.Writes) == 0 && d.Stage != StageStuck:
		d.Reason, d.Message = wait.Reason, wait.Message
	}
}

// split separates the sidecars with a mode by whether the pod's phase ends them.
func (p podPlan) split() (direct, byPhase []sidecarPlan) {
	first := int32(math.MaxInt32) // the lowest terminationOrder of a sidecar that the phase ends
	for _, sp := range ofMode(p.sidecars, v1alpha1.ModePodPhase) {
		first = min(first, sp.sidecar.Order)
	}
	for _, sp := range p.sidecars {
		switch {
		case sp.mode == "":
		case sp.mode == v1alpha1.ModePodPhase, sp.sidecar.Order > first && sp.phaseUsable:
			// What waits for a sidecar that the phase ends must not end before it.
			byPhase = append(byPhase, sp)
		default:
			direct = append(direct, sp)
		}
	}
	return direct, byPhase
}

const beingCreated = "the kubelet is creating container %s"

// summarize turns the plans of the sidecars into a decision without actions.
func (p podPlan) summarize() *Decision {
	d := newDecision(StageTerminating, v1alpha1.ReasonAttemptInProgress, "waiting for sidecars to end: %s", strings.Join(containers(p.open), ", "))
	d.RequeueAfter = p.untilNextDue()
	for _, sp := range p.sidecars {
		d.Failures = append(d.Failures, sp.failures...)
		if sp.substitution != nil {
			d.Substitutions = append(d.Substitutions, *sp.substitution)
		}
		switch {
		case sp.stuck != "" && d.Stage != StageStuck:
			d.Stage, d.Reason, d.Message = StageStuck, sp.stuck, sp.message
		case sp.starting && d.Stage != StageStuck:
			d.Reason, d.Message = v1alpha1.ReasonSidecarStarting, fmt.Sprintf(beingCreated, sp.sidecar.Container)
		}
		switch {
		case len(sp.live) > 0:
			d.RequeueAfter = Soonest(d.RequeueAfter, sp.wakeAt.Sub(p.now))
		case sp.mode == "" && sp.repeats:
			d.RequeueAfter = Soonest(d.RequeueAfter, sp.retryAt.Sub(p.now))
		}
	}
	return d
}

// timeout is the longest time that one of the sidecars gets when serial containers stop one after the other.
func (p podPlan) timeout(plans []sidecarPlan, serial int) time.Duration {
	var longest time.Duration
	for _, sp := range plans {
		longest = max(longest, sp.sidecar.Timeout)
	}
	return GracePeriod(p.Pod)*time.Duration(serial) + longest
}

// explainWrites gives a decision with writes its reason and message.
func (p podPlan) explainWrites(d *Decision) {
	if len(d.Writes) == 0 {
		return
	}
	d.Restarts = p.restartsBy(d.Writes)
	if d.Stage == StageStuck {
		return
	}
	d.Reason = v1alpha1.ReasonTerminating
	if len(d.Failures)+len(d.Substitutions) > 0 {
		d.Reason = v1alpha1.ReasonFallback
	}
	d.Message = "main containers are done; ending " + DescribeWrites(d.Writes)
}

// restartsBy returns how many restarts may count towards the Job's backoffLimit: each new image restarts its container, and the kubelet restarts what
// OpenKruise has stopped until the last sidecar has ended.
func (s *situation) restartsBy(writes []Write) int {
	if s.Pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return 0
	}
	ends := map[v1alpha1.Mode]int{}
	for _, write := range writes {
		ends[write.Mode] += len(write.Containers)
	}
	swapped, stopped := ends[v1alpha1.ModeImage], ends[v1alpha1.ModeCRR]
	return Restarts(swapped, stopped, len(s.open)-swapped-stopped)
}

// Restarts returns how many restarts may count towards the backoffLimit of a Job with restartPolicy OnFailure if so many sidecars get a new image,
// OpenKruise stops so many, and others run on.
func Restarts(swapped, stopped, others int) int {
	if stopped > 0 && swapped+others == 0 {
		stopped-- // the pod has finished when the last one is stopped
	}
	return swapped + stopped
}

// DescribeWrites names the containers that the actions end and the mode of each.
func DescribeWrites(actions []Write) string {
	var parts []string
	for _, action := range actions {
		parts = append(parts, fmt.Sprintf("%s by mode %s", strings.Join(action.Containers, ", "), action.Mode))
	}
	return strings.Join(parts, " and ")
}

func ofMode(plans []sidecarPlan, mode v1alpha1.Mode) []sidecarPlan {
	var result []sidecarPlan
	for _, sp := range plans {
		if sp.mode == mode {
			result = append(result, sp)
		}
	}
	return result
}

// containersOf returns the sorted names of the plans' containers.
func containersOf(plans []sidecarPlan) []string {
	result := make([]string, 0, len(plans))
	for _, sp := range plans {
		result = append(result, sp.sidecar.Container)
	}
	slices.Sort(result)
	return result
}
