// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// liveReads counts the reads of pods from the API server, and fails them while it is set to.
type liveReads struct {
	client.Reader
	number int
	fails  error
}

func (l *liveReads) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if l.number++; l.fails != nil {
		return l.fails
	}
	return l.Reader.Get(ctx, key, object, options...)
}

// unanswered is a client whose status patches are applied and fail with a lost answer.
type unanswered struct{ client.Client }

func (u unanswered) Status() client.SubResourceWriter { return unansweredWriter{u.Client.Status()} }

type unansweredWriter struct{ client.SubResourceWriter }

func (u unansweredWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return errors.Join(u.SubResourceWriter.Patch(ctx, object, patch, options...), lost{})
}

// teardown is a pod that ends by its phase.
type teardown struct {
	*bench
	clock  *clocktesting.FakePassiveClock
	live   *liveReads
	policy *v1alpha1.SidecarTerminationPolicy
	pod    *corev1.Pod
}

// newTeardown returns a marked pod.
func newTeardown(b *bench, clock *clocktesting.FakePassiveClock, change ...func(*v1alpha1.PolicySpec)) *teardown {
	b.Helper()
	td := &teardown{bench: b, clock: clock, live: &liveReads{Reader: b.Client}}
	b.pods.reader.live = td.live
	td.policy = b.newPolicy("mesh", append(change, mode(v1alpha1.ModePodPhase, ""))...)
	td.pod = b.newPod("job-1")
	b.reconcile(td.pod)
	return td
}

// after advances the clock and reconciles the pod.
func (td *teardown) after(wait time.Duration) time.Duration {
	td.Helper()
	td.clock.SetTime(td.clock.Now().Add(wait))
	return td.reconcile(td.pod).RequeueAfter
}

