// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// choice is what is next for one sidecar. Exactly one of mode, live, wait and stuck says so.
type choice struct {
	target resolve.Target
	// mode is to be used now.
	mode v1alpha1.Mode
	// live is an attempt to wait for, until it may be judged anew. requested means that a request is under way, and
	// swapped that a swapped image is: what else is live is a phase that was written.
	live      bool
	wakeAt    time.Time
	requested bool
	swapped   bool
	// starting means that the kubelet is creating the container.
	starting bool
	// stuck means that nothing usable is left, for now or for good.
	stuck   v1alpha1.Reason
	retryAt time.Time

	message      string
	failures     []Failure
	substitution *Substitution
}

// terminate is the last rule: the mains are done and at least one sidecar is due.
func terminate(s *situation) *Decision {
	round := round{situation: s}
	for _, target := range s.due {
		round.choices = append(round.choices, s.choose(target))
	}
	return round.decide()
}

// choose picks what is next for one target.
func (s *situation) choose(target resolve.Target) choice {
	history := s.history(target)
	rungs := s.ladder(target)
	c := choice{
		target: target, failures: history.failures,
		requested: history.has(v1alpha1.ModeCRR), swapped: history.has(v1alpha1.ModeImage),
	}

	left := nextRung(rungs, history)
	exhausted := left < 0 && len(history.failures) > 0
	if exhausted {
		c.stuck, c.message = v1alpha1.ReasonStuck, allFailed(rungs, history.failures)
	}

	switch {
	case s.phaseCameBack(history, target):
		c.mode = v1alpha1.ModePodPhase
	case len(history.live) > 0:
		c.live, c.wakeAt = true, history.wakeAt
	case isStarting(statusOf(s.Pod, target.Container)):
		// What can be used is known once the container has started or has not.
		c.starting = true
		return c
	case left >= 0:
		c.mode = rungs[left].mode
	case exhausted && !history.cameBack && slices.ContainsFunc(rungs, func(r rung) bool { return r.usable() && r.mode == v1alpha1.ModeCRR }):
		// Only a request can be repeated to any effect: its daemon may be back.
		if c.retryAt = history.retryAt; !s.now.Before(c.retryAt) {
			c.mode = v1alpha1.ModeCRR
		}
	case !exhausted:
		c.stuck, c.message = unusable(target, rungs)
	}
	c.substitution = s.substitution(target, rungs, history)
	return c
}

// nextRung returns the index of the first rung that is usable and has not failed, or -1.
func nextRung(rungs []rung, history history) int {
	return slices.IndexFunc(rungs, func(r rung) bool { return r.usable() && !history.failed[r.mode] })
}

// allFailed describes a ladder of which every usable rung has failed, and names the modes whose writes are refused.
func allFailed(rungs []rung, failures []Failure) string {
	message := "every usable mode has failed: " + failures[len(failures)-1].Message
	for _, r := range rungs {
		if r.reason == v1alpha1.ReasonWriteRefused {
			message += fmt.Sprintf("; %s: %s", r.mode, r.message)
		}
	}
	return message
}

// substitution reports a declared mode that cannot be used as declared; failures of usable modes are no substitution.
func (s *situation) substitution(target resolve.Target, rungs []rung, history history) *Substitution {
	if target.Mode == v1alpha1.ModeAuto || history.failed[target.Mode] {
		return nil
	}
	why := rungs[slices.IndexFunc(rungs, func(r rung) bool { return r.mode == target.Mode })].obstacle
	if why.reason == "" && rungs[0].mode != target.Mode {
		why = beforeRequest(target, s.forbiddenPhase(target))
	}
	if why.reason == "" {
		return nil
	}
	var used v1alpha1.Mode
	if i := slices.IndexFunc(rungs, rung.usable); i >= 0 {
		used = rungs[i].mode
	}
	return &Substitution{
		Container: target.Container, Wanted: target.Mode, Used: used, Reason: why.reason,
		Message: fmt.Sprintf("mode %s cannot be used for container %s: %s", target.Mode, target.Container, why.message),
	}
}

// round is one decision over all due sidecars of a pod.
type round struct {
	*situation
	choices []choice
}

func (r round) decide() *Decision {
	decision := r.summarise()
	direct, viaPhase := r.split()
	decision.Actions = append(decision.Actions, r.imageAction(direct)...)
	if wait := r.waitBeforeRequest(direct); wait != nil {
		decision.postpone(wait)
	} else {
		decision.Actions = append(decision.Actions, r.requestAction(direct)...)
	}
	if len(viaPhase) > 0 {
		if wait := r.waitBeforePhase(direct); wait != nil {
			decision.postpone(wait)
		} else {
			decision.Actions = append(decision.Actions, r.phaseAction(viaPhase))
		}
	}
	r.announce(decision)
	return decision
}

