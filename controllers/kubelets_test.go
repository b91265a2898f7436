// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

const newKubelet = "v1.40.0"

func nodeWith(version string, conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version}, Conditions: conditions}}
}

func TestKubeletOfNode(t *testing.T) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(podtest.Noon)}
	notReady := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(podtest.Noon)}
	for name, tc := range map[string]struct {
		node *corev1.Node
		want plan.Kubelet
	}{
		"no node":               {nil, plan.Kubelet{}},
		"a ready node":          {nodeWith("v1.36.3-eks-a737599+x_1", ready), plan.Kubelet{Version: "v1.36.3-eks-a737599+x_1", ReadySince: podtest.Noon}},
		"a node that is not":    {nodeWith(newKubelet, notReady), plan.Kubelet{Version: newKubelet}},
		"no version":            {nodeWith("", ready), plan.Kubelet{}},
		"a version of 64 bytes": {nodeWith(strings.Repeat("v", 64)), plan.Kubelet{Version: strings.Repeat("v", 64)}},
		"a longer version":      {nodeWith(strings.Repeat("v", 65), ready), plan.Kubelet{}},
		"a strange version":     {nodeWith("v1.36.3\n"), plan.Kubelet{}},
		"invalid UTF-8":         {nodeWith("v1\xff"), plan.Kubelet{}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, k := range []*kubelets{nil, {}} {
				if diff := cmp.Diff(tc.want, k.of(tc.node)); diff != "" {
					t.Errorf("kubelet (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestKubeletsLearn(t *testing.T) {
	type step struct {
		after    time.Duration // since noon
		evidence plan.PhaseEvidence
		written  time.Duration // since noon
		want     bool
	}
	const honored, unreported, ignored = plan.PhaseHonored, plan.PhaseUnreported, plan.PhaseIgnored
	minute := time.Minute
	for name, steps := range map[string][]step{
		"one pod is enough":                    {{6 * minute, ignored, 0, true}, {7 * minute, unreported, 0, true}},
		"a phase that is honored ends it":      {{6 * minute, ignored, 0, true}, {7 * minute, honored, 7 * minute, false}},
		"three pods that report nothing":       {{2 * minute, unreported, 0, false}, {3 * minute, unreported, 0, false}, {4 * minute, unreported, 0, true}},
		"not three pods in a row":              {{2 * minute, unreported, 0, false}, {3 * minute, unreported, 0, false}, {4 * minute, honored, 0, false}, {8 * minute, unreported, 5 * minute, false}},
		"a phase was honored since":            {{5 * minute, honored, 0, false}, {6 * minute, ignored, 0, false}, {7 * minute, ignored, 5 * minute, false}},
		"a phase was honored before":           {{5 * minute, honored, 0, false}, {12 * minute, ignored, 6 * minute, true}},
		"a phase that is honored resets twice": {{6 * minute, ignored, 0, true}, {7 * minute, honored, 0, false}, {14 * minute, ignored, 8 * minute, true}},
	} {
		t.Run(name, func(t *testing.T) {
			kubeletIgnoresPhase.Reset()
			clock := clocktesting.NewFakePassiveClock(podtest.Noon)
			k := &kubelets{clock: clock}
			before := false
			for i, s := range steps {
				clock.SetTime(podtest.Noon.Add(s.after))
				ignores, changed := k.learn(newKubelet, s.evidence, podtest.Noon.Add(s.written))
				if ignores != s.want || changed != (before != s.want) || k.of(nodeWith(newKubelet)).IgnoresPhase != s.want {
					t.Fatalf("step %d: ignores %t, changed %t, want %t", i, ignores, changed, s.want)
				}
				if got := testutil.CollectAndCount(kubeletIgnoresPhase) == 1; got != s.want {
					t.Errorf("step %d: the metric has the version: %t", i, got)
				}
				if k.of(nodeWith("v1.36.3")).IgnoresPhase {
					t.Error("another version ignores phases")
				}
				before = s.want
			}
		})
	}
}

// The version with the oldest evidence is forgotten, if possible one that does not ignore phases.
func TestKubeletsAreBounded(t *testing.T) {
	kubeletIgnoresPhase.Reset()
	clock := clocktesting.NewFakePassiveClock(podtest.Noon)
	k := &kubelets{clock: clock}
	learn := func(version string, evidence plan.PhaseEvidence) {
		clock.SetTime(clock.Now().Add(time.Minute))
		k.learn(version, evidence, podtest.Noon)
	}
	learn("v1.40.0", plan.PhaseIgnored)
	learn("v1.40.1", plan.PhaseIgnored)
	for i := range 2 * maxKubelets {
		learn(fmt.Sprintf("v1.41.%d", i), plan.PhaseHonored)
	}
	if k.versions["v1.40.0"] == nil || len(k.versions) != maxKubelets {
		t.Errorf("%d versions, and one that ignores phases was forgotten: %t", len(k.versions), k.versions["v1.40.0"] == nil)
	}
	for i := range maxKubelets - 1 {
		learn(fmt.Sprintf("v1.42.%d", i), plan.PhaseIgnored)
	}
	if k.versions["v1.40.0"] != nil || k.versions["v1.40.1"] == nil || testutil.CollectAndCount(kubeletIgnoresPhase) != maxKubelets {
		t.Errorf("not the oldest version was forgotten; %d are in the metric", testutil.CollectAndCount(kubeletIgnoresPhase))
	}
}

// kubeletTest is a pod whose phase this process has written at noon.
type kubeletTest struct {
	*statesTest
}

func newKubeletTest(t *testing.T) *kubeletTest {
	t.Helper()
	kubeletIgnoresPhase.Reset()
	k := &kubeletTest{newStatesTest(t)}
	k.clock.SetTime(podtest.Noon)
	return k
}

// snapshotOf is a snapshot of a pod of mode PodPhase on a node with the new kubelet.
func (k *kubeletTest) snapshotOf(uid types.UID, changes ...func(*plan.Snapshot)) plan.Snapshot {
	pod := podtest.New(podtest.MainDone, func(p *corev1.Pod) { p.UID, p.Name = uid, "job-"+string(uid) })
	s := plan.Snapshot{
		Pod: pod, Node: plan.NodeReal, Kubelet: k.kubelets.of(nodeWith(newKubelet)),
		Capabilities: plan.Capabilities{EnabledModes: plan.EnabledModes{PodPhase: plan.PodPhaseEnabled, Image: true}},
		View: resolve.View{Mains: []string{"main"}, Sidecars: []resolve.Sidecar{{
			Container: "proxy", Mode: v1alpha1.ModeAuto, Image: "quick-exit:v1", ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: v1alpha1.FallbackEnabled,
		}}},
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// writes records that this process has written the pod's phase.
func (k *kubeletTest) writes(s plan.Snapshot) {
	k.record(resolvedPodOf(s.Pod, mesh), terminating(v1alpha1.ModePodPhase), nil)
	k.recordPhase(s, terminating(v1alpha1.ModePodPhase))
}

func recordedPhase(s *plan.Snapshot) {
	s.Attempts = []plan.Attempt{{Mode: v1alpha1.ModePodPhase, For: v1alpha1.ModePodPhase, Started: podtest.Noon}}
}

func succeeded(s *plan.Snapshot) { s.Pod.Status.Phase = corev1.PodSucceeded }

func swapEnded(s *plan.Snapshot) {
	s.Pod.Status.ContainerStatuses[1] = podtest.Ended("proxy", 0)
	s.Pod.Status.ContainerStatuses[1].RestartCount = 1
}

// ignoresPhaseOf lets the kubelet ignore the pod's phase.
func (k *kubeletTest) ignoresPhaseOf(uid types.UID) {
	k.writes(k.snapshotOf(uid))
	start := k.clock.Now()
	k.kubelet(k.snapshotOf(uid, recordedPhase), start.Add(6*time.Minute))
	k.clock.SetTime(start.Add(7 * time.Minute))
	k.kubelet(k.snapshotOf(uid, recordedPhase, swapEnded), k.clock.Now())
}

func TestKubeletThatIgnoresPhaseIsReported(t *testing.T) {
	k := newKubeletTest(t)
	k.ignoresPhaseOf("a")
	k.kubelet(k.snapshotOf("a", recordedPhase, swapEnded), k.clock.Now())
	if got := testutil.ToFloat64(kubeletIgnoresPhase.WithLabelValues(newKubelet)); got != 1 {
		t.Errorf("the metric is %v", got)
	}
	want := []string{
		"Normal Terminating batch/job-a: ending proxy by mode PodPhase [SidecarTerminationPolicy/mesh]",
		"Warning PhaseIgnoredByKubelet batch/job-a: the kubelet of node node-1 ignored the phase that the operator wrote; on nodes with kubelet v1.40.0, " +
			"modes that write the phase now come after Image, and one pod in 30m0s tries the phase again; set a quick-exit image that has the sidecars' commands, " +
			"or install OpenKruise [SidecarTerminationPolicy/mesh]",
	}
	if diff := cmp.Diff(want, k.events.take()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if s := k.snapshotOf("b"); !k.kubelet(s, k.clock.Now()).IgnoresPhase {
		t.Error("the next pod does not profit")
	}
}

func TestEvidenceThatDoesNotCount(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(k *kubeletTest)
		uid     types.UID
	}{
		"another process wrote the phase": {func(*kubeletTest) {}, "a"},
		"another pod of the same name": {func(k *kubeletTest) {
			k.writes(k.snapshotOf("a", func(s *plan.Snapshot) { s.Pod.Name = "job-b" }))
		}, "b"},
		"the version is unknown": {func(k *kubeletTest) {
			k.writes(k.snapshotOf("a", func(s *plan.Snapshot) { s.Kubelet = plan.Kubelet{} }))
		}, "a"},
		"the pod was forgotten": {func(k *kubeletTest) {
			k.writes(k.snapshotOf("a"))
			k.forget(keyOf(k.snapshotOf("a").Pod))
		}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKubeletTest(t)
			tc.prepare(k)
			k.kubelet(k.snapshotOf(tc.uid, recordedPhase), podtest.Noon.Add(6*time.Minute))
			k.kubelet(k.snapshotOf(tc.uid, recordedPhase, swapEnded), podtest.Noon.Add(7*time.Minute))
			if len(k.kubelets.versions) > 0 {
				t.Error("the operator has learned from it")
			}
		})
	}
}

// Half an hour after the operator has learned, one pod writes its phase again, from its first reconcile to its end. Others do not, and
// neither do pods that wait for their main containers or whose first mode is another one.
func TestOnePodInHalfAnHourTriesThePhase(t *testing.T) {
	k := newKubeletTest(t)
	k.ignoresPhaseOf("a")
	k.clock.SetTime(k.clock.Now().Add(phaseRetryInterval))
	now := k.clock.Now()
	stillRuns := func(s *plan.Snapshot) { s.Pod.Status.ContainerStatuses[0] = podtest.Running("main") }
	declaresImage := func(s *plan.Snapshot) { s.View.Sidecars[0].Mode = v1alpha1.ModeImage }
	tried := func(s *plan.Snapshot) {
		s.Attempts = []plan.Attempt{{Mode: v1alpha1.ModeImage, For: v1alpha1.ModeImage, RestartCounts: map[string]int32{"proxy": 0}, Started: podtest.Noon.Add(-time.Hour)}}
	}
	for _, change := range []func(*plan.Snapshot){stillRuns, declaresImage, tried} {
		if !k.kubelet(k.snapshotOf("b", change), now).IgnoresPhase {
			t.Error("a pod tries the phase that would not write it first")
		}
	}
	stabilizing := func(s *plan.Snapshot) {
		s.UnchangedSince, s.ContainersUnchangedSince, s.StabilizationWindow = now, now, time.Second
	}
	if k.kubelet(k.snapshotOf("c", stabilizing), now).IgnoresPhase {
		t.Error("no pod tries the phase")
	}
	if !k.kubelet(k.snapshotOf("d"), now).IgnoresPhase {
		t.Error("two pods try the phase")
	}
	if k.kubelet(k.snapshotOf("c"), now).IgnoresPhase {
		t.Error("the pod does not go on")
	}
	// It works: all pods use the phase again.
	k.writes(k.snapshotOf("c"))
	completed := func(s *plan.Snapshot) {
		s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: plan.PodCompleted}}
	}
	ended := func(s *plan.Snapshot) { s.Pod.Status.ContainerStatuses[1] = podtest.Ended("proxy", 0) }
	k.kubelet(k.snapshotOf("c", recordedPhase, succeeded, completed), now)
	k.kubelet(k.snapshotOf("c", recordedPhase, succeeded, completed, ended), now)
	if k.kubelet(k.snapshotOf("d"), now).IgnoresPhase || testutil.CollectAndCount(kubeletIgnoresPhase) != 0 {
		t.Error("the operator has not learned that the phase works")
	}
}
