// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// whyNotImage returns why the sidecar's image cannot be swapped, or the zero value.
func (s *situation) whyNotImage(sidecar resolve.Sidecar) ModeOption {
	switch {
	case !s.Capabilities.Enabled(v1alpha1.ModeImage):
		return unusable(v1alpha1.ReasonModeDisabled, "the operator runs with --image-swap=Disabled")
	case sidecar.Image == "":
		return unusable(v1alpha1.ReasonNoQuickExitImage, "no quick-exit image is set; set image in the policy, the container's "+
			v1alpha1.EnvTerminateWithImage+", or the operator's --quick-exit-image")
	case respected(sidecar) && sidecar.Mode != v1alpha1.ModeImage:
		return unusable(v1alpha1.ReasonExitCodesRespected, "exitCodePolicy is Respect for container %s, and the quick-exit image's exit 0 would hide a failure; "+
			"declare mode Image to accept that", sidecar.Container)
	case HasTerminalPhase(s.Pod):
		return unusable(v1alpha1.ReasonPodFinished, "the kubelet starts no container in a pod with a terminal phase")
	case s.restartsAllContainers(sidecar.Container):
		return restartsAll(sidecar)
	case s.recordsSwap(sidecar.Container):
		// The image has been swapped already: the pod's status shows whether it covers the command.
		return ModeOption{}
	}
	return cmp.Or(s.imageForbidden(sidecar), s.commandNotCovered(sidecar), s.denied(v1alpha1.ModeImage))
}

// imageForbidden returns why the administrator's list does not permit the image of a policy or an environment variable. The
// operator's default image is always permitted.
func (s *situation) imageForbidden(sidecar resolve.Sidecar) ModeOption {
	if sidecar.Origins.Image.Source == resolve.SourceOperator {
		return ModeOption{}
	}
	if err := s.Capabilities.Images.Check(sidecar.Image); err != nil {
		return unusable(v1alpha1.ReasonImageNotAllowed, "quick-exit image %s is not allowed: %v; use one that "+
			"--allowed-quick-exit-image of the operator permits, or have it added there", sidecar.Image, err)
	}
	return ModeOption{}
}

// commandNotCovered returns why the quick-exit image does not cover the container's command. Such a container could not
// start, and under Never its pod would fail.
func (s *situation) commandNotCovered(sidecar resolve.Sidecar) ModeOption {
	container := containerOf(s.Pod, sidecar.Container)
	if container == nil {
		return ModeOption{}
	}
	err := quickexit.CoversContainer(sidecar.QuickExitPaths, container)
	if err == nil {
		return ModeOption{}
	}
	var missing *quickexit.MissingError
	var hidden *quickexit.HiddenError
	switch {
	case errors.As(err, &missing):
		return unusable(v1alpha1.ReasonCommandNotCovered, "container %s runs %s, which quick-exit image %s does not cover; use an image that has the program there and %s, or declare another mode",
			sidecar.Container, missing.Path, sidecar.Image, declaration(sidecar, missing.Path))
	case errors.As(err, &hidden):
		return unusable(v1alpha1.ReasonCommandNotCovered, "container %s would run %s, but the volume at %s hides the image's program there; declare another mode, or mount the volume elsewhere",
			sidecar.Container, hidden.Path, hidden.Mount)
	}
	return unusable(v1alpha1.ReasonCommandNotCovered,
		"no list of paths covers the command of container %s: %v; if quick-exit image %s covers every command, %s, or declare another mode",
		sidecar.Container, err, sidecar.Image, declaration(sidecar, quickexit.Everything))
}

// declaration tells the user how to declare that the image covers the entry: next to the image in the policy, or by a
// flag of the operator. A policy that uses the operator's image needs an image of its own first.
func declaration(sidecar resolve.Sidecar, entry string) string {
	policy := sidecar.Policy
	if of := sidecar.Origins.Image.Policy; of.Name != "" {
		policy = &of
	}
	if policy == nil {
		if sidecar.QuickExitPaths.IsZero() {
			return "run the operator with --quick-exit-paths=" + strings.Join(besidesDefault(entry), ",")
		}
		return fmt.Sprintf("add %s to the operator's --quick-exit-paths", entry)
	}
	place := "the spec"
	if sidecar.Origins.Image.Source == resolve.SourceEntry {
		place = "sidecar " + sidecar.Container
	}
	list := strings.Join(besidesDefault(entry), ", ")
	if entry == quickexit.Everything {
		list = `"*"` // in YAML a bare asterisk is an alias
	}
	switch {
	case sidecar.Origins.Image.Source == resolve.SourceOperator:
		return fmt.Sprintf("set image with quickExitPaths: [%s] in %s of %s", list, place, policy)
	case sidecar.QuickExitPaths.IsZero():
		return fmt.Sprintf("set quickExitPaths: [%s] in %s of %s", list, place, policy)
	default:
		return fmt.Sprintf("add %s to quickExitPaths in %s of %s", entry, place, policy)
	}
}

// besidesDefault lists the default paths and the entry, or the entry alone where it covers everything.
func besidesDefault(entry string) []string {
	if entry == quickexit.Everything {
		return []string{entry}
	}
	return []string{quickexit.Default, entry}
}

