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

// scenario is one row of a table: a snapshot, a time after the end of the mains, and what is to be decided.
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
	proxy := targets(sidecar("proxy"))
	deleted := func(s *plan.Snapshot) { s.Pod.DeletionTimestamp = &metav1.Time{Time: done} }
	unscheduled := func(s *plan.Snapshot) { s.Pod.Spec.NodeName = "" }
	unknownNode := func(s *plan.Snapshot) { s.Node = plan.NodeUnknown }
	restartingAll := func(s *plan.Snapshot) {
		s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	}
	mainDone := func() *corev1.Pod { return newPod(never, exited("main", 0), running("proxy")) }

	runScenarios(t, map[string]scenario{
		"a pod that is being deleted is left alone, even if its sidecars should end": {
			snapshot: observed(mainDone(), proxy, deleted),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodDeleted},
		},
		"a pod that is restarted always is left alone": {
			snapshot: observed(newPod(corev1.RestartPolicyAlways, exited("main", 0), running("proxy")), proxy),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonRestartPolicyAlways},
		},
		"the mirror pod of a static pod is left alone": {
			snapshot: observed(mainDone(), proxy, mirror),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonMirrorPod},
		},
		"a guard on a mirror pod is left alone": {
			snapshot: observed(mainDone(), proxy, mirror, phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase)),
				func(s *plan.Snapshot) { s.Pod.Annotations[v1alpha1.AnnotationPhaseGuard] = "Enabled" }),
			after: time.Hour,
			want:  brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonMirrorPod},
		},
		"a pod without restartPolicy is left alone, for the default is Always": {
			snapshot: observed(newPod("", exited("main", 0), running("proxy")), proxy),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonRestartPolicyAlways},
		},
		"a pod without a sidecar is left alone": {
			snapshot: observed(newPod(never, exited("main", 0)), nil),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonNoSidecar},
		},
		"a pod that succeeded by itself is left alone": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 0)), proxy, phase(corev1.PodSucceeded)),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodFinished},
		},
		"a pod that failed by itself is left alone": {
			snapshot: observed(mainDone(), proxy, phase(corev1.PodFailed)),
			want:     brief{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodFinished},
		},
		"a pod of nothing but sidecars is refused": {
			snapshot: observed(newPod(never, running("proxy"), running("logs")), targets(sidecar("logs"), sidecar("proxy"))),
			want:     brief{Stage: plan.StageStuck, Reason: v1alpha1.ReasonNoMainContainer},
		},
		"a pod of nothing but sidecars that ended is refused": {
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
		"a pod whose sidecars ended by themselves is through": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 143)), proxy),
			want:     brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a sidecar drains for the time that it is given": {
			snapshot: observed(mainDone(), targets(sidecar("proxy", drain(20*time.Second)))),
			after:    5 * time.Second,
			want:     brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, Requeue: 15 * time.Second},
		},
		"a sidecar whose drain is over is ended": {
			snapshot: observed(mainDone(), targets(sidecar("proxy", drain(20*time.Second), respect))),
			after:    20 * time.Second,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Actions: []string{"CRR#0 [proxy] within 1m0s"}},
		},
		"a sidecar without a drain is ended where the clock is behind the node's": {
			snapshot: observed(mainDone(), targets(sidecar("proxy", respect))),
			after:    -3 * time.Hour,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Actions: []string{"CRR#0 [proxy] within 1m0s"}},
		},
		"nothing is chosen while the node is not known": {
			snapshot: observed(mainDone(), proxy, unknownNode),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonNodeUnknown},
		},
		"nothing is chosen while a sidecar is being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("proxy")), proxy),
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonSidecarStarting},
		},
		"a written phase is followed to the end of the sidecars": {
			snapshot: observed(mainDone(), proxy, phase(corev1.PodSucceeded), attempted(phaseWrite(0, v1alpha1.ModePodPhase))),
			after:    10 * time.Second,
			want:     brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Requeue: 50 * time.Second},
		},
		"a written phase with no sidecar left is the end": {
			snapshot: observed(newPod(never, exited("main", 0), exited("proxy", 137)), proxy, phase(corev1.PodSucceeded),
				attempted(phaseWrite(0, v1alpha1.ModePodPhase))),
			want: brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a written phase is the end of a sidecar that never started": {
			snapshot: observed(newPod(never, exited("main", 0), unpullable("proxy")), proxy, phase(corev1.PodSucceeded),
				attempted(phaseWrite(0, v1alpha1.ModePodPhase))),
			want: brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
		"a main container whose exit code was lost in the teardown is done all the same": {
			snapshot: observed(newPod(onFailure, exited("main", 137), exited("proxy", 137)), proxy, phase(corev1.PodSucceeded),
				attempted(phaseWrite(0, v1alpha1.ModePodPhase))),
			want: brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated},
		},
	})
}

