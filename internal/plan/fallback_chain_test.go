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

const (
	crr      = v1alpha1.ModeCRR
	image    = v1alpha1.ModeImage
	podPhase = v1alpha1.ModePodPhase

	minute = time.Minute
)

func terminating(actions ...string) brief {
	return brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Actions: actions}
}

func fallingBack(actions ...string) brief {
	return brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonFallback, Actions: actions}
}

func stuck(reason v1alpha1.Reason) brief {
	return brief{Stage: plan.StageStuck, Reason: reason}
}

// TestFallbackChain covers the first attempt: its mode and its action.
func TestFallbackChain(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }
	failed := func() *corev1.Pod { return newPod(never, exited("main", 7), running("proxy")) }
	server := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy").runs("/app/server")) }
	neverStarted := func() *corev1.Pod { return newPod(onFailure, exited("main", 0), unpullable("proxy")) }
	restartsAll := func() *corev1.Pod {
		return newPod(never, exited("main", 0), running("proxy").restarting(corev1.ContainerRestartPolicyNever,
			rule(corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn, 143)))
	}
	one := func(changes ...func(*resolve.Sidecar)) []resolve.Sidecar {
		return sidecarsOf(sidecar("proxy", changes...))
	}

	runScenarios(t, map[string]scenario{
		"Auto, Kruise: the phase, then a CRR": {
			snapshot: observed(pod(), one()),
			want:     terminating("PodPhase#0=Succeeded [proxy] for CRR within 1m0s"),
		},
		"Auto, Kruise, Respect: a CRR alone": {
			snapshot: observed(pod(), one(respect)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"Auto, no Kruise: the phase": {
			snapshot: observed(pod(), one(), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Auto, no Kruise, failed main: the image": {
			snapshot: observed(failed(), one(), withoutKruise),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto, no Kruise, no image, failed main: phase Failed": {
			snapshot: observed(failed(), one(noImage), withoutKruise),
			want:     terminating("PodPhase#0=Failed [proxy] within 1m0s"),
		},
		"Auto, no Kruise, Respect: the image": {
			snapshot: observed(pod(), one(respect), withoutKruise),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto, unknown kind of node: the image": {
			snapshot: observed(pod(), one(), onUnreadNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto, unknown kind of node, no image": {
			snapshot: observed(pod(), one(noImage), onUnreadNode),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"PodPhase, unknown kind of node": {
			snapshot: observed(pod(), one(mode(podPhase), noFallback), onUnreadNode),
			want:     stuck(v1alpha1.ReasonNodeKindUnknown),
		},
		"CRR, unknown kind of node": {
			snapshot: observed(pod(), one(mode(crr), noFallback), onUnreadNode),
			want:     stuck(v1alpha1.ReasonNodeKindUnknown),
		},
		"Auto, an operator for single namespaces: the phase": {
			snapshot: observed(pod(), one(), namespacesOnly),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"CRR, an operator for single namespaces": {
			snapshot: observed(pod(), one(mode(crr), noFallback), namespacesOnly),
			want:     stuck(v1alpha1.ReasonCRRUnavailable),
		},
		"Auto, virtual node: the image": {
			snapshot: observed(pod(), one(), onVirtualNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto, virtual node, no image: no usable mode": {
			snapshot: observed(pod(), one(noImage), onVirtualNode),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"Auto, no daemon on the node: the phase": {
			snapshot: observed(pod(), one(), onDaemonlessNode),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Auto, no daemon on the node, failed main: the image": {
			snapshot: observed(failed(), one(), onDaemonlessNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto, no daemon on the node, Respect: the image": {
			snapshot: observed(pod(), one(respect), onDaemonlessNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto, no daemon on the node, phase disabled: the image": {
			snapshot: observed(pod(), one(), onDaemonlessNode, withoutPodPhase),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"SIGTERM leads to a restart, phase off: CRR before Image": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").restarting(corev1.ContainerRestartPolicyNever,
				rule(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 143))), one(), withoutPodPhase),
			want: terminating("CRR#0 [proxy] within 1m0s"),
		},
		"Auto, no daemon on the node, failed phase: the image": {
			snapshot: observed(pod(), one(), onDaemonlessNode, attempted(phaseWrite(2, podPhase))),
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"Image, no daemon on the node: the image": {
			snapshot: observed(pod(), one(mode(image)), onDaemonlessNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"PodPhase, no daemon on the node: the phase": {
			snapshot: observed(pod(), one(mode(podPhase)), onDaemonlessNode),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"CRR, no daemon on the node: falls back": {
			snapshot: observed(pod(), one(mode(crr)), onDaemonlessNode),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"CRR, no daemon on the node, no fallback: stuck": {
			snapshot: observed(pod(), one(mode(crr), noFallback), onDaemonlessNode),
			want:     stuck(v1alpha1.ReasonNoKruiseDaemon),
		},
		"Auto, no Kruise, no image, no phase: no usable mode": {
			snapshot: observed(pod(), one(noImage), withoutKruise, withoutPodPhase),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"Auto, sidecar never started: the phase, even with Kruise": {
			snapshot: observed(neverStarted(), one()),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Auto, sidecar never started, Respect: the image": {
			snapshot: observed(neverStarted(), one(respect)),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto, RestartAllContainers on exit: the phase": {
			snapshot: observed(restartsAll(), one()),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"RestartAllContainers on exit, Respect: no usable mode": {
			snapshot: observed(restartsAll(), one(respect)),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a declared mode goes before the modes of Auto": {
			snapshot: observed(pod(), one(mode(image))),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"PodPhase, Kruise: the phase": {
			snapshot: observed(pod(), one(mode(podPhase))),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"CRR, no Kruise: falls back": {
			snapshot: observed(pod(), one(mode(crr)), withoutKruise),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"PodPhase, virtual node: falls back": {
			snapshot: observed(pod(), one(mode(podPhase)), onVirtualNode),
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"CRR, no Kruise, no fallback: stuck": {
			snapshot: observed(pod(), one(mode(crr), noFallback), withoutKruise),
			want:     stuck(v1alpha1.ReasonCRRUnavailable),
		},
		"CRR, virtual node, no fallback: stuck": {
			snapshot: observed(pod(), one(mode(crr), noFallback), onVirtualNode),
			want:     stuck(v1alpha1.ReasonVirtualNode),
		},
		"CRR, sidecar never started, no fallback: stuck": {
			snapshot: observed(neverStarted(), one(mode(crr), noFallback)),
			want:     stuck(v1alpha1.ReasonSidecarNotStarted),
		},
		"Image, no image, no fallback: stuck": {
			snapshot: observed(pod(), one(mode(image), noImage, noFallback)),
			want:     stuck(v1alpha1.ReasonNoQuickExitImage),
		},
		"Image covers the command: the image": {
			snapshot: observed(server(), one(mode(image), having("default", "/app/server"))),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Image covers every command: the image": {
			snapshot: observed(server(), one(mode(image), having("*"))),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Image does not cover the command: falls back": {
			snapshot: observed(server(), one(mode(image)), withoutKruise),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Image does not cover the command, no fallback: stuck": {
			snapshot: observed(server(), one(mode(image), noFallback)),
			want:     stuck(v1alpha1.ReasonCommandNotCovered),
		},
		"sidecar never started: its command must be covered, too": {
			snapshot: observed(newPod(never, exited("main", 0), unpullable("proxy").runs("/app/server")), one(mode(image), noFallback)),
			want:     stuck(v1alpha1.ReasonCommandNotCovered),
		},
		"Respect, no Kruise, command not covered: no usable mode": {
			snapshot: observed(server(), one(respect), withoutKruise),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"virtual node, command not covered: no usable mode": {
			snapshot: observed(server(), one(), onVirtualNode),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"image not on the list: falls back": {
			snapshot: observed(pod(), one(mode(image), from(resolve.SourceEntry)), withoutKruise, withoutImages),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"image not on the list, no fallback: stuck": {
			snapshot: observed(pod(), one(mode(image), noFallback, from(resolve.SourcePolicy)), withoutImages),
			want:     stuck(v1alpha1.ReasonImageNotAllowed),
		},
		"the operator's default image need not be on the list": {
			snapshot: observed(pod(), one(mode(image), from(resolve.SourceOperator)), withoutImages),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"image of an environment variable not on the list, no fallback: stuck": {
			snapshot: observed(pod(), one(mode(image), noFallback, from(resolve.SourceEnvironment)), withoutImages),
			want:     stuck(v1alpha1.ReasonImageNotAllowed),
		},
		"a swap in progress continues when its image leaves the list": {
			snapshot: observed(pod(), one(mode(image), noFallback, from(resolve.SourcePolicy)), withoutImages, attempted(swap("proxy"))),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: minute},
		},
		"a swap in progress continues when its paths change": {
			snapshot: observed(server(), one(mode(image), noFallback), attempted(swap("proxy"))),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: minute},
		},
		"a swap of another sidecar does not count": {
			snapshot: observed(newPod(never, exited("main", 0), running("logs"), running("proxy").runs("/app/server")),
				sidecarsOf(sidecar("proxy", mode(image), noFallback), sidecar("logs")), attempted(swap("logs"))),
			want: brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonCommandNotCovered, Requeue: minute},
		},
		"PodPhase, phase disabled, no fallback: stuck": {
			snapshot: observed(pod(), one(mode(podPhase), noFallback), withoutPodPhase),
			want:     stuck(v1alpha1.ReasonModeDisabled),
		},
		"PodPhase, Respect, no fallback: stuck": {
			snapshot: observed(pod(), one(mode(podPhase), respect, noFallback)),
			want:     stuck(v1alpha1.ReasonExitCodesRespected),
		},
		"CRR, RestartAllContainers on exit, no fallback: stuck": {
			snapshot: observed(restartsAll(), one(mode(crr), noFallback)),
			want:     stuck(v1alpha1.ReasonRestartsAllContainers),
		},
		"Auto has its fallback chain even without fallback": {
			snapshot: observed(pod(), one(noFallback), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a crash-looping sidecar is ended like a running one": {
			snapshot: observed(newPod(onFailure, exited("main", 0), crashLooping("proxy")), one(), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a CRR's deadline has a grace period for each container": {
			snapshot: observed(newPod(never, exited("main", 0), running("a"), running("b"), running("c")),
				sidecarsOf(sidecar("a", respect), sidecar("b", respect), sidecar("c", respect))),
			want: terminating("CRR#0 [a b c] within 2m0s"),
		},
		"a swap's deadline has a grace period for each container": {
			snapshot: observed(newPod(never, exited("main", 0), running("a"), running("b")), sidecarsOf(sidecar("a"), sidecar("b")), onVirtualNode),
			want:     terminating("Image#0 [a b] within 1m30s"),
		},
		"a pod without a grace period has Kubernetes' default": {
			snapshot: observed(pod(), one(respect), func(s *plan.Snapshot) { s.Pod.Spec.TerminationGracePeriodSeconds = nil }),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"a grace period of zero is one second": {
			snapshot: observed(pod(), one(respect), func(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = 0 }),
			want:     terminating("CRR#0 [proxy] within 31s"),
		},
		"the largest grace period does not overflow": {
			snapshot: observed(pod(), one(respect), func(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = 1 << 62 }),
			want:     terminating("CRR#0 [proxy] within 8760h0m30s"),
		},
	})
}

func TestSubstitutions(t *testing.T) {
	pod := func(c container) *corev1.Pod { return newPod(never, exited("main", 0), c) }
	tests := map[string]struct {
		snapshot plan.Snapshot
		after    time.Duration
		want     []plan.Substitution
	}{
		"Auto cannot be substituted": {
			snapshot: observed(pod(running("proxy")), sidecarsOf(sidecar("proxy")), withoutKruise),
		},
		"a usable declared mode is not substituted": {
			snapshot: observed(pod(running("proxy")), sidecarsOf(sidecar("proxy", mode(crr)))),
		},
		"an unusable declared mode is substituted by the next": {
			snapshot: observed(pod(running("proxy")), sidecarsOf(sidecar("proxy", mode(crr))), withoutKruise),
			want:     []plan.Substitution{{Container: "proxy", Wanted: crr, Used: podPhase, Reason: v1alpha1.ReasonCRRUnavailable}},
		},
		"a mode that the node lacks is substituted with its reason": {
			snapshot: observed(pod(running("proxy")), sidecarsOf(sidecar("proxy", mode(crr))), withoutKruise, onDaemonlessNode),
			want:     []plan.Substitution{{Container: "proxy", Wanted: crr, Used: podPhase, Reason: v1alpha1.ReasonNoKruiseDaemon}},
		},
		"an unusable mode without fallback has no substitute": {
			snapshot: observed(pod(running("proxy")), sidecarsOf(sidecar("proxy", mode(crr), noFallback)), withoutKruise),
			want:     []plan.Substitution{{Container: "proxy", Wanted: crr, Reason: v1alpha1.ReasonCRRUnavailable}},
		},
		"an image that does not cover the command is substituted": {
			snapshot: observed(pod(running("proxy").runs("/app/server")), sidecarsOf(sidecar("proxy", mode(image)))),
			want:     []plan.Substitution{{Container: "proxy", Wanted: image, Used: crr, Reason: v1alpha1.ReasonCommandNotCovered}},
		},
		"a swap in progress is not substituted": {
			snapshot: observed(pod(running("proxy").runs("/app/server")), sidecarsOf(sidecar("proxy", mode(image))), attempted(swap("proxy"))),
		},
		"a failed swap is not substituted": {
			snapshot: observed(pod(running("proxy").runs("/app/server")), sidecarsOf(sidecar("proxy", mode(image))), attempted(swap("proxy"))),
			after:    time.Hour,
		},
		"a failed mode is a failure, not a substitution": {
			snapshot: observed(pod(running("proxy")), sidecarsOf(sidecar("proxy", mode(crr))), withoutKruise, attempted(crrAttempt(0, "proxy"))),
			after:    time.Hour,
		},
		"a sidecar being created has no substitution": {
			snapshot: observed(pod(creating("proxy")), sidecarsOf(sidecar("proxy", mode(crr)))),
		},
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
			pod := newPod(test.policy, exited("main", 0), running("proxy"))
			s := observed(pod, sidecarsOf(sidecar("proxy", mode(test.mode))), test.changes)
			if got := plan.Next(s, done).BackoffLimitRisk; got != test.want {
				t.Errorf("BackoffLimitRisk: got %t, want %t", got, test.want)
			}
		})
	}
}
