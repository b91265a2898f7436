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

// podPlan is one decision over all due sidecars of a pod.
type podPlan struct {
	*situation
	sidecars []sidecarPlan
}

// sidecarPlan is what comes next for one sidecar: a mode to use, an attempt or a start to wait for, or nothing (stuck).
// A stuck sidecar has a mode only when its CRR is repeated.
type sidecarPlan struct {
	sidecar resolve.Sidecar
	// mode is the mode to use now, or empty.
	mode v1alpha1.Mode
	// live means that an attempt is live; the first one can be judged again at wakeAt. With crrLive it is a CRR, with
	// swapLive a swapped image, with neither a written phase.
	live, crrLive, swapLive bool
	wakeAt                  time.Time
	// starting means that the kubelet is creating the container.
	starting bool
	// stuck is why no usable mode is left, or empty. Its CRR may be repeated at retryAt, unless that is zero.
	stuck   v1alpha1.Reason
	message string
	retryAt time.Time

	failures     []Failure
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
	history := s.history(sidecar)
	if s.retry {
		history.failed = nil
	}
	chain := s.fallbackChain(sidecar)
	sp := sidecarPlan{
		sidecar: sidecar, failures: history.failures,
		crrLive: history.hasLive(v1alpha1.ModeCRR), swapLive: history.hasLive(v1alpha1.ModeImage),
	}

	next := nextOption(chain, history)
	exhausted := next < 0 && len(history.failures) > 0
	if exhausted {
		sp.stuck, sp.message = v1alpha1.ReasonStuck, allFailed(chain, history.failures)
	}

	switch {
	case s.phaseCameBack(history, sidecar):
		sp.mode = v1alpha1.ModePodPhase
	case len(history.live) > 0:
		sp.live, sp.wakeAt = true, history.wakeAt
	case isStarting(statusOf(s.Pod, sidecar.Container)):
		// The usable modes depend on whether the container starts.
		sp.starting = true
		return sp
	case next >= 0:
		sp.mode = chain[next].Mode
	case exhausted && !history.cameBack && slices.ContainsFunc(chain, func(o ModeOption) bool { return o.Usable() && o.Mode == v1alpha1.ModeCRR }):
		// Repeating helps for a CRR only: the daemon may be back.
		if sp.retryAt = history.retryAt; !s.now.Before(sp.retryAt) {
			sp.mode = v1alpha1.ModeCRR
		}
	case !exhausted:
		sp.stuck, sp.message = WhyUnusable(sidecar, chain)
	}
	sp.substitution = s.substitution(sidecar, chain, history)
	return sp
}

// nextOption returns the index of the first mode that is usable and has not failed, or -1.
func nextOption(chain []ModeOption, history history) int {
	return slices.IndexFunc(chain, func(o ModeOption) bool { return o.Usable() && !history.failed[o.Mode] })
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
	declared := chain[slices.IndexFunc(chain, func(o ModeOption) bool { return o.Mode == sidecar.Mode })]
	var used v1alpha1.Mode
	if i := slices.IndexFunc(chain, ModeOption.Usable); i >= 0 {
		used = chain[i].Mode
	}
	why := unusable{declared.Reason, declared.Message}
	if declared.Usable() && used != sidecar.Mode {
		why = s.whyNotFirst(sidecar)
	}
	if why.reason == "" {
		return nil
	}
	return &Substitution{
		Container: sidecar.Container, Wanted: sidecar.Mode, Used: used, Reason: why.reason,
		Message: fmt.Sprintf("mode %s cannot be used for container %s: %s", sidecar.Mode, sidecar.Container, why.message),
	}
}

// whyNotFirst returns why another mode goes before a declared mode that is usable: the phase that it writes is not permitted, or
// the kubelet ignores it.
func (s *situation) whyNotFirst(sidecar resolve.Sidecar) unusable {
	why := s.phaseForbidden(sidecar)
	if why.reason == "" {
		why = s.phaseIgnoredByKubelet()
	}
	if sidecar.Mode == v1alpha1.ModePodPhase || why.reason == "" {
		return why
	}
	return asFirstStep(sidecar, why)
}

// decide combines the plans of the sidecars: direct actions first, the phase last.
func (p podPlan) decide() *Decision {
	decision := p.summarize()
	direct, viaPhase := p.split()
	decision.Actions = append(decision.Actions, p.imageAction(direct)...)
	if wait := p.waitBeforeCRR(direct); wait != nil {
		decision.postpone(wait)
	} else {
		decision.Actions = append(decision.Actions, p.crrAction(direct)...)
	}
	if len(viaPhase) > 0 {
		if wait := p.waitBeforePhase(direct); wait != nil {
			decision.postpone(wait)
		} else {
			decision.Actions = append(decision.Actions, p.phaseAction(viaPhase))
		}
	}
	p.explainActions(decision)
	return decision
}

// postpone adds the wait of some of the sidecars to the decision.
func (d *Decision) postpone(wait *Decision) {
	d.RequeueAfter = Soonest(d.RequeueAfter, wait.RequeueAfter)
	if len(d.Actions) == 0 && d.Stage != StageStuck {
		d.Reason, d.Message = wait.Reason, wait.Message
	}
}