// gone deletes the pod and waits until the cache has seen that.
func (td *teardown) gone() {
	td.Helper()
	td.remove(td.pod)
	testenv.Eventually(td.T, "the pod has left the cache", func(ctx context.Context) error {
		if _, err := td.pods.reader.pod(ctx, keyOf(td.pod)); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
}

// reconcileGone reconciles a deleted pod.
func (td *teardown) reconcileGone(wait time.Duration) time.Duration {
	td.Helper()
	td.clock.SetTime(td.clock.Now().Add(wait))
	return td.reconcileStale(td.pod).RequeueAfter
}

// A pod leaves the cache when the admission policy ends it by its phase. The operator reads it once, or twice if a container
// still runs, and reports it once.
func TestPodEndedByPhaseIsReportedOnce(t *testing.T) {
	b, clock := newTimedBench(t, nil)
	ended := map[string]float64{"attempts PodPhase": 1, "terminated PodPhase": 1}
	const deadline = time.Minute // grace period and terminationDeadlineSeconds
	for name, tc := range map[string]struct {
		change   func(*v1alpha1.PolicySpec)
		do       func(*teardown) time.Duration
		reads    int
		counters map[string]float64
	}{
		"sidecar ends at once": {do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone)
			if wait := td.after(0); wait != firstLook {
				td.Errorf("requeued after %s, want %s", wait, firstLook)
			}
			td.change(td.pod, podtest.SidecarDone)
			return td.after(firstLook)
		}, reads: 1, counters: ended},
		"sidecar ends with main": {do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone, podtest.SidecarDone, podtest.Succeeded)
			return td.after(td.after(0))
		}, reads: 1, counters: ended},
		"sidecar ends late": {do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone)
			td.after(0)
			if wait := td.after(firstLook); wait != deadline-firstLook {
				td.Errorf("requeued after %s, want %s", wait, deadline-firstLook)
			}
			td.change(td.pod, podtest.SidecarDone)
			return td.after(deadline - firstLook)
		}, reads: 2, counters: ended},
		"drain": {change: func(spec *v1alpha1.PolicySpec) { spec.DrainSeconds = new(int32(5)) }, do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone)
			td.after(td.after(0))
			td.change(td.pod, podtest.SidecarDone)
			return td.after(td.after(0))
		}, reads: 1, counters: ended},
		"stale cache": {change: func(spec *v1alpha1.PolicySpec) { spec.DrainSeconds = new(int32(5)) }, do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone)
			td.after(0)
			cache := td.pods.reader.cache
			td.pods.reader.cache = pinned{cache, td.pod.DeepCopy()}
			td.clock.SetTime(td.clock.Now().Add(5 * time.Second))
			for range 2 {
				td.reconcileStale(td.pod)
			}
			td.pods.reader.cache = cache
			td.change(td.pod, podtest.SidecarDone)
			return td.after(td.after(0))
		}, reads: 1, counters: ended},
		"stale cache, main ended before the mark": {do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone)
			cache, stale := td.pods.reader.cache, td.pod.DeepCopy()
			stale.Status.Phase, stale.Annotations = corev1.PodRunning, nil
			delete(stale.Labels, v1alpha1.LabelOutcome)
			td.pods.reader.cache = pinned{cache, stale}
			td.reconcileStale(td.pod)
			td.pods.reader.cache = cache
			td.change(td.pod, podtest.SidecarDone)
			return td.after(td.after(0))
		}, reads: 1, counters: ended},
		"lost answer": {change: func(spec *v1alpha1.PolicySpec) { spec.DrainSeconds = new(int32(5)) }, do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone)
			td.after(0)
			phases := td.pods.terminators[v1alpha1.ModePodPhase]
			td.pods.terminators[v1alpha1.ModePodPhase] = &podphase.Terminator{Client: unanswered{td.policies.client}}
			td.clock.SetTime(td.clock.Now().Add(5 * time.Second))
			if _, err := td.pods.Reconcile(td.Context(), ctrl.Request{NamespacedName: keyOf(td.pod)}); err == nil {
				td.Error("no error")
			}
			td.pods.terminators[v1alpha1.ModePodPhase] = phases
			td.change(td.pod, podtest.SidecarDone)
			return td.after(0)
		}, reads: 1, counters: ended},
		"read fails": {do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone, podtest.SidecarDone)
			td.after(0)
			td.clock.SetTime(td.clock.Now().Add(firstLook))
			td.live.fails = lost{}
			if _, err := td.pods.Reconcile(td.Context(), ctrl.Request{NamespacedName: keyOf(td.pod)}); err == nil {
				td.Error("no error")
			}
			td.live.fails = nil
			return td.after(0)
		}, reads: 2, counters: ended},
		"deleted": {do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone)
			td.after(0)
			td.gone()
			return td.reconcileGone(firstLook)
		}, reads: 1},
		"deleted while main runs": {do: func(td *teardown) time.Duration {
			td.gone()
			return td.reconcileGone(td.reconcileGone(0))
		}, reads: 1},
		"sidecar had ended before main": {do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone, func(p *corev1.Pod) {
				p.Status.ContainerStatuses[1] = podtest.Ended("proxy", 0)
				p.Status.ContainerStatuses[1].State.Terminated.FinishedAt = metav1.NewTime(podtest.Noon.Add(-time.Minute))
			})
			return td.after(td.after(0))
		}, reads: 1},
		"main fails, sidecar ends by itself": {do: func(td *teardown) time.Duration {
			td.change(td.pod, mainExits(3), sidecarExits(0))
			return td.after(td.after(0))
		}, reads: 1},
		"policy deleted": {do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone)
			td.after(0)
			td.remove(td.policy)
			return td.after(firstLook)
		}, reads: 1},
		"operator restarted": {do: func(td *teardown) time.Duration {
			td.pods.states.pods = map[client.ObjectKey]*podState{}
			td.change(td.pod, podtest.MainDone)
			return td.after(0)
		}},
		"name reused": {do: func(td *teardown) time.Duration {
			td.change(td.pod, podtest.MainDone)
			td.after(0)
			td.gone()
			td.pod = td.newPod("job-1")
			td.after(0)
			td.is(td.pod, "Running proxy PodPhase Running")
			if state := td.pods.states.pods[keyOf(td.pod)]; state.uid != td.pod.UID || state.mode != "" {
				td.Errorf("state of the new pod: %+v", state)
			}
			td.gone()
			return td.reconcileGone(td.reconcileGone(0))
		}, reads: 1},
	} {
		b.run(name, func() {
			td := newTeardown(b, clock, func(spec *v1alpha1.PolicySpec) {
				if tc.change != nil {
					tc.change(spec)
				}
			})
			operatorLog.take()
			before := counters()
			if wait := tc.do(td); wait != 0 {
				td.Errorf("requeued after %s", wait)
			}
			changed := counters()
			maps.DeleteFunc(changed, func(key string, value float64) bool { return value == before[key] })
			for key := range changed {
				changed[key] -= before[key]
			}
			if diff := cmp.Diff(tc.counters, changed, cmpopts.EquateEmpty()); diff != "" {
				td.Errorf("counters (-want +got):\n%s", diff)
			}
			reports := len(tc.counters) / 2
			if events := td.events.take(); len(events) != reports || reports == 1 && !strings.HasPrefix(events[0], "Normal Terminating ") {
				td.Errorf("events: %q", events)
			}
			if lines := strings.Count(operatorLog.take(), `"msg":"Sidecars terminated"`); lines != reports {
				td.Errorf("%d lines in the log, want %d", lines, reports)
			}
			if td.live.number != tc.reads {
				td.Errorf("%d live reads, want %d", td.live.number, tc.reads)
			}
			if states := slices.Collect(maps.Keys(td.pods.states.pods)); len(states) > 0 {
				td.Errorf("kept states of %v", states)
			}
			if tally := td.policies.reporter.take(refOf(td.policy)); tally.Terminated != int64(reports) {
				td.Errorf("tally %+v", tally)
			}
		})
	}
}