// postpone adds the wait of a part of the sidecars to the decision.
func (d *Decision) postpone(wait *Decision) {
	d.RequeueAfter = Soonest(d.RequeueAfter, wait.RequeueAfter)
	if len(d.Actions) == 0 && d.Stage != StageStuck {
		d.Reason, d.Message = wait.Reason, wait.Message
	}
}

// split tells the chosen sidecars apart by whether the phase has to be written to end them.
func (r round) split() (direct, viaPhase []choice) {
	for _, c := range r.choices {
		switch {
		case c.mode == "":
		case c.mode == v1alpha1.ModePodPhase, c.mode == v1alpha1.ModeCRR && r.phaseGoesFirst(c.target):
			viaPhase = append(viaPhase, c)
		default:
			direct = append(direct, c)
		}
	}
	return direct, viaPhase
}

// phaseGoesFirst reports whether the phase is to be written before a request for the target.
func (s *situation) phaseGoesFirst(target resolve.Target) bool {
	return s.requestsNeedPhase(target) && !HasTerminalPhase(s.Pod) && s.writtenPhase() == nil
}

// requestsNeedPhase reports whether a request for the target is to find the phase written, so that the exit code of a
// sidecar that is to be ignored does not count. Beside a failed main container the phase does not help: a Job's
// podFailurePolicy still sees that exit code.
func (s *situation) requestsNeedPhase(target resolve.Target) bool {
	return s.phaseHides(target) && s.forbiddenPhase(target) == (obstacle{})
}

// phaseHides reports whether a written phase keeps the exit code of the target from counting.
func (s *situation) phaseHides(target resolve.Target) bool {
	return !respected(target) && s.outcome() == corev1.PodSucceeded
}

// waitBeforeRequest returns why Kruise cannot be asked yet, or nil. It works on one request of a pod at a time, so that
// a second one would use up its deadline behind the first. A kubelet that does not know of the written phase would have
// the exit code of a sidecar that is to be ignored count.
func (r round) waitBeforeRequest(direct []choice) *Decision {
	waiting := ofMode(direct, v1alpha1.ModeCRR)
	if len(waiting) == 0 {
		return nil
	}
	if underWay := slices.IndexFunc(r.choices, func(c choice) bool { return c.requested }); underWay >= 0 {
		return &Decision{Reason: v1alpha1.ReasonAttemptInProgress, Message: fmt.Sprintf("container %s is ended first, and then: %s",
			r.choices[underWay].target.Container, strings.Join(names(waiting), ", "))}
	}
	for _, c := range waiting {
		if wait := r.untilPhaseKnown(c.target); wait > 0 {
			return &Decision{Reason: v1alpha1.ReasonAttemptInProgress, RequeueAfter: wait, Message: fmt.Sprintf(
				"the kubelet of node %s does not know of the pod's phase yet; container %s is stopped by a request after that", r.Pod.Spec.NodeName, c.target.Container)}
		}
	}
	return nil
}

// untilPhaseKnown returns how much longer a request for the target is to wait for the kubelet to learn of the written
// phase, zero or less when it need not.
func (s *situation) untilPhaseKnown(target resolve.Target) time.Duration {
	written := s.writtenPhase()
	if written == nil || !HasTerminalPhase(s.Pod) || !s.phaseHides(target) || kubeletKnowsPhase(s.Pod) {
		return 0
	}
	return written.Started.Add(maxPhaseDelay).Sub(s.now)
}

// waitBeforePhase returns why the phase cannot be written yet, or nil. Writing it ends every container of the pod, so
// each other sidecar must have ended or have been given up on, and a kubelet that has a status write in flight would
// put the old phase back for a moment.
func (r round) waitBeforePhase(direct []choice) *Decision {
	if len(direct) > 0 {
		return &Decision{Reason: v1alpha1.ReasonAttemptInProgress,
			Message: "other sidecars are ended first: " + strings.Join(names(direct), ", ")}
	}
	if wait := r.untilNextDue(); wait > 0 {
		return &Decision{Reason: v1alpha1.ReasonDraining, Message: "another sidecar drains, and writing the phase would end it", RequeueAfter: wait}
	}
	for _, c := range r.choices {
		name := c.target.Container
		switch {
		case c.starting:
			return &Decision{Reason: v1alpha1.ReasonSidecarStarting, Message: fmt.Sprintf("container %s is being created", name)}
		case c.live && (c.requested || c.swapped):
			return &Decision{Reason: v1alpha1.ReasonAttemptInProgress, Message: fmt.Sprintf("container %s is ended first", name)}
		case respected(c.target):
			return &Decision{Reason: v1alpha1.ReasonExitCodesRespected,
				Message: fmt.Sprintf("container %s has not ended, and its exit code is to be respected", name)}
		}
	}
	if wait := earlier(r.QuietSince.Add(r.SettlePeriod), r.lastEvent().Add(maxSettlePeriods*r.SettlePeriod)).Sub(r.now); wait > 0 {
		return &Decision{Reason: v1alpha1.ReasonSettling, Message: "the pod's status changed a moment ago; its phase is written once it is quiet", RequeueAfter: wait}
	}
	return nil
}

