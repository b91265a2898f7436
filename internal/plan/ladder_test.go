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

// TestLadders covers the first attempt: which mode is chosen, and what is written for it.
func TestLadders(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }
	failed := func() *corev1.Pod { return newPod(never, exited("main", 7), running("proxy")) }
	server := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy").runs("/app/server")) }
	neverStarted := func() *corev1.Pod { return newPod(onFailure, exited("main", 0), unpullable("proxy")) }
	restartsAll := func() *corev1.Pod {
		return newPod(never, exited("main", 0), running("proxy").restarting(corev1.ContainerRestartPolicyNever,
			rule(corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn, 143)))
	}
	one := func(changes ...func(*resolve.Target)) []resolve.Target { return targets(sidecar("proxy", changes...)) }

	runScenarios(t, map[string]scenario{
		"Auto with Kruise writes the phase, so that the exit code does not count, and asks Kruise": {
			snapshot: observed(pod(), one()),
			want:     terminating("PodPhase#0=Succeeded [proxy] for CRR within 1m0s"),
		},
		"Auto with Kruise and respected exit codes only asks Kruise": {
			snapshot: observed(pod(), one(respect)),
			want:     terminating("CRR#0 [proxy] within 1m0s"),
		},
		"Auto without Kruise writes the phase": {
			snapshot: observed(pod(), one(), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Auto without Kruise swaps the image when a main container failed": {
			snapshot: observed(failed(), one(), withoutKruise),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto without Kruise and without an image writes the phase Failed when a main container failed": {
			snapshot: observed(failed(), one(noImage), withoutKruise),
			want:     terminating("PodPhase#0=Failed [proxy] within 1m0s"),
		},
		"Auto without Kruise and with respected exit codes swaps the image": {
			snapshot: observed(pod(), one(respect), withoutKruise),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto on a virtual node swaps the image": {
			snapshot: observed(pod(), one(), onVirtualNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto on a virtual node without an image has nothing to use": {
			snapshot: observed(pod(), one(noImage), onVirtualNode),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"Auto on a node without Kruise's daemon writes the phase, although the cluster has Kruise": {
			snapshot: observed(pod(), one(), onDaemonlessNode),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Auto on a node without Kruise's daemon swaps the image when a main container failed": {
			snapshot: observed(failed(), one(), onDaemonlessNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto on a node without Kruise's daemon and with respected exit codes swaps the image": {
			snapshot: observed(pod(), one(respect), onDaemonlessNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto on a node without Kruise's daemon swaps the image when the operator may not write the phase": {
			snapshot: observed(pod(), one(), onDaemonlessNode, withoutPodPhase),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto on a node without Kruise's daemon goes on to the image when the phase was of no use": {
			snapshot: observed(pod(), one(), onDaemonlessNode, attempted(phaseWrite(2, podPhase))),
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a declared Image on a node without Kruise's daemon is used as declared": {
			snapshot: observed(pod(), one(mode(image)), onDaemonlessNode),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a declared PodPhase on a node without Kruise's daemon is used as declared": {
			snapshot: observed(pod(), one(mode(podPhase)), onDaemonlessNode),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a declared CRR on a node without Kruise's daemon falls back": {
			snapshot: observed(pod(), one(mode(crr)), onDaemonlessNode),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a declared CRR on a node without Kruise's daemon and without fallback is stuck for that reason": {
			snapshot: observed(pod(), one(mode(crr), noFallback), onDaemonlessNode),
			want:     stuck(v1alpha1.ReasonNoKruiseDaemon),
		},
		"Auto without Kruise, an image and the phase has nothing to use": {
			snapshot: observed(pod(), one(noImage), withoutKruise, withoutPodPhase),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"Auto writes the phase for a sidecar that never started, Kruise or not": {
			snapshot: observed(neverStarted(), one()),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Auto swaps the image of a sidecar that never started when its exit code is respected": {
			snapshot: observed(neverStarted(), one(respect)),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"Auto writes the phase where an exit would run the main containers again": {
			snapshot: observed(restartsAll(), one()),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"nothing ends a sidecar whose exit would run the main containers again and is respected": {
			snapshot: observed(restartsAll(), one(respect)),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a declared mode goes before those of Auto": {
			snapshot: observed(pod(), one(mode(image))),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a declared PodPhase is used although Kruise is there": {
			snapshot: observed(pod(), one(mode(podPhase))),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a declared CRR without Kruise falls back": {
			snapshot: observed(pod(), one(mode(crr)), withoutKruise),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a declared PodPhase on a virtual node falls back": {
			snapshot: observed(pod(), one(mode(podPhase)), onVirtualNode),
			want:     fallingBack("Image#0 [proxy] within 1m0s"),
		},
		"a declared CRR without Kruise and without fallback is stuck for that reason": {
			snapshot: observed(pod(), one(mode(crr), noFallback), withoutKruise),
			want:     stuck(v1alpha1.ReasonCRRUnavailable),
		},
		"a declared CRR on a virtual node and without fallback is stuck for that reason": {
			snapshot: observed(pod(), one(mode(crr), noFallback), onVirtualNode),
			want:     stuck(v1alpha1.ReasonVirtualNode),
		},
		"a declared CRR of a sidecar that never started and without fallback is stuck for that reason": {
			snapshot: observed(neverStarted(), one(mode(crr), noFallback)),
			want:     stuck(v1alpha1.ReasonSidecarNotStarted),
		},
		"a declared Image without an image and without fallback is stuck for that reason": {
			snapshot: observed(pod(), one(mode(image), noImage, noFallback)),
			want:     stuck(v1alpha1.ReasonNoQuickExitImage),
		},
		"a declared Image that has the command is used": {
			snapshot: observed(server(), one(mode(image), having("default", "/app/server"))),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a declared Image that covers everything is used": {
			snapshot: observed(server(), one(mode(image), having("*"))),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a declared Image that does not have the command falls back": {
			snapshot: observed(server(), one(mode(image)), withoutKruise),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a declared Image that does not have the command and without fallback is stuck for that reason": {
			snapshot: observed(server(), one(mode(image), noFallback)),
			want:     stuck(v1alpha1.ReasonCommandNotCovered),
		},
		"a sidecar that never started is not given an image that does not have its command either": {
			snapshot: observed(newPod(never, exited("main", 0), unpullable("proxy").runs("/app/server")), one(mode(image), noFallback)),
			want:     stuck(v1alpha1.ReasonCommandNotCovered),
		},
		"nothing ends a respected sidecar on a real node whose image does not have the command": {
			snapshot: observed(server(), one(respect), withoutKruise),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"nothing ends a sidecar on a virtual node whose image does not have the command": {
			snapshot: observed(server(), one(), onVirtualNode),
			want:     stuck(v1alpha1.ReasonNoUsableMode),
		},
		"a declared Image whose image is not on the list falls back": {
			snapshot: observed(pod(), one(mode(image), from(resolve.SourceEntry)), withoutKruise, withoutImages),
			want:     fallingBack("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a declared Image whose image is not on the list and without fallback is stuck for that reason": {
			snapshot: observed(pod(), one(mode(image), noFallback, from(resolve.SourcePolicy)), withoutImages),
			want:     stuck(v1alpha1.ReasonImageNotAllowed),
		},
		"the operator's own image needs no place on the list": {
			snapshot: observed(pod(), one(mode(image), from(resolve.SourceOperator)), withoutImages),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a container's own image needs no place on the list": {
			snapshot: observed(pod(), one(mode(image), from(resolve.SourceEnvironment)), withoutImages),
			want:     terminating("Image#0 [proxy] within 1m0s"),
		},
		"a container's own image needs one where the list says so": {
			snapshot: observed(pod(), one(mode(image), noFallback, from(resolve.SourceEnvironment)), withoutImages,
				func(s *plan.Snapshot) { s.Capabilities.Images.EnvironmentListed = true }),
			want: stuck(v1alpha1.ReasonImageNotAllowed),
		},
		"an image that was swapped before it left the list is waited for": {
			snapshot: observed(pod(), one(mode(image), noFallback, from(resolve.SourcePolicy)), withoutImages, attempted(swap("proxy"))),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: minute},
		},
		"an image that was swapped is waited for, whatever is said of it now": {
			snapshot: observed(server(), one(mode(image), noFallback), attempted(swap("proxy"))),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: minute},
		},
		"the swapped image of another sidecar says nothing": {
			snapshot: observed(newPod(never, exited("main", 0), running("logs"), running("proxy").runs("/app/server")),
				targets(sidecar("proxy", mode(image), noFallback), sidecar("logs")), attempted(swap("logs"))),
			want: brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonCommandNotCovered, Requeue: minute},
		},
		"a declared PodPhase that the operator may not use is stuck for that reason": {
			snapshot: observed(pod(), one(mode(podPhase), noFallback), withoutPodPhase),
			want:     stuck(v1alpha1.ReasonPodPhaseDisabled),
		},
		"a declared PodPhase with respected exit codes is stuck for that reason": {
			snapshot: observed(pod(), one(mode(podPhase), respect, noFallback)),
			want:     stuck(v1alpha1.ReasonExitCodesRespected),
		},
		"a declared CRR of a sidecar that would run the main containers again is stuck for that reason": {
			snapshot: observed(restartsAll(), one(mode(crr), noFallback)),
			want:     stuck(v1alpha1.ReasonRestartsAllContainers),
		},
		"Auto without fallback has its own ladder all the same": {
			snapshot: observed(pod(), one(noFallback), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"a crash-looping sidecar is ended like a running one": {
			snapshot: observed(newPod(onFailure, exited("main", 0), crashLooping("proxy")), one(), withoutKruise),
			want:     terminating("PodPhase#0=Succeeded [proxy] within 1m0s"),
		},
		"Kruise stops containers one after the other, so that the deadline has a grace period for each": {
			snapshot: observed(newPod(never, exited("main", 0), running("a"), running("b"), running("c")),
				targets(sidecar("a", respect), sidecar("b", respect), sidecar("c", respect))),
			want: terminating("CRR#0 [a b c] within 2m0s"),
		},
		"the kubelet stops swapped containers one after the other as well": {
			snapshot: observed(newPod(never, exited("main", 0), running("a"), running("b")), targets(sidecar("a"), sidecar("b")), onVirtualNode),
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
		"an absurd grace period does not overflow": {
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
			snapshot: observed(pod(running("proxy")), targets(sidecar("proxy")), withoutKruise),
		},
		"a declared mode that can be used is not": {
			snapshot: observed(pod(running("proxy")), targets(sidecar("proxy", mode(crr)))),
		},
		"a declared mode that cannot be used is, by the next one": {
			snapshot: observed(pod(running("proxy")), targets(sidecar("proxy", mode(crr))), withoutKruise),
			want:     []plan.Substitution{{Container: "proxy", Wanted: crr, Used: podPhase, Reason: v1alpha1.ReasonCRRUnavailable}},
		},
		"a declared mode that the node does not have is, and the reason is the node's": {
			snapshot: observed(pod(running("proxy")), targets(sidecar("proxy", mode(crr))), withoutKruise, onDaemonlessNode),
			want:     []plan.Substitution{{Container: "proxy", Wanted: crr, Used: podPhase, Reason: v1alpha1.ReasonNoKruiseDaemon}},
		},
		"a declared mode without fallback is, by none": {
			snapshot: observed(pod(running("proxy")), targets(sidecar("proxy", mode(crr), noFallback)), withoutKruise),
			want:     []plan.Substitution{{Container: "proxy", Wanted: crr, Reason: v1alpha1.ReasonCRRUnavailable}},
		},
		"a quick-exit image that does not have the command is": {
			snapshot: observed(pod(running("proxy").runs("/app/server")), targets(sidecar("proxy", mode(image)))),
			want:     []plan.Substitution{{Container: "proxy", Wanted: image, Used: crr, Reason: v1alpha1.ReasonCommandNotCovered}},
		},
		"a quick-exit image that was swapped is not, whatever is said of it now": {
			snapshot: observed(pod(running("proxy").runs("/app/server")), targets(sidecar("proxy", mode(image))), attempted(swap("proxy"))),
		},
		"nor is one that did not end the container": {
			snapshot: observed(pod(running("proxy").runs("/app/server")), targets(sidecar("proxy", mode(image))), attempted(swap("proxy"))),
			after:    time.Hour,
		},
		"a mode that was used and failed is a failure, and no substitution": {
			snapshot: observed(pod(running("proxy")), targets(sidecar("proxy", mode(crr))), withoutKruise, attempted(request(0, "proxy"))),
			after:    time.Hour,
		},
		"nothing is said of a sidecar that is being created": {
			snapshot: observed(pod(creating("proxy")), targets(sidecar("proxy", mode(crr)))),
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
		"nothing is at risk while nothing is done":                   {onFailure, image, attempted(swap("proxy")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := newPod(test.policy, exited("main", 0), running("proxy"))
			s := observed(pod, targets(sidecar("proxy", mode(test.mode))), test.changes)
			if got := plan.Next(s, done).BackoffLimitRisk; got != test.want {
				t.Errorf("BackoffLimitRisk: got %t, want %t", got, test.want)
			}
		})
	}
}