// A container runs on although the phase of its pod is terminal.
func TestContainerThatOutlivesPhase(t *testing.T) {
	for name, withKruise := range map[string]bool{"CRR": true, "stuck": false} {
		t.Run(name, func(t *testing.T) {
			var k *testenv.Kruise
			if withKruise {
				k = newKruise(t)
			}
			b, clock := newTimedBench(t, k)
			stuckBefore := testutil.ToFloat64(stuckPods)
			td := newTeardown(b, clock)
			td.change(td.pod, podtest.MainDone)
			wait := td.after(0)
			for range 2 {
				wait = td.after(wait)
			}
			if withKruise {
				td.wrote("PATCH pods/status", "POST containerrecreaterequests")
				// OpenKruise's webhook requires the condition for a pod with a terminal phase.
				if !slices.ContainsFunc(td.pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == v1alpha1.PodConditionSidecarTerminated }) {
					t.Errorf("conditions: %v", td.pod.Status.Conditions)
				}
				td.change(td.pod, podtest.SidecarDone)
			} else {
				td.wrote("PATCH pods/status")
				if got := testutil.ToFloat64(stuckPods) - stuckBefore; got != 1 {
					t.Errorf("%v pods are stuck", got)
				}
				// A kubelet deletes a pod once its containers have ended.
				td.gone()
			}
			if wait == 0 {
				t.Fatal("nothing requeues the pod, which no watch delivers")
			}
			if wait = td.reconcileGone(wait); wait != 0 {
				t.Errorf("requeued after %s", wait)
			}
			tally := td.policies.reporter.take(refOf(td.policy))
			if tally.Terminated != 1 || tally.FailedAttempts != 1 {
				t.Errorf("tally %+v", tally)
			}
			events := td.events.take()
			want := map[bool]string{true: "Warning Fallback ", false: "Warning Stuck "}[withKruise]
			if len(events) != 2 || !strings.HasPrefix(events[0], "Normal Terminating ") || !strings.HasPrefix(events[1], want) {
				t.Errorf("events: %q", events)
			}
			if len(td.pods.states.pods) > 0 || testutil.ToFloat64(stuckPods) != stuckBefore {
				t.Errorf("states %v, %v stuck pods", td.pods.states.pods, testutil.ToFloat64(stuckPods))
			}
		})
	}
}