// imageAction swaps the images of the plans with mode Image, in one write.
func (p podPlan) imageAction(plans []sidecarPlan) []Write {
	plans = ofMode(plans, v1alpha1.ModeImage)
	if len(plans) == 0 {
		return nil
	}
	images := make(map[string]string, len(plans))
	for _, sp := range plans {
		images[sp.sidecar.Container] = sp.sidecar.Image
	}
	return []Write{{
		Mode: v1alpha1.ModeImage, Attempt: p.nextNumber(v1alpha1.ModeImage),
		Containers: containersOf(plans), Images: images, Timeout: p.timeout(plans, len(plans)),
	}}
}

// swapEnded reports whether the sidecar, which has terminated, was not going to start with its new image. Whatever the
// restartPolicy, the kubelet starts a container with a new image after the old one has ended.
func (s *situation) swapEnded(status *corev1.ContainerStatus, end *corev1.ContainerStateTerminated) bool {
	if s.lostSwap != nil && s.lostSwap.covers(status.Name) {
		return s.swappedRunEnded(status, end)
	}
	for _, attempt := range s.Attempts {
		before, swapped := attempt.RestartCounts[status.Name]
		if attempt.Mode == v1alpha1.ModeImage && swapped && status.RestartCount <= before && !s.endedBefore(attempt, status.Name, end.FinishedAt.Time) {
			return false
		}
	}
	return true
}

// endedBefore reports whether the container had ended when its image was swapped, so that the kubelet does not start it again. The
// operator does not swap the image of a container that it knows to have ended. If the end is long before the swap, the kubelet has
// reported it very late, or the node's clock is behind. The attempt has the benefit of the doubt until its deadline.
func (s *situation) endedBefore(attempt Attempt, name string, finished time.Time) bool {
	early := attempt.Started.Sub(finished)
	if early <= statusLag || finished.IsZero() {
		return early > 0
	}
	sidecar := s.View.Sidecar(name)
	return sidecar == nil || !s.now.Before(attempt.Started.Add(s.allowance(attempt, *sidecar)))
}

// findLostSwap returns an attempt of mode Image that took effect, but lost its record, or nil. It covers sidecars whose first
// mode is Image and that have their quick-exit image without a record.
//
// virtual-kubelet writes a pod's status together with the labels and annotations of its provider's copy (updatePodStatus
// in node/pod.go). A provider that has not seen the swap yet thus removes the record. It does not remove the images, which are in the
// spec. The attempt's start is the last known event. If it really began later, its deadline is early, which is
// harmless: a later end of the container still counts. If the node's clock is ahead, the start is when the drain began by the
// operator's clock.
func (s *situation) findLostSwap() *Attempt {
	if s.mainsDone.IsZero() {
		return nil
	}
	started, restarts := s.mainsDone, map[string]int32{}
	for _, sidecar := range s.View.Sidecars {
		container, status := containerOf(s.Pod, sidecar.Container), statusOf(s.Pod, sidecar.Container)
		imageFirst := s.Node == NodeVirtual || sidecar.Mode == v1alpha1.ModeImage
		if !imageFirst || sidecar.Image == "" || container == nil || status == nil || container.Image != sidecar.Image || s.recordsSwap(sidecar.Container) {
			continue
		}
		restarts[sidecar.Container] = status.RestartCount
		started = later(started, s.drainsSince().Add(sidecar.Drain))
		if state := status.State; state.Running != nil {
			started = later(started, state.Running.StartedAt.Time)
		} else if state.Terminated != nil {
			started = later(started, state.Terminated.FinishedAt.Time)
		}
	}
	if len(restarts) == 0 {
		return nil
	}
	if started.After(s.now) {
		started = s.drainsSince()
	}
	return &Attempt{Mode: v1alpha1.ModeImage, Number: 1, RestartCounts: restarts, Started: started}
}

// recordsSwap reports whether there is an attempt of mode Image on the container.
func (s *situation) recordsSwap(name string) bool {
	return slices.ContainsFunc(s.Attempts, func(a Attempt) bool { return a.Mode == v1alpha1.ModeImage && a.covers(name) })
}

// swappedRunEnded reports whether the container that ended ran the new image. That one started after the main containers
// were done. Where a provider reports no start time, the restart count decides.
func (s *situation) swappedRunEnded(status *corev1.ContainerStatus, end *corev1.ContainerStateTerminated) bool {
	if end.StartedAt.IsZero() {
		return status.RestartCount > 0
	}
	return !end.StartedAt.Time.Before(s.mainsDone)
}

// markSwapped marks a recorded pod that is stuck because no open sidecar gets its quick-exit image. Their own containers have ended, so that
// nothing is lost if the pod ends.
func (p podPlan) markSwapped(decision *Decision) {
	switch markedInAdvance(p.Pod) {
	case v1alpha1.EndPodPhase, v1alpha1.EndWaiting:
		return
	}
	waits := func(sidecar resolve.Sidecar) bool {
		status := statusOf(p.Pod, sidecar.Container)
		return status != nil && status.State.Waiting != nil && p.recordsSwap(sidecar.Container)
	}
	if decision.Stage != StageStuck || !p.mayMarkEnded(decision) ||
		slices.ContainsFunc(p.open, func(sidecar resolve.Sidecar) bool { return !waits(sidecar) }) || !p.canMark() {
		return
	}
	decision.Writes = []Write{p.marks(Mark{IgnoredExitCodes: p.wantedMark().IgnoredExitCodes, End: v1alpha1.EndWaiting})}
}