// split separates the sidecars with a mode by whether the phase must be written next.
func (p podPlan) split() (direct, viaPhase []sidecarPlan) {
	for _, sp := range p.sidecars {
		switch {
		case sp.mode == "":
		case sp.mode == v1alpha1.ModePodPhase, sp.mode == v1alpha1.ModeCRR && p.phaseBeforeCRR(sp.sidecar):
			viaPhase = append(viaPhase, sp)
		default:
			direct = append(direct, sp)
		}
	}
	return direct, viaPhase
}

// phaseBeforeCRR reports whether the phase must still be written before a CRR for the sidecar.
func (s *situation) phaseBeforeCRR(sidecar resolve.Sidecar) bool {
	return s.crrNeedsPhase(sidecar) && !HasTerminalPhase(s.Pod) && s.writtenPhase() == nil
}

// crrNeedsPhase reports whether mode CRR writes the phase first, so that an ignored exit code does not count. In a
// failed pod that does not help: a Job's podFailurePolicy still sees the exit code. Nor does it where the kubelet ignores the
// phase and restarts the container. Where it would not, the written phase at least lets the Job complete.
func (s *situation) crrNeedsPhase(sidecar resolve.Sidecar) bool {
	if s.Kubelet.IgnoresPhase && s.restartsAfterSIGTERM(sidecar) {
		return false
	}
	return s.phaseHides(sidecar) && s.phaseForbidden(sidecar) == (unusable{})
}

// phaseHides reports whether a written phase keeps the sidecar's exit code from counting.
func (s *situation) phaseHides(sidecar resolve.Sidecar) bool {
	return !respected(sidecar) && s.outcome() == corev1.PodSucceeded
}

// waitBeforeCRR returns why a CRR cannot be created yet, or nil. OpenKruise works on one CRR of a pod at a time, so a second
// one would use up its deadline while it waits. A kubelet that does not know the written phase yet would count the exit
// code of an ignored sidecar.
func (p podPlan) waitBeforeCRR(direct []sidecarPlan) *Decision {
	waiting := ofMode(direct, v1alpha1.ModeCRR)
	if len(waiting) == 0 {
		return nil
	}
	if live := slices.IndexFunc(p.sidecars, func(sp sidecarPlan) bool { return sp.crrLive }); live >= 0 {
		return &Decision{Reason: v1alpha1.ReasonAttemptInProgress, Message: fmt.Sprintf("waiting for container %s to end before ending: %s",
			p.sidecars[live].sidecar.Container, strings.Join(containersOf(waiting), ", "))}
	}
	for _, sp := range waiting {
		if wait := p.untilPhaseKnown(sp.sidecar); wait > 0 {
			return &Decision{Reason: v1alpha1.ReasonAttemptInProgress, RequeueAfter: wait, Message: fmt.Sprintf(
				"waiting for the kubelet of node %s to see the pod's phase before a ContainerRecreateRequest stops container %s", p.Pod.Spec.NodeName, sp.sidecar.Container)}
		}
	}
	return nil
}

// untilPhaseKnown returns how much longer a CRR for the sidecar must wait for the kubelet to see the written phase. It is
// zero or less when the CRR need not wait.
func (s *situation) untilPhaseKnown(sidecar resolve.Sidecar) time.Duration {
	written := s.writtenPhase()
	if written == nil || !HasTerminalPhase(s.Pod) || !s.phaseHides(sidecar) || kubeletKnowsPhase(s.Pod) {
		return 0
	}
	return written.Started.Add(maxPhaseDelay).Sub(s.now)
}

// waitBeforePhase returns why the phase cannot be written yet, or nil. The phase ends every container of the pod, so each
// other sidecar must have ended or be stuck. A kubelet with a status write in flight would revert the phase for a moment.
func (p podPlan) waitBeforePhase(direct []sidecarPlan) *Decision {
	if len(direct) > 0 {
		return &Decision{Reason: v1alpha1.ReasonAttemptInProgress,
			Message: "waiting for other sidecars to end first: " + strings.Join(containersOf(direct), ", ")}
	}
	if wait := p.untilNextDue(); wait > 0 {
		return &Decision{Reason: v1alpha1.ReasonDraining, Message: "waiting for another sidecar to drain, because writing the phase would end it", RequeueAfter: wait}
	}
	for _, sp := range p.sidecars {
		name := sp.sidecar.Container
		switch {
		case sp.starting:
			return &Decision{Reason: v1alpha1.ReasonSidecarStarting, Message: isBeingCreated(name)}
		case sp.live && (sp.crrLive || sp.swapLive):
			return &Decision{Reason: v1alpha1.ReasonAttemptInProgress, Message: fmt.Sprintf("waiting for container %s to end first", name)}
		case respected(sp.sidecar):
			return &Decision{Reason: v1alpha1.ReasonExitCodesRespected,
				Message: fmt.Sprintf("container %s has exitCodes Respect and has not ended, so the phase cannot be written", name)}
		}
	}
	window := p.stabilizationWindow()
	if wait := earlier(p.UnchangedSince.Add(window), p.lastEvent().Add(maxStabilizationWindows*window)).Sub(p.now); wait > 0 {
		return &Decision{Reason: v1alpha1.ReasonStabilizing, Message: "waiting for the pod's status to be stable before writing the phase", RequeueAfter: wait}
	}
	return nil
}

