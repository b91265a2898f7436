// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// TestFallbackChain covers the first attempt: its mode and its action.
func TestFallbackChain(t *testing.T) {
	pod := func() *corev1.Pod { return finishedMain(never) }
	failed := func() *corev1.Pod { return newPod(never, exited("main", 7), running("proxy")) }
	server := func() *corev1.Pod { return finishedMain(never, running("proxy").runs("/app/server")) }
	neverStarted := func() *corev1.Pod { return finishedMain(onFailure, unpullable("proxy")) }
	restartsAll := func() *corev1.Pod {
		return finishedMain(never, running("proxy").restarting(corev1.ContainerRestartPolicyNever,
			rule(corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn, 143)))
	}

	runScenarios(t, map[string]scenario{
		"Auto, Kruise: the phase, then a CRR":     {observed(pod(), oneProxy()), 0, terminating(phaseBeforeCRR)},
		"Auto, Kruise, Respect: a CRR alone":      {observed(pod(), oneProxy(respect)), 0, terminating(crrOfProxy)},
		"Auto, no Kruise: the phase":              {observed(pod(), oneProxy(), withoutKruise), 0, terminating(phaseOfProxy)},
		"Auto, no Kruise, failed main: the image": {observed(failed(), oneProxy(), withoutKruise), 0, terminating(swapOfProxy)},
		"Auto, no Kruise, no image, failed main: phase Failed": {
			observed(failed(), oneProxy(noImage), withoutKruise),
			0, terminating("PodPhase#0=Failed [proxy] within 1m0s"),
		},
		"Auto, no Kruise, Respect: the image":                    {observed(pod(), oneProxy(respect), withoutKruise), 0, terminating(swapOfProxy)},
		"Auto, unknown kind of node: the image":                  {observed(pod(), oneProxy(), onUnreadNode), 0, terminating(swapOfProxy)},
		"Auto, unknown kind of node, no image":                   {observed(pod(), oneProxy(noImage), onUnreadNode), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"PodPhase, unknown kind of node":                         {observed(pod(), oneProxy(mode(podPhase), noFallback), onUnreadNode), 0, stuck(v1alpha1.ReasonNodeKindUnknown)},
		"CRR, unknown kind of node":                              {observed(pod(), oneProxy(mode(crr), noFallback), onUnreadNode), 0, stuck(v1alpha1.ReasonNodeKindUnknown)},
		"Auto, an operator for single namespaces: the phase":     {observed(pod(), oneProxy(), namespacesOnly), 0, terminating(phaseOfProxy)},
		"CRR, an operator for single namespaces":                 {observed(pod(), oneProxy(mode(crr), noFallback), namespacesOnly), 0, stuck(v1alpha1.ReasonCRRUnavailable)},
		"Auto, virtual node: the image":                          {observed(pod(), oneProxy(), onVirtualNode), 0, terminating(swapOfProxy)},
		"Auto, virtual node, no image: no usable mode":           {observed(pod(), oneProxy(noImage), onVirtualNode), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"Auto, no daemon on the node: the phase":                 {observed(pod(), oneProxy(), onDaemonlessNode), 0, terminating(phaseOfProxy)},
		"Auto, no daemon on the node, failed main: the image":    {observed(failed(), oneProxy(), onDaemonlessNode), 0, terminating(swapOfProxy)},
		"Auto, no daemon on the node, Respect: the image":        {observed(pod(), oneProxy(respect), onDaemonlessNode), 0, terminating(swapOfProxy)},
		"Auto, no daemon on the node, phase disabled: the image": {observed(pod(), oneProxy(), onDaemonlessNode, withoutPodPhase), 0, terminating(swapOfProxy)},
		"SIGTERM leads to a restart, phase off: CRR before Image": {
			observed(finishedMain(never, running("proxy").restarting(corev1.ContainerRestartPolicyNever,
				rule(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 143))), oneProxy(), withoutPodPhase),
			0, terminating(crrOfProxy),
		},
		"Auto, no daemon on the node, failed phase: the image": {
			observed(pod(), oneProxy(), onDaemonlessNode, attempted(phaseWrite(2, podPhase))),
			0, fallingBack(swapOfProxy),
		},
		"Image, no daemon on the node: the image":        {observed(pod(), oneProxy(mode(image)), onDaemonlessNode), 0, terminating(swapOfProxy)},
		"PodPhase, no daemon on the node: the phase":     {observed(pod(), oneProxy(mode(podPhase)), onDaemonlessNode), 0, terminating(phaseOfProxy)},
		"CRR, no daemon on the node: falls back":         {observed(pod(), oneProxy(mode(crr)), onDaemonlessNode), 0, fallingBack(phaseOfProxy)},
		"CRR, no daemon on the node, no fallback: stuck": {observed(pod(), oneProxy(mode(crr), noFallback), onDaemonlessNode), 0, stuck(v1alpha1.ReasonNoKruiseDaemon)},
		"Auto, no Kruise, no image, no phase: no usable mode": {
			observed(pod(), oneProxy(noImage), withoutKruise, withoutPodPhase),
			0, stuck(v1alpha1.ReasonNoUsableMode),
		},
		"Auto, sidecar never started: the phase, even with Kruise": {observed(neverStarted(), oneProxy()), 0, terminating(phaseOfProxy)},
		"Auto, sidecar never started, Respect: the image":          {observed(neverStarted(), oneProxy(respect)), 0, terminating(swapOfProxy)},
		"Auto, RestartAllContainers on exit: the phase":            {observed(restartsAll(), oneProxy()), 0, terminating(phaseOfProxy)},
		"RestartAllContainers on exit, Respect: no usable mode":    {observed(restartsAll(), oneProxy(respect)), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"a declared mode goes before the modes of Auto":            {observed(pod(), oneProxy(mode(image))), 0, terminating(swapOfProxy)},
		"PodPhase, Kruise: the phase":                              {observed(pod(), oneProxy(mode(podPhase))), 0, terminating(phaseOfProxy)},
		"CRR, no Kruise: falls back":                               {observed(pod(), oneProxy(mode(crr)), withoutKruise), 0, fallingBack(phaseOfProxy)},
		"PodPhase, virtual node: falls back":                       {observed(pod(), oneProxy(mode(podPhase)), onVirtualNode), 0, fallingBack(swapOfProxy)},
		"CRR, no Kruise, no fallback: stuck":                       {observed(pod(), oneProxy(mode(crr), noFallback), withoutKruise), 0, stuck(v1alpha1.ReasonCRRUnavailable)},
		"CRR, virtual node, no fallback: stuck":                    {observed(pod(), oneProxy(mode(crr), noFallback), onVirtualNode), 0, stuck(v1alpha1.ReasonVirtualNode)},
		"CRR, sidecar never started, no fallback: stuck":           {observed(neverStarted(), oneProxy(mode(crr), noFallback)), 0, stuck(v1alpha1.ReasonSidecarNotStarted)},
		"Image, no image, no fallback: stuck":                      {observed(pod(), oneProxy(mode(image), noImage, noFallback)), 0, stuck(v1alpha1.ReasonNoQuickExitImage)},
		"Image covers the command: the image":                      {observed(server(), oneProxy(mode(image), having("default", "/app/server"))), 0, terminating(swapOfProxy)},
		"Image covers every command: the image":                    {observed(server(), oneProxy(mode(image), having("*"))), 0, terminating(swapOfProxy)},
		"Image does not cover the command: falls back":             {observed(server(), oneProxy(mode(image)), withoutKruise), 0, fallingBack(phaseOfProxy)},
		"Image does not cover the command, no fallback: stuck":     {observed(server(), oneProxy(mode(image), noFallback)), 0, stuck(v1alpha1.ReasonCommandNotCovered)},
		"sidecar never started: its command must be covered, too": {
			observed(finishedMain(never, unpullable("proxy").runs("/app/server")), oneProxy(mode(image), noFallback)),
			0, stuck(v1alpha1.ReasonCommandNotCovered),
		},
		"Respect, no Kruise, command not covered: no usable mode": {observed(server(), oneProxy(respect), withoutKruise), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"virtual node, command not covered: no usable mode":       {observed(server(), oneProxy(), onVirtualNode), 0, stuck(v1alpha1.ReasonNoUsableMode)},
		"image not on the list: falls back": {
			observed(pod(), oneProxy(mode(image), from(resolve.SourceEntry)), withoutKruise, withoutImages),
			0, fallingBack(phaseOfProxy),
		},
		"image not on the list, no fallback: stuck": {
			observed(pod(), oneProxy(mode(image), noFallback, from(resolve.SourcePolicy)), withoutImages),
			0, stuck(v1alpha1.ReasonImageNotAllowed),
		},
		"the operator's default image need not be on the list": {
			observed(pod(), oneProxy(mode(image), from(resolve.SourceOperator)), withoutImages),
			0, terminating(swapOfProxy),
		},
		"image of an environment variable not on the list, no fallback: stuck": {
			observed(pod(), oneProxy(mode(image), noFallback, from(resolve.SourceEnvironment)), withoutImages),
			0, stuck(v1alpha1.ReasonImageNotAllowed),
		},
		"a swap in progress continues when its image leaves the list": {
			observed(pod(), oneProxy(mode(image), noFallback, from(resolve.SourcePolicy)), withoutImages, attempted(swap("proxy"))),
			0, inProgress(minute),
		},
		"a swap in progress continues when its paths change": {observed(server(), oneProxy(mode(image), noFallback), attempted(swap("proxy"))), 0, inProgress(minute)},
		"a swap of another sidecar does not count": {
			observed(finishedMain(never, running("logs"), running("proxy").runs("/app/server")),
				sidecarsOf(sidecar("proxy", mode(image), noFallback), sidecar("logs")), attempted(swap("logs"))),
			0, requeued(stuck(v1alpha1.ReasonCommandNotCovered), minute),
		},
		"PodPhase, phase disabled, no fallback: stuck": {observed(pod(), oneProxy(mode(podPhase), noFallback), withoutPodPhase), 0, stuck(v1alpha1.ReasonModeDisabled)},
		"PodPhase, Respect, no fallback: stuck":        {observed(pod(), oneProxy(mode(podPhase), respect, noFallback)), 0, stuck(v1alpha1.ReasonExitCodesRespected)},
		"CRR, RestartAllContainers on exit, no fallback: stuck": {
			observed(restartsAll(), oneProxy(mode(crr), noFallback)),
			0, stuck(v1alpha1.ReasonRestartsAllContainers),
		},
		"Auto has its fallback chain even without fallback": {observed(pod(), oneProxy(noFallback), withoutKruise), 0, terminating(phaseOfProxy)},
		"a crash-looping sidecar is ended like a running one": {
			observed(finishedMain(onFailure, crashLooping("proxy")), oneProxy(), withoutKruise),
			0, terminating(phaseOfProxy),
		},
		"a CRR's deadline has a grace period for each container": {
			observed(finishedMain(never, running("a"), running("b"), running("c")),
				sidecarsOf(sidecar("a", respect), sidecar("b", respect), sidecar("c", respect))),
			0, terminating("CRR#0 [a b c] within 2m0s"),
		},
		"a swap's deadline has a grace period for each container": {
			observed(finishedMain(never, running("a"), running("b")), sidecarsOf(sidecar("a"), sidecar("b")), onVirtualNode),
			0, terminating("Image#0 [a b] within 1m30s"),
		},
		"a pod without a grace period has Kubernetes' default": {
			observed(pod(), oneProxy(respect), func(s *plan.Snapshot) { s.Pod.Spec.TerminationGracePeriodSeconds = nil }),
			0, terminating(crrOfProxy),
		},
		"a grace period of zero is one second": {
			observed(pod(), oneProxy(respect), func(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = 0 }),
			0, terminating("CRR#0 [proxy] within 31s"),
		},
		"the largest grace period does not overflow": {
			observed(pod(), oneProxy(respect), func(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = 1 << 62 }),
			0, terminating("CRR#0 [proxy] within 8760h0m30s"),
		},
	})
}

func TestSubstitutions(t *testing.T) {
	tests := map[string]struct {
		snapshot plan.Snapshot
		after    time.Duration
		want     []plan.Substitution
	}{
		"Auto cannot be substituted":                {observed(finishedMain(never), oneProxy(), withoutKruise), 0, nil},
		"a usable declared mode is not substituted": {observed(finishedMain(never), oneProxy(mode(crr))), 0, nil},
		"an unusable declared mode is substituted by the next": {
			observed(finishedMain(never), oneProxy(mode(crr)), withoutKruise),
			0, []plan.Substitution{{Container: "proxy", Wanted: crr, Used: podPhase, Reason: v1alpha1.ReasonCRRUnavailable}},
		},
		"a mode that the node lacks is substituted with its reason": {
			observed(finishedMain(never), oneProxy(mode(crr)), withoutKruise, onDaemonlessNode),
			0, []plan.Substitution{{Container: "proxy", Wanted: crr, Used: podPhase, Reason: v1alpha1.ReasonNoKruiseDaemon}},
		},
		"an unusable mode without fallback has no substitute": {
			observed(finishedMain(never), oneProxy(mode(crr), noFallback), withoutKruise),
			0, []plan.Substitution{{Container: "proxy", Wanted: crr, Reason: v1alpha1.ReasonCRRUnavailable}},
		},
		"an image that does not cover the command is substituted": {
			observed(finishedMain(never, running("proxy").runs("/app/server")), oneProxy(mode(image))),
			0, []plan.Substitution{{Container: "proxy", Wanted: image, Used: crr, Reason: v1alpha1.ReasonCommandNotCovered}},
		},
		"a swap in progress is not substituted": {observed(finishedMain(never, running("proxy").runs("/app/server")), oneProxy(mode(image)), attempted(swap("proxy"))), 0, nil},
		"a failed swap is not substituted":      {observed(finishedMain(never, running("proxy").runs("/app/server")), oneProxy(mode(image)), attempted(swap("proxy"))), time.Hour, nil},
		"a failed mode is a failure, not a substitution": {
			observed(finishedMain(never), oneProxy(mode(crr)), withoutKruise, attempted(crrAttempt(0, "proxy"))),
			time.Hour, nil,
		},
		"a sidecar being created has no substitution": {observed(finishedMain(never, creating("proxy")), oneProxy(mode(crr))), 0, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.Next(test.snapshot, done.Add(test.after)).Substitutions
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(plan.Substitution{}, "Message")); diff != "" {
				t.Errorf("Substitutions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBackoffLimitRisk(t *testing.T) {
	tests := map[string]struct {
		policy  corev1.RestartPolicy
		mode    v1alpha1.Mode
		changes func(*plan.Snapshot)
		want    bool
	}{
		"a swapped image adds a restart that counts under OnFailure": {onFailure, image, withoutKruise, true},
		"restarts do not count under Never":                          {never, image, withoutKruise, false},
		"a written phase adds no restart":                            {onFailure, podPhase, withoutKruise, false},
		"no risk without an action":                                  {onFailure, image, attempted(swap("proxy")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := finishedMain(test.policy, running("proxy"))
			s := observed(pod, oneProxy(mode(test.mode)), test.changes)
			if got := plan.Next(s, done).BackoffLimitRisk; got != test.want {
				t.Errorf("BackoffLimitRisk: got %t, want %t", got, test.want)
			}
		})
	}
}
