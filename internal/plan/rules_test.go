// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// scenario is one row of a table: a snapshot, a time after the end of the mains, and the expected decision.
type scenario struct {
	snapshot plan.Snapshot
	after    time.Duration
	want     brief
}

func runScenarios(t *testing.T, scenarios map[string]scenario) {
	t.Helper()
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			decision := plan.Next(s.snapshot, done.Add(s.after))
			if diff := cmp.Diff(s.want, briefly(decision)); diff != "" {
				t.Errorf("Next() (-want +got):\n%s\nmessage: %s", diff, decision.Message)
			}
			if decision.Message == "" {
				t.Error("Next() gives no message")
			}
		})
	}
}

func TestRules(t *testing.T) {
	proxy := sidecarsOf(sidecar("proxy"))
	deleted := func(s *plan.Snapshot) { s.Pod.DeletionTimestamp = &metav1.Time{Time: done} }
	unscheduled := func(s *plan.Snapshot) { s.Pod.Spec.NodeName = "" }
	unknownNode := func(s *plan.Snapshot) { s.Node = plan.NodeUnknown }
	restartingAll := func(s *plan.Snapshot) {
		s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	}
	mainDone := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }

	runScenarios(t, map[string]scenario{
		"a pod being deleted is ignored": {
			snapshot: observed(mainDone(), proxy, deleted),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodDeleted},
		},
		"restartPolicy Always is ignored": {
			snapshot: observed(newPod(corev1.RestartPolicyAlways, exited("main", 0), running("proxy")), proxy),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonRestartPolicyAlways},
		},
		"a mirror pod is ignored": {
			snapshot: observed(mainDone(), proxy, mirror),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonMirrorPod},
		},
		"a guard on a mirror pod is ignored": {
			snapshot: observed(mainDone(), proxy, mirror, phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase)),
				func(s *plan.Snapshot) { s.Pod.Annotations[v1alpha1.AnnotationPhaseGuard] = "Enabled" }),
			after: time.Hour,
			want:  brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonMirrorPod},
		},
		"a pod without restartPolicy is ignored": {
			snapshot: observed(newPod("", exited("main", 0), running("proxy")), proxy),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonRestartPolicyAlways},
		},
		"a pod without a sidecar is ignored": {
			snapshot: observed(newPod(never, exited("main", 0)), nil),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonNoSidecar},
		},
		"a pod that succeeded on its own is ignored": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0)), proxy, phase(corev1.PodSucceeded)),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodFinished},
		},
		"a pod that failed on its own is ignored": {
			snapshot: observed(mainDone(), proxy, phase(corev1.PodFailed)),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodFinished},
		},
		"a pod with sidecars only is stuck": {
			snapshot: observed(newPod(never, running("proxy"), running("logs")), sidecarsOf(sidecar("logs"), sidecar("proxy"))),
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonNoMainContainer},
		},
		"a pod with ended sidecars only is stuck": {
			snapshot: observed(newPod(never, exited("proxy", 0)), proxy),
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonNoMainContainer},
		},
		"a pod without a node waits": {
			snapshot: observed(mainDone(), proxy, unscheduled),
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonPodNotScheduled},
		},
		"a pod whose main container runs waits": {
			snapshot: observed(newPod(never, running("main"), running("proxy")), proxy),
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMainContainersRunning},
		},
		"a pod waits for the last of several main containers": {
			snapshot: observed(newPod(never, exited("main", 0), running("other"), running("proxy")), proxy),
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMainContainersRunning},
		},
		"a pod whose main container has no status yet waits": {
			snapshot: observed(newPod(never, running("main"), running("proxy")), proxy, func(s *plan.Snapshot) {
				s.Pod.Status.ContainerStatuses = nil
			}),
			want: brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMainContainersRunning},
		},
		"a pod whose main container is being created waits": {
			snapshot: observed(newPod(never, creating("main"), running("proxy")), proxy),
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMainContainersRunning},
		},
		"a pod whose main container crash-loops waits": {
			snapshot: observed(newPod(onFailure, crashLooping("main"), running("proxy")), proxy),
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMainContainersRunning},
		},
		"a pod whose containers are all about to restart waits": {
			snapshot: observed(mainDone(), proxy, restartingAll),
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMainContainersRunning},
		},
		"all containers have been restarted: no wait": {
			snapshot: observed(mainDone(), sidecarsOf(sidecar("proxy", respect)), restartingAll, func(s *plan.Snapshot) {
				s.Pod.Status.Conditions[0].Status = corev1.ConditionFalse
				s.Pod.Status.Conditions = append(s.Pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			}),
			want: terminating("CRR#0 [proxy] within 1m0s"),
		},
		"sidecars that exited on their own: terminated": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 143)), proxy),
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a sidecar drains for drainSeconds": {
			snapshot: observed(mainDone(), sidecarsOf(sidecar("proxy", drain(20*time.Second)))),
			after:    5 * time.Second,
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, Requeue: 15 * time.Second},
		},
		"a sidecar is ended after its drain": {
			snapshot: observed(mainDone(), sidecarsOf(sidecar("proxy", drain(20*time.Second), respect))),
			after:    20 * time.Second,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Actions: []string{"CRR#0 [proxy] within 1m0s"}},
		},
		"a drain that the operator saw begin lasts although the node's clock is behind": {
			snapshot: observed(mainDone(), sidecarsOf(sidecar("proxy", drain(20*time.Second))), drainsSince(done.Add(50*minute))),
			after:    50*minute + 5*time.Second,
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, Requeue: 15 * time.Second},
		},
		"a drain that the operator saw begin ends although the node's clock is ahead": {
			snapshot: observed(mainDone(), sidecarsOf(sidecar("proxy", drain(20*time.Second), respect)), drainsSince(done.Add(-50*minute))),
			after:    -50*minute + 20*time.Second,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Actions: []string{"CRR#0 [proxy] within 1m0s"}},
		},
		"a clock behind the node's adds no drain": {
			snapshot: observed(mainDone(), sidecarsOf(sidecar("proxy", respect))),
			after:    -3 * time.Hour,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Actions: []string{"CRR#0 [proxy] within 1m0s"}},
		},
		"no mode is chosen while the node is unknown": {
			snapshot: observed(mainDone(), proxy, unknownNode),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonNodeUnknown},
		},
		"no mode is chosen while a sidecar is being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("proxy")), proxy),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonSidecarStarting},
		},
		"a written phase is an attempt in progress": {
			snapshot: observed(mainDone(), proxy, phase(corev1.PodSucceeded), attempted(phaseWrite(0, v1alpha1.ModePodPhase))),
			after:    10 * time.Second,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: 50 * time.Second},
		},
		"a written phase with ended sidecars: terminated": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 137)), proxy, phase(corev1.PodSucceeded),
				attempted(phaseWrite(0, v1alpha1.ModePodPhase))),
			want: brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a written phase with a never-started sidecar: terminated": {
			snapshot: observed(newPod(never, exited("main", 0), unpullable("proxy")), proxy, phase(corev1.PodSucceeded),
				attempted(phaseWrite(0, v1alpha1.ModePodPhase))),
			want: brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a main container's exit code lost in the teardown: done": {
			snapshot: observed(newPod(onFailure, exited("main", 137), exited("proxy", 137)), proxy, phase(corev1.PodSucceeded),
				attempted(phaseWrite(0, v1alpha1.ModePodPhase))),
			want: brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
	})
}

