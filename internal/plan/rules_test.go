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
	deleted := func(s *plan.Snapshot) { s.Pod.DeletionTimestamp = &metav1.Time{Time: done} }
	unscheduled := func(s *plan.Snapshot) { s.Pod.Spec.NodeName = "" }
	unknownNode := func(s *plan.Snapshot) { s.Node = plan.NodeUnknown }
	restartingAll := func(s *plan.Snapshot) {
		s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	}

	runScenarios(t, map[string]scenario{
		"a pod being deleted is ignored": {observed(finishedMain(never), oneProxy(), deleted), 0, ignored(v1alpha1.ReasonPodDeleted)},
		"restartPolicy Always is ignored": {
			observed(newPod(corev1.RestartPolicyAlways, exited("main", 0), running("proxy")), oneProxy()),
			0, ignored(v1alpha1.ReasonRestartPolicyAlways),
		},
		"a mirror pod is ignored": {observed(finishedMain(never), oneProxy(), mirror), 0, ignored(v1alpha1.ReasonMirrorPod)},
		"a guard on a mirror pod is ignored": {
			observed(finishedMain(never), oneProxy(), mirror, phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase)),
				func(s *plan.Snapshot) { s.Pod.Annotations[v1alpha1.AnnotationPhaseGuard] = "Enabled" }),
			time.Hour, ignored(v1alpha1.ReasonMirrorPod),
		},
		"a pod without restartPolicy is ignored": {observed(newPod("", exited("main", 0), running("proxy")), oneProxy()), 0, ignored(v1alpha1.ReasonRestartPolicyAlways)},
		"a pod without a sidecar is ignored":     {observed(newPod(never, exited("main", 0)), nil), 0, ignored(v1alpha1.ReasonNoSidecar)},
		"a pod that succeeded on its own is ignored": {
			observed(finishedMain(never, exited("proxy", 0)), oneProxy(), phase(corev1.PodSucceeded)),
			0, ignored(v1alpha1.ReasonPodFinished),
		},
		"a pod that failed on its own is ignored": {observed(finishedMain(never), oneProxy(), phase(corev1.PodFailed)), 0, ignored(v1alpha1.ReasonPodFinished)},
		"a pod with sidecars only is stuck": {
			observed(newPod(never, running("proxy"), running("logs")), sidecarsOf(sidecar("logs"), sidecar("proxy"))),
			0, stuck(v1alpha1.ReasonNoMainContainer),
		},
		"a pod with ended sidecars only is stuck": {observed(newPod(never, exited("proxy", 0)), oneProxy()), 0, stuck(v1alpha1.ReasonNoMainContainer)},
		"a pod without a node waits":              {observed(finishedMain(never), oneProxy(), unscheduled), 0, waits(v1alpha1.ReasonPodNotScheduled, 0)},
		"a pod whose main container runs waits":   {observed(newPod(never, running("main"), running("proxy")), oneProxy()), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"a pod waits for the last of several main containers": {
			observed(finishedMain(never, running("other"), running("proxy")), oneProxy()),
			0, waits(v1alpha1.ReasonMainContainersRunning, 0),
		},
		"a pod whose main container has no status yet waits": {
			observed(newPod(never, running("main"), running("proxy")), oneProxy(), func(s *plan.Snapshot) { s.Pod.Status.ContainerStatuses = nil }),
			0, waits(v1alpha1.ReasonMainContainersRunning, 0),
		},
		"a pod whose main container is being created waits": {
			observed(newPod(never, creating("main"), running("proxy")), oneProxy()),
			0, waits(v1alpha1.ReasonMainContainersRunning, 0),
		},
		"a pod whose main container crash-loops waits": {
			observed(newPod(onFailure, crashLooping("main"), running("proxy")), oneProxy()),
			0, waits(v1alpha1.ReasonMainContainersRunning, 0),
		},
		"a pod whose containers are all about to restart waits": {observed(finishedMain(never), oneProxy(), restartingAll), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"all containers have been restarted: no wait": {
			observed(finishedMain(never), oneProxy(respect), restartingAll, func(s *plan.Snapshot) {
				s.Pod.Status.Conditions[0].Status = corev1.ConditionFalse
				s.Pod.Status.Conditions = append(s.Pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			}),
			0, terminating(crrOfProxy),
		},
		"sidecars that exited on their own: terminated": {observed(finishedMain(never, exited("proxy", 143)), oneProxy()), 0, terminated()},
		"a sidecar drains for drainSeconds":             {observed(finishedMain(never), oneProxy(drain(20*time.Second))), 5 * time.Second, waits(v1alpha1.ReasonDraining, 15*time.Second)},
		"a sidecar is ended after its drain":            {observed(finishedMain(never), oneProxy(drain(20*time.Second), respect)), 20 * time.Second, terminating(crrOfProxy)},
		"a drain that the operator saw begin lasts although the node's clock is behind": {
			observed(finishedMain(never), oneProxy(drain(20*time.Second)), drainsSince(done.Add(50*minute))),
			50*minute + 5*time.Second, waits(v1alpha1.ReasonDraining, 15*time.Second),
		},
		"a drain that the operator saw begin ends although the node's clock is ahead": {
			observed(finishedMain(never), oneProxy(drain(20*time.Second), respect), drainsSince(done.Add(-50*minute))),
			-50*minute + 20*time.Second, terminating(crrOfProxy),
		},
		"a clock behind the node's adds no drain":     {observed(finishedMain(never), oneProxy(respect)), -3 * time.Hour, terminating(crrOfProxy)},
		"no mode is chosen while the node is unknown": {observed(finishedMain(never), oneProxy(), unknownNode), 0, pending(v1alpha1.ReasonNodeUnknown, 0)},
		"no mode is chosen while a sidecar is being created": {
			observed(finishedMain(never, creating("proxy")), oneProxy()),
			0, pending(v1alpha1.ReasonSidecarStarting, 0),
		},
		"a written phase is an attempt in progress": {
			observed(finishedMain(never), oneProxy(), phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase))),
			10 * time.Second, inProgress(50 * time.Second),
		},
		"a written phase with ended sidecars: terminated": {
			observed(finishedMain(never, exited("proxy", 137)), oneProxy(), phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase))),
			0, terminated(),
		},
		"a written phase with a never-started sidecar: terminated": {
			observed(finishedMain(never, unpullable("proxy")), oneProxy(), phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase))),
			0, terminated(),
		},
		"a main container's exit code lost in the teardown: done": {
			observed(newPod(onFailure, exited("main", 137), exited("proxy", 137)), oneProxy(), phase(corev1.PodSucceeded), attempted(phaseWrite(0, podPhase))),
			0, terminated(),
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
			observed(newPod(never, running("main"), exited("other", 0), running("third"), running("proxy")), oneProxy()),
			0, []string{"main", "third"},
		},
		"every main container while all restart": {
			observed(finishedMain(never, exited("other", 0), running("proxy")), oneProxy(), func(s *plan.Snapshot) {
				s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
			}),
			0, []string{"main", "other"},
		},
		"the sidecar that is being created": {observed(finishedMain(never, creating("proxy")), oneProxy()), 0, []string{"proxy"}},
		"the containers that are all sidecars": {
			observed(newPod(never, running("a"), running("b")), sidecarsOf(sidecar("a"), sidecar("b"))),
			0, []string{"a, b", "leave at least one container undeclared"},
		},
		"each mode that cannot be used, and what would help": {
			observed(finishedMain(never), oneProxy(noImage), withoutKruise, withoutPodPhase),
			0, []string{"proxy", "CRR: OpenKruise", "PodPhase: the operator runs with --pod-phase=Disabled", "--quick-exit-image"},
		},
		"how a command gets into an image": {
			observed(finishedMain(never, running("proxy").runs("/app/server")), oneProxy(mode(image), noFallback, ofPolicy, from(resolve.SourcePolicy))),
			0, []string{"mode Image cannot end container proxy: container proxy runs /app/server, which quick-exit image " + quickExit + " does not cover", "use an image that has the program there and set quickExitPaths: [default, /app/server] in the spec of SidecarTerminationPolicy/mesh, or declare another mode"},
		},
		"how a command is added to those of an image": {
			observed(finishedMain(never, running("proxy").runs("server")), oneProxy(mode(image), noFallback, ofPolicy, from(resolve.SourcePolicy), having("/opt/x"))),
			0, []string{"runs /usr/local/bin/server", "add /usr/local/bin/server to quickExitPaths in the spec of SidecarTerminationPolicy/mesh"},
		},
		"a command for the image of a sidecar's entry": {
			observed(finishedMain(never, running("proxy").runs("/app/server")), oneProxy(mode(image), noFallback, ofPolicy, from(resolve.SourceEntry))),
			0, []string{"set quickExitPaths: [default, /app/server] in sidecar proxy of SidecarTerminationPolicy/mesh"},
		},
		"a command added for the image of a sidecar's entry": {
			observed(finishedMain(never, running("proxy").runs("/app/server")),
				oneProxy(mode(image), noFallback, ofPolicy, from(resolve.SourceEntry), having("/opt/x"))),
			0, []string{"add /app/server to quickExitPaths in sidecar proxy of SidecarTerminationPolicy/mesh"},
		},
		"a command for a policy without an image": {
			observed(finishedMain(never, running("proxy").runs("/app/server")),
				oneProxy(mode(image), noFallback, ofPolicy, from(resolve.SourceOperator), having("/opt/x"))),
			0, []string{"set image with quickExitPaths: [default, /app/server] in the spec of SidecarTerminationPolicy/mesh"},
		},
		"a command without a policy": {
			observed(finishedMain(never, running("proxy").runs("/app/server")), oneProxy(mode(image), noFallback)),
			0, []string{"run the operator with --quick-exit-paths=default,/app/server"},
		},
		"where the operator has the flag": {
			observed(finishedMain(never, running("proxy").runs("/app/server")), oneProxy(mode(image), noFallback, having("/opt/x"))),
			0, []string{"add /app/server to the operator's --quick-exit-paths"},
		},
		"a command that cannot be told": {
			observed(finishedMain(never, running("proxy").runs("$(BIN)/server")), oneProxy(mode(image), noFallback, ofPolicy, from(resolve.SourcePolicy))),
			0, []string{"no list of paths covers the command of container proxy", "may refer to a variable", `set quickExitPaths: ["*"] in the spec of SidecarTerminationPolicy/mesh`},
		},
		"a command that a volume hides": {
			observed(finishedMain(never, mounted(running("proxy").runs("/bin/sh"), "/bin")), oneProxy(mode(image), noFallback, ofPolicy)),
			0, []string{"would run /bin/sh, but the volume at /bin hides the image's program there; declare another mode"},
		},
		"what the mechanism said of itself": {
			observed(finishedMain(never), oneProxy(mode(crr), respect, noFallback),
				attempted(finished(crrAttempt(0, "proxy"), 10*time.Second, "daemon has not responded"))),
			20 * time.Second, []string{`"daemon has not responded"`},
		},
		"the phase that is the first step of mode CRR": {
			observed(finishedMain(onFailure, running("proxy"), unpullable("logs")), sidecarsOf(sidecar("logs"), sidecar("proxy"))),
			0, []string{"ending logs, proxy by mode PodPhase (first step of mode CRR)"},
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
			got := plan.Next(observed(test.pod, oneProxy()), done).MainsDone
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("MainsDone (-want +got):\n%s", diff)
			}
		})
	}
}