func TestNextSaysWhatItWaitsFor(t *testing.T) {
	tests := map[string]struct {
		snapshot plan.Snapshot
		after    time.Duration
		want     []string
	}{
		"the main containers that are not done": {
			snapshot: observed(newPod(never, running("main"), exited("other", 0), running("third"), running("proxy")), targets(sidecar("proxy"))),
			want:     []string{"main", "third"},
		},
		"every main container while all restart": {
			snapshot: observed(newPod(never, exited("main", 0), exited("other", 0), running("proxy")), targets(sidecar("proxy")), func(s *plan.Snapshot) {
				s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
			}),
			want: []string{"main", "other"},
		},
		"the sidecar that is being created": {
			snapshot: observed(newPod(never, exited("main", 0), creating("proxy")), targets(sidecar("proxy"))),
			want:     []string{"proxy"},
		},
		"the containers that are all sidecars": {
			snapshot: observed(newPod(never, running("a"), running("b")), targets(sidecar("a"), sidecar("b"))),
			want:     []string{"a, b", "leave at least one container undeclared"},
		},
		"each mode that cannot be used, and what would help": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy")), targets(sidecar("proxy", noImage)), withoutKruise, withoutPodPhase),
			want:     []string{"proxy", "CRR: OpenKruise", "PodPhase: the operator runs with --pod-phase=Disabled", "--quick-exit-image"},
		},
		"how a command gets into an image": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")), targets(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourcePolicy)))),
			want: []string{"mode Image cannot end container proxy: container proxy runs /app/server, which quick-exit image " + quickExit + " does not have",
				"build one with `sidecar-termination-operator quick-exit-image --path /app/server --push IMAGE`",
				"set quickExitPaths: [default, /app/server] in the spec of SidecarTerminationPolicy/mesh, or declare another mode"},
		},
		"how a command is added to those of an image": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("server")), targets(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourcePolicy), having("/opt/x")))),
			want: []string{"runs /usr/local/bin/server", "--path /usr/local/bin/server --push IMAGE`",
				"add /usr/local/bin/server to quickExitPaths in the spec of SidecarTerminationPolicy/mesh"},
		},
		"a command for the image of a sidecar's entry": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")),
				targets(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourceEntry)))),
			want: []string{"set quickExitPaths: [default, /app/server] in sidecar proxy of SidecarTerminationPolicy/mesh"},
		},
		"a command added for the image of a sidecar's entry": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")),
				targets(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourceEntry), having("/opt/x")))),
			want: []string{"add /app/server to quickExitPaths in sidecar proxy of SidecarTerminationPolicy/mesh"},
		},
		"a command for a policy without an image": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")),
				targets(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourceOperator), having("/opt/x")))),
			want: []string{"set image with quickExitPaths: [default, /app/server] in the spec of SidecarTerminationPolicy/mesh"},
		},
		"a command without a policy": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")), targets(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback))),
			want:     []string{"run the operator with --quick-exit-paths=default,/app/server"},
		},
		"where the operator has the flag": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("/app/server")), targets(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, having("/opt/x")))),
			want:     []string{"add /app/server to the operator's --quick-exit-paths"},
		},
		"a command that cannot be told": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy").runs("$(BIN)/server")), targets(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy, from(resolve.SourcePolicy)))),
			want:     []string{"it cannot be told what container proxy runs", "variable BIN", `set quickExitPaths: ["*"] in the spec of SidecarTerminationPolicy/mesh`},
		},
		"a command that a volume hides": {
			snapshot: observed(newPod(never, exited("main", 0), mounted(running("proxy").runs("/bin/sh"), "/bin")), targets(sidecar("proxy", mode(v1alpha1.ModeImage), noFallback, ofPolicy))),
			want:     []string{"would run /bin/sh, and the volume at /bin hides what an image has there; declare another mode"},
		},
		"what the mechanism said of itself": {
			snapshot: observed(newPod(never, exited("main", 0), running("proxy")), targets(sidecar("proxy", mode(v1alpha1.ModeCRR), respect, noFallback)),
				attempted(finished(request(0, "proxy"), 10*time.Second, "daemon has not responded"))),
			after: 20 * time.Second,
			want:  []string{`"daemon has not responded"`},
		},
		"the phase that is the first step of mode CRR": {
			snapshot: observed(newPod(onFailure, exited("main", 0), running("proxy"), unpullable("logs")), targets(sidecar("logs"), sidecar("proxy"))),
			want:     []string{"ending logs, proxy by mode PodPhase, the first step of mode CRR"},
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

func ofPolicy(t *resolve.Target) {
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
			got := plan.Next(observed(test.pod, targets(sidecar("proxy"))), done).MainsDone
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("MainsDone (-want +got):\n%s", diff)
			}
		})
	}
}
