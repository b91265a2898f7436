// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// marksTest decides about the marks of pods as reconciles do, and writes them at once.
type marksTest struct {
	*statesTest
	written int
}

func newMarksTest(t *testing.T) *marksTest {
	t.Helper()
	return &marksTest{statesTest: newStatesTest(t)}
}

func (m *marksTest) reconcile(pod *corev1.Pod, policies ...resolve.Policy) plan.Decision {
	resolved := resolvedPodOf(pod, policies...)
	if !resolved.needsAttention() {
		m.forget(keyOf(pod))
		return plan.Decision{}
	}
	snapshot := plan.Snapshot{Pod: pod, View: resolved.resolution.Enforced, Node: plan.NodeReal}
	m.complete(&snapshot)
	decision := plan.Next(snapshot, m.clock.Now())
	for _, write := range decision.Writes {
		if write.Mark != nil {
			before := pod.DeepCopy()
			markedWith(write.Mark.IgnoredExitCodes...)(pod)
			m.marked(before, pod)
			m.written++
		}
	}
	m.record(resolved, decision, executionOf(decision))
	return decision
}

func (m *marksTest) wait(d time.Duration) { m.clock.SetTime(m.clock.Now().Add(d)) }

// markedWith gives the pod a mark and the answer of the admission policy.
func markedWith(ignored ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
		pod.Annotations = map[string]string{
			v1alpha1.AnnotationIgnoredExitCodes: strings.Join(ignored, ",") + "/" + string(pod.UID),
			v1alpha1.AnnotationMainContainers:   v1alpha1.MainsRunning + "/" + string(pod.UID),
		}
	}
}

func unmarked(pod *corev1.Pod) {
	delete(pod.Labels, v1alpha1.LabelOutcome)
	pod.Annotations = nil
}

func TestMarksOfOnePodHaveRate(t *testing.T) {
	declared := []resolve.Policy{mesh}
	for name, tc := range map[string]struct {
		every   time.Duration
		flip    func(step int, pod *corev1.Pod) []resolve.Policy
		atLeast int
		atMost  int
	}{
		"declared and not, in turn": {time.Second, func(step int, _ *corev1.Pod) []resolve.Policy { return declared[:step%2] }, 60, 70},
		"the same without the label": {time.Second, func(step int, pod *corev1.Pod) []resolve.Policy {
			if step%2 == 0 {
				unmarked(pod)
			}
			return declared[:step%2]
		}, 60, 70},
		"the mark is removed": {time.Second, func(_ int, pod *corev1.Pod) []resolve.Policy {
			unmarked(pod)
			return declared
		}, 60, 70},
		"the list of no policy is restored": {time.Second, func(_ int, pod *corev1.Pod) []resolve.Policy {
			markedWith("proxy")(pod)
			return nil
		}, 60, 70},
		"slow changes are all written": {2 * time.Minute, func(step int, _ *corev1.Pod) []resolve.Policy { return declared[:step%2] }, 29, 30},
	} {
		t.Run(name, func(t *testing.T) {
			m, pod := newMarksTest(t), podtest.New()
			for step := range int(time.Hour / tc.every) {
				m.reconcile(pod, tc.flip(step, pod)...)
				m.wait(tc.every)
			}
			if m.written < tc.atLeast || m.written > tc.atMost {
				t.Errorf("%d marks in an hour, want %d to %d", m.written, tc.atLeast, tc.atMost)
			}
		})
	}
}

// A pod that was marked too often while its main container ran still gets its record at once.
func TestMarkLimitKeepsOneForRecord(t *testing.T) {
	m, pod := newMarksTest(t), podtest.New()
	for step := range 4 * podMarks {
		m.reconcile(pod, []resolve.Policy{mesh}[:step%2]...)
	}
	podtest.MainDone(pod)
	pod.ResourceVersion = "18"
	if got := m.reconcile(pod, mesh); len(got.Writes) == 0 || got.Writes[0].Mark == nil || got.Writes[0].Mark.Record == "" {
		t.Errorf("nothing is recorded: %+v", got)
	}
}

// TestMarksOfOneNamespaceHaveRate adds a sidecar to the policy of many marked pods. Each is reconciled again when its decision says.
func TestMarksOfOneNamespaceHaveRate(t *testing.T) {
	const number = 3000
	m := newMarksTest(t)
	start := m.clock.Now()
	edited := podtest.Policy("mesh", "proxy", "main2")
	podOf := func(i int) *corev1.Pod {
		return podtest.New(markedWith("proxy"), func(pod *corev1.Pod) {
			pod.Name, pod.UID = fmt.Sprintf("job-%d", i), types.UID(fmt.Sprint(i))
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "main2"})
		})
	}
	pods, waiting := map[int]*corev1.Pod{}, map[int]time.Time{}
	for i := range number {
		pods[i], waiting[i] = podOf(i), start
	}
	decisions, last := 0, start
	for step := start; len(waiting) > 0 && step.Sub(start) < time.Hour; step = step.Add(10 * time.Millisecond) {
		m.clock.SetTime(step)
		for i := range number {
			at, waits := waiting[i]
			if !waits || at.After(step) {
				continue
			}
			decision := m.reconcile(pods[i], edited)
			decisions++
			if delete(waiting, i); decision.MarkWaits {
				waiting[i] = step.Add(decision.RequeueAfter)
			} else {
				last = step
			}
		}
		if step.Equal(start) {
			if m.written != namespaceMarks {
				t.Errorf("%d marks at once, want %d", m.written, namespaceMarks)
			}
			other, first, done := podOf(number), podOf(number+1), podOf(number+2)
			other.Namespace = "other"
			unmarked(first)
			podtest.MainDone(done)
			done.Status.ContainerStatuses = append(done.Status.ContainerStatuses, podtest.Running("main2"))
			for name, pod := range map[string]*corev1.Pod{"of another namespace": other, "a first mark": first, "main containers are done": done} {
				policy := edited
				policy.Ref.Namespace = pod.Namespace
				if got := m.reconcile(pod, policy); len(got.Writes) == 0 {
					t.Errorf("%s: the mark waits: %+v", name, got)
				}
			}
		}
	}
	if rate := float64(number-namespaceMarks) / last.Sub(start).Seconds(); rate < 45 || rate > 51 {
		t.Errorf("%.1f marks a second, want about 50", rate)
	}
	if decisions > 3*number {
		t.Errorf("%d decisions about %d pods", decisions, number)
	}
}

func TestMarkLimitsAreBounded(t *testing.T) {
	m := newMarksTest(t)
	for i := range 2 * maxLimiters {
		pod := podtest.New(func(pod *corev1.Pod) {
			pod.UID, pod.Namespace = types.UID(fmt.Sprint(i)), fmt.Sprint("n", i)
		}, markedWith("other"))
		m.marked(pod, pod)
	}
	if pods, namespaces := m.marks.pods.Len(), m.marks.namespaces.Len(); pods != maxLimiters || namespaces != maxLimiters {
		t.Errorf("%d pods and %d namespaces are remembered, want %d each", pods, namespaces, maxLimiters)
	}
	first := newMarksTest(t)
	for i := range 10 {
		first.reconcile(podtest.New(func(pod *corev1.Pod) { pod.Name, pod.UID = fmt.Sprint(i), types.UID(fmt.Sprint(i)) }), mesh)
	}
	if got := first.marks.pods.Len(); got != 0 {
		t.Errorf("%d pods that were marked once are remembered", got)
	}
}