func TestMessages(t *testing.T) {
	tests := map[string]struct {
		snapshot plan.Snapshot
		after    time.Duration
		want     []string
	}{
		"the main containers that are not done": {
			snapshot: observed(newPod(never, running("main"), exited("other", 0), running("third"), running("proxy")), sidecarsOf(sidecar("proxy"))),
			want:     []string{"main", "third"},
		},
		"every main container while all restart": {
			snapshot: observed(newPod(never, exited("main", 0), exited("other", 0), running("proxy")), sidecarsOf(sidecar("proxy")), func(s *plan.Snapshot) {
				s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
			}),
			want: []string{"main", "other"},
		},
		"the sidecar that is being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("proxy")), sidecarsOf(sidecar("proxy"))),
			want:     []string{"proxy"},
		},
		"the containers that are all sidecars": {
			snapshot: observed(newPod(never, running("a"), running("b")), sidecarsOf(sidecar("a"), sidecar("b"))),
			want:     []string{"a, b", "leave at least one container undeclared"},
		},
		"each mode that cannot be used, and what would help": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy")), sidecarsOf(sidecar("proxy", noImage)), withoutKruise, withoutPodPhase),
			want:     []string{"proxy", "CRR: OpenKruise", "PodPhase: the operator runs with --pod-phase=Disabled", "--quick-exit-image"},
		},
		"how a command gets into an image": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")), sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourcePolicy)))),
			want: []string{"mode Image cannot end container proxy: container proxy runs /app/server, which quick-exit image " + quickExit + " does not cover",
				"use an image that has the program there and set quickExitPaths: [default, /app/server] in the spec of SidecarTerminationPolicy/mesh, or declare another mode"},
		},
		"how a command is added to those of an image": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("server")), sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourcePolicy), having("/opt/x")))),
			want: []string{"runs /usr/local/bin/server",
				"add /usr/local/bin/server to quickExitPaths in the spec of SidecarTerminationPolicy/mesh"},
		},
		"a command for the image of a sidecar's entry": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")),
				sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourceEntry)))),
			want: []string{"set quickExitPaths: [default, /app/server] in sidecar proxy of SidecarTerminationPolicy/mesh"},
		},
		"a command added for the image of a sidecar's entry": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")),
				sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourceEntry), having("/opt/x")))),
			want: []string{"add /app/server to quickExitPaths in sidecar proxy of SidecarTerminationPolicy/mesh"},
		},
		"a command for a policy without an image": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")),
				sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourceOperator), having("/opt/x")))),
			want: []string{"set image with quickExitPaths: [default, /app/server] in the spec of SidecarTerminationPolicy/mesh"},
		},
		"a command without a policy": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")), sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback))),
			want:     []string{"run the operator with --quick-exit-paths=default,/app/server"},
		},
		"where the operator has the flag": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")), sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, having("/opt/x")))),
			want:     []string{"add /app/server to the operator's --quick-exit-paths"},
		},
		"a command that cannot be told": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("$(BIN)/server")), sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourcePolicy)))),
			want:     []string{"no list of paths covers the command of container proxy", "may refer to a variable", `set quickExitPaths: ["*"] in the spec of SidecarTerminationPolicy/mesh`},
		},
		"a command that a volume hides": {
			snapshot: observed(newPod(never, exited("main", 0), mounted(running("proxy").runs("/bin/sh"), "/bin")), sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy))),
			want:     []string{"would run /bin/sh, but the volume at /bin hides the image's program there; declare another mode"},
		},
		"what the mechanism said of itself": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy")), sidecarsOf(sidecar("proxy", mode(v1alpha1.ModeCRR), respect, noFallback)),
				attempted(finished(crrAttempt(0, "proxy"), 10*time.Second, "daemon has not responded"))),
			after: 20 * time.Second,
			want:  []string{`"daemon has not responded"`},
		},
		"the phase that is the first step of mode CRR": {
			snapshot: observed(newPod(onFailure, exited("main", 0), running("proxy"), unpullable("logs")), sidecarsOf(sidecar("logs"), sidecar("proxy"))),
			want:     []string{"ending logs, proxy by mode PodPhase (first step of mode CRR)"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			message := plan.Next(test.snapshot, done.Add(test.after)).Message
			for _, part := range test.want {
				if !strings.Contains(message, part) {
					t.Errorf("message %q does not contain %q", message, part)
				}
			}
		})
	}
}

func ofPolicy(t *resolve.Sidecar) {
	t.Policy = &resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: "mesh"}
}

func mounted(c container, path string) container {
	c.spec.VolumeMounts = []corev1.VolumeMount{{Name: "volume", MountPath: path}}
	return c
}

func TestMainsDone(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want time.Time
	}{
		"is zero without a main container":    {newPod(never, exited("proxy", 0)), time.Time{}},
		"is zero while a main container runs": {newPod(never, running("main"), running("proxy")), time.Time{}},
		"is the end of the last main container": {
			newPod(never, exited("main", 0).endedAt(done.Add(-time.Minute)), exited("other", 0), running("proxy")), done,
		},
		"is the pod's creation where the node leaves the end out": {
			newPod(never, exited("main", 0).endedAt(time.Time{}), running("proxy")), done.Add(-2 * time.Hour),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan.Next(observed(test.pod, sidecarsOf(sidecar("proxy"))), done).MainsDone
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("MainsDone (-want +got):\n%s", diff)
			}
		})
	}
}