// summarise turns the choices into a decision without actions.
func (r round) summarise() *Decision {
	d := &Decision{
		Stage: StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress,
		Message:      "waiting for sidecars to end: " + strings.Join(containers(r.open), ", "),
		RequeueAfter: r.untilNextDue(),
	}
	for _, c := range r.choices {
		d.Failures = append(d.Failures, c.failures...)
		if c.substitution != nil {
			d.Substitutions = append(d.Substitutions, *c.substitution)
		}
		switch {
		case c.stuck != "" && d.Stage != StageStuck:
			d.Stage, d.Reason, d.Message = StageStuck, c.stuck, c.message
		case c.starting && d.Stage != StageStuck:
			d.Reason, d.Message = v1alpha1.ReasonSidecarStarting, fmt.Sprintf("container %s is being created", c.target.Container)
		}
		switch {
		case c.live:
			d.RequeueAfter = Soonest(d.RequeueAfter, c.wakeAt.Sub(r.now))
		case c.mode == "" && !c.retryAt.IsZero():
			d.RequeueAfter = Soonest(d.RequeueAfter, c.retryAt.Sub(r.now))
		}
	}
	return d
}

// imageAction swaps the images of the sidecars chosen for it, in one write.
func (r round) imageAction(chosen []choice) []Action {
	chosen = ofMode(chosen, v1alpha1.ModeImage)
	if len(chosen) == 0 {
		return nil
	}
	images := make(map[string]string, len(chosen))
	for _, c := range chosen {
		images[c.target.Container] = c.target.Image
	}
	return []Action{{
		Mode: v1alpha1.ModeImage, For: v1alpha1.ModeImage, Attempt: r.nextNumber(v1alpha1.ModeImage),
		Containers: names(chosen), Images: images, Deadline: r.deadline(chosen, len(chosen)),
	}}
}

// requestAction asks Kruise to stop the sidecars chosen for it, in one request.
func (r round) requestAction(chosen []choice) []Action {
	chosen = ofMode(chosen, v1alpha1.ModeCRR)
	if len(chosen) == 0 {
		return nil
	}
	return []Action{{
		Mode: v1alpha1.ModeCRR, For: v1alpha1.ModeCRR, Attempt: r.nextNumber(v1alpha1.ModeCRR),
		Containers: names(chosen), Deadline: r.deadline(chosen, len(chosen)), Supersedes: r.spentRequests(),
	}}
}

// phaseAction writes the phase. It ends the sidecars whose mode is CRR as well: Kruise is asked only where it has not.
// Asked at once, Kruise's daemon may be faster than a kubelet whose watch was interrupted, and the exit code would count.
func (r round) phaseAction(chosen []choice) Action {
	purpose := v1alpha1.ModePodPhase
	if len(ofMode(chosen, v1alpha1.ModeCRR)) > 0 {
		purpose = v1alpha1.ModeCRR
	}
	return Action{
		Mode: v1alpha1.ModePodPhase, For: purpose, Attempt: r.nextNumber(v1alpha1.ModePodPhase),
		Containers: names(chosen), Phase: r.outcome(), Deadline: r.deadline(chosen, 1),
	}
}

// deadline is the longest time that one of the chosen sidecars is given, when so many are stopped one after the other.
func (r round) deadline(chosen []choice, serial int) time.Duration {
	var longest time.Duration
	for _, c := range chosen {
		longest = max(longest, c.target.Deadline)
	}
	return GracePeriod(r.Pod)*time.Duration(serial) + longest
}

// announce gives a decision with actions its reason and message.
func (r round) announce(d *Decision) {
	if len(d.Actions) == 0 {
		return
	}
	d.BackoffLimitRisk = r.Pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure &&
		slices.ContainsFunc(d.Actions, func(a Action) bool { return a.Mode == v1alpha1.ModeImage })
	if d.Stage == StageStuck {
		return
	}
	d.Reason = v1alpha1.ReasonTerminating
	if len(d.Failures)+len(d.Substitutions) > 0 {
		d.Reason = v1alpha1.ReasonFallback
	}
	var parts []string
	for _, action := range d.Actions {
		part := fmt.Sprintf("%s by mode %s", strings.Join(action.Containers, ", "), action.Mode)
		if action.For != action.Mode {
			part += fmt.Sprintf(", the first step of mode %s", action.For)
		}
		parts = append(parts, part)
	}
	d.Message = "main containers are done; ending " + strings.Join(parts, " and ")
}

func ofMode(chosen []choice, mode v1alpha1.Mode) []choice {
	var result []choice
	for _, c := range chosen {
		if c.mode == mode {
			result = append(result, c)
		}
	}
	return result
}

// names returns the sorted names of the chosen containers.
func names(chosen []choice) []string {
	result := make([]string, 0, len(chosen))
	for _, c := range chosen {
		result = append(result, c.target.Container)
	}
	slices.SortFunc(result, cmp.Compare)
	return result
}
