// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

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
	of := func(changes ...func(*plan.Snapshot)) plan.Snapshot {
		return observed(finishedMain(never), oneProxy(), changes...)
	}
	unscheduled := func(s *plan.Snapshot) { s.Pod.Spec.NodeName = "" }

	runScenarios(t, map[string]scenario{
		"restartPolicy Always is ignored":              {observed(newPod(corev1.RestartPolicyAlways, exited("main", 0), running("proxy")), oneProxy(), unmarked), 0, ignored(v1alpha1.ReasonRestartPolicyAlways)},
		"a pod without restartPolicy is ignored":       {observed(newPod("", exited("main", 0), running("proxy")), oneProxy(), unmarked), 0, ignored(v1alpha1.ReasonRestartPolicyAlways)},
		"a mirror pod is ignored":                      {of(unmarked, mirror), 0, ignored(v1alpha1.ReasonMirrorPod)},
		"a pod without a sidecar is ignored":           {observed(newPod(never, exited("main", 0)), nil), 0, ignored(v1alpha1.ReasonNoSidecar)},
		"a pod that succeeded on its own is ignored":   {observed(finishedMain(never, exited("proxy", 0)), oneProxy(), phase(corev1.PodSucceeded)), 0, ignored(v1alpha1.ReasonPodFinished)},
		"a pod that failed on its own is ignored":      {observed(newPod(never, exited("main", 3), exited("proxy", 0)), oneProxy(), phase(corev1.PodFailed)), 0, ignored(v1alpha1.ReasonPodFinished)},
		"a pod that has ended by its phase is ignored": {observed(finishedMain(never, exited("proxy", 137)), oneProxy(), endedByPhase), 0, ignored(v1alpha1.ReasonPodFinished)},
		"a finished pod with the end of another pod is ignored": {
			of(phase(corev1.PodSucceeded), func(s *plan.Snapshot) { annotate(s.Pod, v1alpha1.AnnotationEnd, "PodPhase/other") }),
			0, ignored(v1alpha1.ReasonPodFinished),
		},
		"a pod with sidecars only is stuck":                      {observed(newPod(never, running("proxy"), running("logs")), sidecarsOf(sidecar("logs"), sidecar("proxy")), unmarked), 0, stuck(v1alpha1.ReasonNoMainContainer)},
		"a pod with ended sidecars only is stuck":                {observed(newPod(never, exited("proxy", 0)), oneProxy(), unmarked), 0, stuck(v1alpha1.ReasonNoMainContainer)},
		"a pod without a node waits":                             {of(unmarked, unscheduled), 0, waits(v1alpha1.ReasonPodNotScheduled, 0)},
		"a pod being deleted is ignored":                         {of(beingDeleted), 0, ignored(v1alpha1.ReasonPodDeleted)},
		"a pod being evicted is ignored":                         {of(evicted), 0, ignored(v1alpha1.ReasonPodDisrupted)},
		"a disrupted pod is ignored":                             {of(condition(corev1.DisruptionTarget)), 0, ignored(v1alpha1.ReasonPodDisrupted)},
		"a disrupted pod that ends by its phase is looked after": {of(endedByPhase, condition(corev1.DisruptionTarget)), minute, fallingBack(crrOfProxy)},
		"a deleted pod that ends by its phase is ignored":        {of(endedByPhase, beingDeleted), minute, ignored(v1alpha1.ReasonPodDeleted)},
		"a pod whose main container runs waits":                  {observed(newPod(never, running("main"), running("proxy")), oneProxy()), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"a pod waits for the last of several main containers":    {observed(finishedMain(never, running("other"), running("proxy")), oneProxy()), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"a pod whose main container has no status yet waits": {
			observed(newPod(never, running("main"), running("proxy")), oneProxy(), func(s *plan.Snapshot) { s.Pod.Status.ContainerStatuses = nil }),
			0, waits(v1alpha1.ReasonMainContainersRunning, 0),
		},
		"a pod whose main container is being created waits":     {observed(newPod(never, creating("main"), running("proxy")), oneProxy()), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"a pod whose main container crash-loops waits":          {observed(newPod(onFailure, crashLooping("main"), running("proxy")), oneProxy()), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"a pod whose containers are all about to restart waits": {of(condition(corev1.AllContainersRestarting)), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"all containers have been restarted: no wait": {
			of(condition(corev1.AllContainersRestarting), condition(corev1.PodReady), func(s *plan.Snapshot) {
				s.Pod.Status.Conditions[0].Status = corev1.ConditionFalse
			}),
			0, terminating(crrOfProxy),
		},
		"sidecars that exited on their own: terminated": {observed(finishedMain(never, exited("proxy", 143)), oneProxy(), assumeMarked), 0, terminated()},
		"a sidecar drains for drainSeconds":             {observed(finishedMain(never), oneProxy(drain(20*time.Second))), 5 * time.Second, waits(v1alpha1.ReasonDraining, 15*time.Second)},
		"a sidecar is ended after its drain":            {observed(finishedMain(never), oneProxy(drain(20*time.Second))), 20 * time.Second, terminating(crrOfProxy)},
		"a drain that the operator saw begin lasts although the node's clock is behind": {
			observed(finishedMain(never), oneProxy(drain(20*time.Second)), drainsSince(done.Add(50*minute))),
			50*minute + 5*time.Second, waits(v1alpha1.ReasonDraining, 15*time.Second),
		},
		"a drain that the operator saw begin ends although the node's clock is ahead": {
			observed(finishedMain(never), oneProxy(drain(20*time.Second)), drainsSince(done.Add(-50*minute))),
			-50*minute + 20*time.Second, terminating(crrOfProxy),
		},
		"a clock behind the node's adds no drain":            {of(), -3 * time.Hour, terminating(crrOfProxy)},
		"no mode is chosen while the node is unknown":        {of(onUnknownNode), 0, pending(v1alpha1.ReasonNodeUnknown, 0)},
		"no mode is chosen while a sidecar is being created": {observed(finishedMain(never, creating("proxy")), oneProxy()), 0, pending(v1alpha1.ReasonSidecarStarting, 0)},
		"a main container's exit code lost in the teardown: done": {
			observed(newPod(onFailure, exited("main", 137), running("proxy")), oneProxy(), endedByPhase),
			10 * time.Second, inProgress(50 * time.Second),
		},
	})
}

// TestMessages covers what users read. The reasons why modes cannot be used are in TestWhyNot.
func TestMessages(t *testing.T) {
	pod := func(proxy container, changes ...func(*resolve.Sidecar)) plan.Snapshot {
		return observed(finishedMain(never, proxy), oneProxy(changes...))
	}
	command := func(word string, changes ...func(*resolve.Sidecar)) plan.Snapshot {
		return pod(running("proxy").runs(word), append(changes, mode(image), noFallback)...)
	}
	const app, inPolicy = "/app/server", " in the spec of SidecarTerminationPolicy/mesh"
	ofPolicy, ofEntry, ofOperator := from(resolve.SourcePolicy), from(resolve.SourceEntry), from(resolve.SourceOperator)
	two := sidecarsOf(sidecar("logs"), sidecar("proxy"))
	for want, s := range map[string]plan.Snapshot{
		"finish: main, third":      observed(newPod(never, running("main"), exited("other", 0), running("third"), running("proxy")), oneProxy()),
		"finish: main, other":      observed(finishedMain(never, exited("other", 0), running("proxy")), oneProxy(), condition(corev1.AllContainersRestarting)),
		"creating container proxy": pod(creating("proxy")),
		"every container (logs, proxy) is declared a sidecar, so no main container says when the pod is done; leave at least one container undeclared": observed(newPod(never, running("logs"), running("proxy")), two, unmarked),
		"exit codes of these containers do not count: logs, proxy":                                                                                     observed(newPod(never, running("main"), running("logs"), running("proxy")), two, unmarked),
		"recording it, because admission policy sidecar-termination-outcome has not":                                                                   observed(finishedMain(never), oneProxy(), undecided),
		"ending logs, proxy by mode PodPhase":                                                                                                          observed(finishedMain(onFailure, running("proxy"), unpullable("logs")), two, withoutKruise),
		"marked to end by its phase, which is still Running; PodPhase: the API server denied the write":                                                observed(finishedMain(never), oneProxy(noImage), withoutKruise, ending(v1alpha1.EndPodPhase), denying(podPhase)),
		"no mode can end container proxy (CRR: OpenKruise does not serve":                                                                              observed(finishedMain(never), oneProxy(noImage), withoutKruise, withoutPodPhase),
		"PodPhase: the operator runs with --pod-phase=Disabled; Image: no quick-exit image":                                                            observed(finishedMain(never), oneProxy(noImage), withoutKruise, withoutPodPhase),
		`finished without ending container proxy ("daemon has not responded")`:                                                                         observed(finishedMain(never), oneProxy(mode(crr), noFallback), attempted(finished(at(crrAttempt(1, "proxy"), -30*time.Second), -20*time.Second, "daemon has not responded"))),
		"container proxy was stopped, and the kubelet restarted it":                                                                                    observed(finishedMain(onFailure, running("proxy").restarted(1)), oneProxy(mode(crr), noFallback), attempted(finished(at(crrAttempt(1, "proxy"), -30*time.Second), -20*time.Second, ""))),
		"it is waiting: ImagePullBackOff":                                                                                                              observed(finishedMain(never, unpullable("proxy").restarted(1)), oneProxy(mode(image), noFallback), attempted(at(swap("proxy"), -time.Hour))),
		"every usable mode has failed: container proxy had not ended 1m0s after mode Image":                                                            observed(finishedMain(never), oneProxy(mode(image), noFallback), attempted(at(swap("proxy"), -time.Hour))),
		"after mode Image was used; PodPhase: the API server denied the write":                                                                         observed(finishedMain(never), oneProxy(mode(image)), withoutKruise, attempted(at(swap("proxy"), -time.Hour)), denying(podPhase)),
		"mode Image cannot end container proxy: container proxy runs /app/server, which quick-exit image " + quickExit + " does not cover":             command(app),

		"use an image that has the program there and set quickExitPaths: [default, /app/server]" + inPolicy + ", or declare another mode": command(app, byPolicy, ofPolicy),
		"add /usr/local/bin/server to quickExitPaths" + inPolicy:                                                                          command("server", byPolicy, ofPolicy, having("/opt/x")),
		"set quickExitPaths: [default, /app/server] in sidecar proxy of SidecarTerminationPolicy/mesh":                                    command(app, byPolicy, ofEntry),
		"add /app/server to quickExitPaths in sidecar proxy of SidecarTerminationPolicy/mesh":                                             command(app, byPolicy, ofEntry, having("/opt/x")),
		"set image with quickExitPaths: [default, /app/server]" + inPolicy:                                                                command(app, byPolicy, ofOperator, having("/opt/x")),
		"run the operator with --quick-exit-paths=default,/app/server":                                                                    command(app),
		"add /app/server to the operator's --quick-exit-paths":                                                                            command(app, having("/opt/x")),
		"no list of paths covers the command of container proxy":                                                                          command("$(BIN)/server", byPolicy, ofPolicy),
		`set quickExitPaths: ["*"]` + inPolicy:                                                                                            command("$(BIN)/server", byPolicy, ofPolicy),
		"would run /bin/sh, but the volume at /bin hides the image's program there; declare another mode":                                 pod(mounted(running("proxy").runs("/bin/sh"), "/bin"), mode(image), noFallback),
	} {
		if decision := plan.Next(s, done); !strings.Contains(decision.Message, want) {
			t.Errorf("message %q does not contain %q", decision.Message, want)
		}
	}
}

func mounted(c container, path string) container {
	c.spec.VolumeMounts = []corev1.VolumeMount{{Name: "volume", MountPath: path}}
	return c
}

// TestTimes covers when the last main container and the last sidecar ended.
func TestTimes(t *testing.T) {
	never, early := corev1.RestartPolicyNever, done.Add(-minute)
	tests := map[string]struct {
		pod                      *corev1.Pod
		mainsDone, sidecarsEnded time.Time
	}{
		"no main container":    {newPod(never, exited("proxy", 0)), time.Time{}, done},
		"main container runs":  {newPod(never, running("main"), running("proxy")), time.Time{}, time.Time{}},
		"last main container":  {newPod(never, exited("main", 0).endedAt(early), exited("other", 0), running("proxy")), done, time.Time{}},
		"node gives no times":  {newPod(never, exited("main", 0).endedAt(time.Time{}), exited("proxy", 0).endedAt(time.Time{})), done.Add(-2 * time.Hour), time.Time{}},
		"sidecar ends first":   {newPod(never, exited("main", 0), exited("proxy", 7).endedAt(early)), done, early},
		"sidecar will restart": {newPod(onFailure, exited("main", 0), exited("proxy", 7)), done, time.Time{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			snapshot := observed(test.pod, oneProxy())
			decision := plan.Next(snapshot, done)
			if diff := cmp.Diff([]time.Time{test.mainsDone, test.sidecarsEnded}, []time.Time{decision.MainsDone, decision.SidecarsEnded}); diff != "" {
				t.Errorf("MainsDone and SidecarsEnded (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.mainsDone, plan.MainsDone(snapshot)); diff != "" {
				t.Errorf("MainsDone() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnprocessable(t *testing.T) {
	sized := func(containers, initContainers, statuses int) *corev1.Pod {
		pod := newPod(never)
		pod.Spec.Containers = make([]corev1.Container, containers)
		pod.Spec.InitContainers = make([]corev1.Container, initContainers)
		pod.Status.ContainerStatuses = make([]corev1.ContainerStatus, statuses)
		return pod
	}
	evicted := newPod(never)
	evicted.Status.Reason = "Evicted"
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want v1alpha1.Reason
	}{
		"most containers":           {sized(plan.MaxContainers-1, 1, plan.MaxContainers), ""},
		"too many containers":       {sized(plan.MaxContainers, 1, 0), v1alpha1.ReasonPodTooLarge},
		"too many statuses":         {sized(1, 0, plan.MaxContainers+1), v1alpha1.ReasonPodTooLarge},
		"stub":                      {plan.Stub(newPod(never), "too many bytes"), v1alpha1.ReasonPodTooLarge},
		"pod with a reason":         {evicted, ""},
		"pod without restartPolicy": {newPod(""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, message := plan.Unprocessable(tc.pod); got != tc.want || (message == "") != (tc.want == "") {
				t.Errorf("got %q (%s), want %q", got, message, tc.want)
			}
		})
	}
}