func isBeingCreated(container string) string {
	return fmt.Sprintf("the kubelet is creating container %s", container)
}

// summarize turns the plans of the sidecars into a decision without actions.
func (p podPlan) summarize() *Decision {
	d := &Decision{
		Stage: StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress,
		Message:      "waiting for sidecars to end: " + strings.Join(containers(p.open), ", "),
		RequeueAfter: p.untilNextDue(),
	}
	for _, sp := range p.sidecars {
		d.Failures = append(d.Failures, sp.failures...)
		if sp.substitution != nil {
			d.Substitutions = append(d.Substitutions, *sp.substitution)
		}
		switch {
		case sp.stuck != "" && d.Stage != StageStuck:
			d.Stage, d.Reason, d.Message = StageStuck, sp.stuck, sp.message
		case sp.starting && d.Stage != StageStuck:
			d.Reason, d.Message = v1alpha1.ReasonSidecarStarting, isBeingCreated(sp.sidecar.Container)
		}
		switch {
		case sp.live:
			d.RequeueAfter = Soonest(d.RequeueAfter, sp.wakeAt.Sub(p.now))
		case sp.mode == "" && !sp.retryAt.IsZero():
			d.RequeueAfter = Soonest(d.RequeueAfter, sp.retryAt.Sub(p.now))
		}
	}
	return d
}

// imageAction swaps the images of the plans with mode Image, in one write.
func (p podPlan) imageAction(plans []sidecarPlan) []Action {
	plans = ofMode(plans, v1alpha1.ModeImage)
	if len(plans) == 0 {
		return nil
	}
	images := make(map[string]string, len(plans))
	for _, sp := range plans {
		images[sp.sidecar.Container] = sp.sidecar.Image
	}
	return []Action{{
		Mode: v1alpha1.ModeImage, For: v1alpha1.ModeImage, Attempt: p.nextNumber(v1alpha1.ModeImage),
		Containers: containersOf(plans), Images: images, Timeout: p.timeout(plans, len(plans)),
	}}
}

// crrAction creates one CRR for the plans with mode CRR.
func (p podPlan) crrAction(plans []sidecarPlan) []Action {
	plans = ofMode(plans, v1alpha1.ModeCRR)
	if len(plans) == 0 {
		return nil
	}
	return []Action{{
		Mode: v1alpha1.ModeCRR, For: v1alpha1.ModeCRR, Attempt: p.nextNumber(v1alpha1.ModeCRR),
		Containers: containersOf(plans), Timeout: p.timeout(plans, len(plans)), Supersedes: p.obsoleteCRRs(),
	}}
}

// phaseAction writes the phase. It ends sidecars of mode CRR as well; a CRR follows only where the phase has not ended
// them. With an immediate CRR, OpenKruise's daemon may be faster than a kubelet whose watch was interrupted, and the exit
// code would count.
func (p podPlan) phaseAction(plans []sidecarPlan) Action {
	purpose := v1alpha1.ModePodPhase
	if len(ofMode(plans, v1alpha1.ModeCRR)) > 0 {
		purpose = v1alpha1.ModeCRR
	}
	return Action{
		Mode: v1alpha1.ModePodPhase, For: purpose, Attempt: p.nextNumber(v1alpha1.ModePodPhase),
		Containers: containersOf(plans), Phase: p.outcome(), Timeout: p.timeout(plans, 1),
	}
}

// timeout is the longest time that one of the sidecars gets when serial containers stop one after the other.
func (p podPlan) timeout(plans []sidecarPlan, serial int) time.Duration {
	var longest time.Duration
	for _, sp := range plans {
		longest = max(longest, sp.sidecar.Timeout)
	}
	return GracePeriod(p.Pod)*time.Duration(serial) + longest
}

// explainActions gives a decision with actions its reason and message.
func (p podPlan) explainActions(d *Decision) {
	if len(d.Actions) == 0 {
		return
	}
	d.BackoffLimitRisk = p.Pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure &&
		slices.ContainsFunc(d.Actions, func(a Action) bool { return a.Mode == v1alpha1.ModeImage })
	if d.Stage == StageStuck {
		return
	}
	d.Reason = v1alpha1.ReasonTerminating
	if len(d.Failures)+len(d.Substitutions) > 0 {
		d.Reason = v1alpha1.ReasonFallback
	}
	d.Message = "main containers are done; ending " + DescribeActions(d.Actions)
}

// DescribeActions names the containers that the actions end and the mode of each.
func DescribeActions(actions []Action) string {
	var parts []string
	for _, action := range actions {
		part := fmt.Sprintf("%s by mode %s", strings.Join(action.Containers, ", "), action.Mode)
		if action.For != action.Mode {
			part += fmt.Sprintf(" (first step of mode %s)", action.For)
		}
		parts = append(parts, part)
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
	slices.SortFunc(result, cmp.Compare)
	return result
}
