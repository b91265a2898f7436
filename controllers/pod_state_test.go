// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
	"github.com/sidecar-termination/operator/internal/safetext"
)

// statesTest is podStates with a reporter whose output is recorded.
type statesTest struct {
	*podStates
	*reporter
	clock    *clocktesting.FakePassiveClock
	events   *recordedEvents
	notified map[string]bool
}

func newStatesTest(t *testing.T) *statesTest {
	t.Helper()
	attemptsTotal.Reset()
	attemptFailuresTotal.Reset()
	dryRunAttemptsTotal.Reset()
	fallbacksTotal.Reset()
	podsTerminatedTotal.Reset()
	terminationSeconds.Reset()
	stuckPods.Set(0)
	st := &statesTest{clock: clocktesting.NewFakePassiveClock(podtest.Noon.Add(time.Second)), events: &recordedEvents{}, notified: map[string]bool{}}
	st.reporter = newReporter(st.events, st.clock, func(policy resolve.PolicyRef) { st.notified[policy.Name] = true })
	st.podStates = newPodStates(st.reporter, st.clock)
	return st
}

// enqueued returns the policies that were enqueued since the last call.
func (st *statesTest) enqueued() map[string]bool {
	names := st.notified
	st.notified = map[string]bool{}
	return names
}

var mesh = podtest.Policy("mesh", "proxy")

// aSecondLater is the time of the clock in results.
var aSecondLater = new(metav1.NewTime(podtest.Noon.Add(time.Second)))

// executed records the decision, whose writes have all changed something.
func (st *statesTest) executed(resolved resolvedPod, decision plan.Decision) {
	st.record(resolved, decision, executionOf(decision))
}

func executionOf(decision plan.Decision) execution {
	var e execution
	for _, write := range decision.Writes {
		e.done = append(e.done, executedWrite{write, true})
	}
	return e
}

// The decisions about a pod, in order.
func waiting() plan.Decision {
	return plan.Decision{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMainContainersRunning, Message: "waiting"}
}

// marking is a mark with an end, or with none.
func marking(end string) plan.Decision {
	return plan.Decision{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMarking, Message: "marking", Writes: []plan.Write{markWith(end)}}
}

func markWith(end string) plan.Write {
	return plan.Write{Mode: v1alpha1.ModePodPhase, Mark: &plan.Mark{End: end}}
}

func terminating(mode v1alpha1.Mode) plan.Decision {
	return plan.Decision{
		Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Message: "ending proxy by mode " + string(mode), MainsDone: podtest.Noon,
		Writes: []plan.Write{{Mode: mode, Containers: []string{"proxy"}}},
	}
}

func inProgress(mode v1alpha1.Mode, failures ...plan.Failure) plan.Decision {
	return plan.Decision{
		Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Message: "waiting for proxy", MainsDone: podtest.Noon,
		Tried: mode, Failures: failures,
	}
}

func stuck(failures ...plan.Failure) plan.Decision {
	return plan.Decision{
		Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Message: "every usable mode has failed", MainsDone: podtest.Noon,
		Tried: v1alpha1.ModeCRR, Failures: failures,
	}
}

func terminated(mode v1alpha1.Mode) plan.Decision {
	return plan.Decision{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated, Message: "every sidecar has ended", MainsDone: podtest.Noon, Tried: mode}
}

func failureOf(container, message string) plan.Failure {
	return plan.Failure{Container: container, Mode: v1alpha1.ModeCRR, Attempt: 1, Message: message}
}

// counters returns the metrics that are not zero, by name and mode.
func counters() map[string]float64 {
	all := map[string]float64{}
	for name, vector := range map[string]*prometheus.CounterVec{
		"attempts": attemptsTotal, "failures": attemptFailuresTotal, "fallbacks": fallbacksTotal, "terminated": podsTerminatedTotal, "dry runs": dryRunAttemptsTotal,
	} {
		for _, mode := range []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase} {
			if value := testutil.ToFloat64(vector.WithLabelValues(string(mode))); value != 0 {
				all[name+" "+string(mode)] = value
			}
		}
	}
	return all
}

// Each result counts once, whether the operator sees the pod again, restarts, or sees the pod leave the cache.
func TestResultsAreCountedOnce(t *testing.T) {
	const crr, image, podPhase = v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase
	fallback := terminating(podPhase)
	fallback.Reason = v1alpha1.ReasonFallback
	logger, proxy, late := failureOf("logger", "the daemon gave up"), failureOf("proxy", "it had not ended"), plan.Failure{Container: "proxy", Mode: image, Message: "neither"}
	deleted := plan.Decision{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodDeleted, MainsDone: podtest.Noon, Tried: image}
	ended := func(mode v1alpha1.Mode) rollup.Tally {
		return rollup.Tally{Terminated: 1, Last: podtest.Noon.Add(time.Second), Recent: []v1alpha1.RecentTermination{
			{Pod: "job-1", Mode: mode, Outcome: v1alpha1.OutcomeTerminated, DurationMilliseconds: 1000, Time: aSecondLater},
		}}
	}
	failed := func(mode v1alpha1.Mode) rollup.Tally {
		return rollup.Tally{FailedAttempts: 1, Recent: []v1alpha1.RecentTermination{{Pod: "job-1", Mode: mode, Outcome: v1alpha1.OutcomeFailed, Time: aSecondLater}}}
	}
	for name, tc := range map[string]struct {
		decisions []plan.Decision
		want      rollup.Tally
		counters  map[string]float64
		durations int
		gone      bool // from the cache, in the end
	}{
		"a termination": {
			[]plan.Decision{waiting(), waiting(), terminating(crr), inProgress(crr), inProgress(crr), terminated(crr), terminated(crr)},
			ended(crr), map[string]float64{"attempts CRR": 1, "terminated CRR": 1}, 1, true,
		},
		"marked to end by its phase": {
			[]plan.Decision{marking(v1alpha1.EndPodPhase), waiting(), inProgress(podPhase), inProgress(podPhase), terminated(podPhase)},
			ended(podPhase), map[string]float64{"attempts PodPhase": 1, "terminated PodPhase": 1}, 1, false,
		},
		"an attempt that fails for one sidecar after the other": {
			[]plan.Decision{waiting(), inProgress(crr), inProgress(crr, logger), inProgress(crr, logger, proxy), stuck(logger, proxy)},
			failed(crr), map[string]float64{"failures CRR": 1}, 0, false,
		},
		"a fallback": {
			[]plan.Decision{waiting(), terminating(crr), inProgress(crr), fallback, inProgress(podPhase), terminated(podPhase)},
			ended(podPhase), map[string]float64{"attempts CRR": 1, "attempts PodPhase": 1, "fallbacks PodPhase": 1, "terminated PodPhase": 1}, 1, false,
		},
		"a failure before a restart and one after it": {
			[]plan.Decision{stuck(proxy), stuck(proxy, late)}, failed(image), map[string]float64{"failures Image": 1}, 0, false,
		},
		"an end before a restart": {[]plan.Decision{terminated(podPhase), terminated(podPhase)}, rollup.Tally{}, map[string]float64{}, 0, false},
		"an end after a restart":  {[]plan.Decision{inProgress(podPhase), terminated(podPhase)}, ended(podPhase), map[string]float64{"terminated PodPhase": 1}, 1, false},
		"gone after an attempt":   {[]plan.Decision{waiting(), inProgress(image)}, ended(image), map[string]float64{"terminated Image": 1}, 1, true},
		"gone without an attempt": {[]plan.Decision{waiting(), waiting()}, rollup.Tally{}, map[string]float64{}, 0, true},
		"deleted in an attempt":   {[]plan.Decision{waiting(), deleted}, rollup.Tally{}, map[string]float64{}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStatesTest(t)
			resolved := resolvedPodOf(podtest.New(podtest.MainDone), podtest.Policy("mesh", "proxy", "logger"))
			for _, decision := range tc.decisions {
				if decision.Reason == v1alpha1.ReasonPodDeleted {
					resolved.Pod.DeletionTimestamp = ptr.To(metav1.NewTime(podtest.Noon))
				}
				st.executed(resolved, decision)
			}
			if tc.gone && (st.left(keyOf(resolved.Pod)) != leaving{} || len(st.pods) > 0) {
				t.Errorf("still held: %v", st.pods)
			}
			if diff := cmp.Diff(tc.want, st.take(mesh.Ref)); diff != "" {
				t.Errorf("tally (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.counters, counters()); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
			if got := testutil.CollectAndCount(terminationSeconds); got != tc.durations {
				t.Errorf("%d durations, want %d", got, tc.durations)
			}
			if len(st.tallies) > 0 {
				t.Errorf("still held: %v", st.tallies)
			}
		})
	}
}

// A pod that has left the cache is read if its containers may still run, or if the admission policy may not have decided its outcome.
func TestPodThatLeavesCacheIsRead(t *testing.T) {
	ends := terminating(v1alpha1.ModePodPhase)
	ends.Writes[0].Mark = &plan.Mark{End: v1alpha1.EndPodPhase}
	decided := marking("")
	decided.Writes[0].Mark.Record = v1alpha1.MainsDecided
	marked := func(uid, answer string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
			pod.Annotations = map[string]string{v1alpha1.AnnotationEnd: v1alpha1.EndPodPhase + "/" + uid, v1alpha1.AnnotationMainContainers: answer}
		}
	}
	unchanged := func(*corev1.Pod) {}
	deleted := func(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.NewTime(podtest.Noon)) }
	later, now := leaving{wait: firstLook}, leaving{read: true, uid: "4a1b"}
	for name, tc := range map[string]struct {
		change    func(*corev1.Pod)
		decisions []plan.Decision
		err       error
		want      leaving
	}{
		"never marked":                   {unchanged, []plan.Decision{inProgress(v1alpha1.ModeCRR)}, nil, leaving{}},
		"marked":                         {unchanged, []plan.Decision{marking(v1alpha1.EndPodPhase)}, nil, later},
		"stopped by CRR":                 {unchanged, []plan.Decision{inProgress(v1alpha1.ModeCRR), marking(v1alpha1.EndCRR)}, nil, leaving{}},
		"end taken back":                 {unchanged, []plan.Decision{marking(v1alpha1.EndPodPhase), marking("")}, nil, leaving{}},
		"then a stale cache":             {unchanged, []plan.Decision{ends, waiting()}, nil, later},
		"marked by another process":      {marked("4a1b", "Running/4a1b"), []plan.Decision{waiting()}, nil, later},
		"mark of another pod":            {marked("5b2c", "Running/4a1b"), []plan.Decision{waiting()}, nil, leaving{}},
		"not answered":                   {marked("5b2c", ""), []plan.Decision{waiting()}, nil, now},
		"not answered, decided":          {marked("5b2c", ""), []plan.Decision{waiting(), decided}, nil, leaving{}},
		"lost answer after another mode": {unchanged, []plan.Decision{inProgress(v1alpha1.ModeCRR)}, errors.New("no answer"), later},
		"deleted":                        {deleted, []plan.Decision{marking(v1alpha1.EndPodPhase)}, nil, leaving{}},
		"deleted, not answered":          {func(pod *corev1.Pod) { deleted(pod); marked("5b2c", "")(pod) }, []plan.Decision{waiting()}, nil, now},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStatesTest(t)
			pod := podtest.New(tc.change)
			for _, decision := range tc.decisions {
				done := executionOf(decision)
				done.err = tc.err
				st.record(resolvedPodOf(pod, mesh), decision, done)
			}
			if got := st.left(keyOf(pod)); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestDrainsSince(t *testing.T) {
	for name, tc := range map[string]struct {
		seenRunning bool
		clock       time.Duration // how far the node's clock is ahead
		since       time.Duration // after noon
	}{
		"seen to end":                       {true, 0, 2 * time.Second},
		"seen to end, node's clock behind":  {true, -50 * time.Minute, 2 * time.Second},
		"seen to end, node's clock ahead":   {true, 50 * time.Minute, 2 * time.Second},
		"ended before":                      {false, 0, 0},
		"ended before, node's clock ahead":  {false, 50 * time.Minute, 2 * time.Second},
		"ended before, node's clock behind": {false, -50 * time.Minute, -50 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStatesTest(t)
			done := podtest.New(podtest.MainDone, func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(podtest.Noon.Add(tc.clock))
			})
			drains := func(pod *corev1.Pod, after time.Duration) time.Time {
				st.clock.SetTime(podtest.Noon.Add(after))
				resolved := resolvedPodOf(pod, mesh)
				snapshot := plan.Snapshot{Pod: pod, View: resolved.resolution.Enforced}
				st.complete(&snapshot)
				st.executed(resolved, plan.Decision{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonDraining, MainsDone: plan.MainsDone(snapshot)})
				return snapshot.DrainsSince
			}
			if tc.seenRunning {
				drains(podtest.New(), 0)
			}
			for _, after := range []time.Duration{2 * time.Second, 10 * time.Second} {
				if got := drains(done, after).Sub(podtest.Noon); got != tc.since {
					t.Errorf("after %s the sidecar drains since %s after noon, want %s", after, got, tc.since)
				}
			}
			if got := drains(podtest.New(), 15*time.Second); !got.IsZero() {
				t.Errorf("the sidecar drains since %s although the main container runs", got)
			}
			if got := drains(done, 22*time.Second).Sub(podtest.Noon); got != 22*time.Second {
				t.Errorf("after the main container has run again, the sidecar drains since %s after noon, want 22s", got)
			}
		})
	}
}

func TestFailureCountsForPoliciesOfRunningContainers(t *testing.T) {
	st := newStatesTest(t)
	logging, tracing := podtest.Policy("logging", "logs"), podtest.Policy("tracing", "agent", "tracer")
	pod := podtest.New(func(p *corev1.Pod) {
		for _, name := range []string{"logs", "agent", "tracer"} {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
		}
	})
	resolved := resolvedPodOf(pod, mesh, logging, tracing)
	st.executed(resolved, terminating(v1alpha1.ModeCRR))
	before := testutil.ToFloat64(attemptFailuresTotal.WithLabelValues("CRR"))
	proxy, agent, tracer := failureOf("proxy", "late"), failureOf("agent", "late"), failureOf("tracer", "late")
	st.executed(resolved, inProgress(v1alpha1.ModeCRR, proxy))
	st.executed(resolved, inProgress(v1alpha1.ModeCRR, proxy, agent, tracer))
	got := map[string]int64{}
	for _, policy := range []resolve.PolicyRef{mesh.Ref, logging.Ref, tracing.Ref} {
		got[policy.Name] = st.take(policy).FailedAttempts
	}
	if diff := cmp.Diff(map[string]int64{"mesh": 1, "logging": 0, "tracing": 1}, got); diff != "" {
		t.Errorf("failed attempts (-want +got):\n%s", diff)
	}
	if counted := testutil.ToFloat64(attemptFailuresTotal.WithLabelValues("CRR")) - before; counted != 1 {
		t.Errorf("one attempt was counted %v times", counted)
	}
}

func TestStuckPodsGauge(t *testing.T) {
	st := newStatesTest(t)
	one, two := resolvedPodOf(podtest.New(), mesh), resolvedPodOf(podtest.New(func(p *corev1.Pod) { p.Name, p.UID = "job-2", "9c2d" }), mesh)
	steps := []struct {
		name string
		do   func()
		want float64
	}{
		{"one waits", func() { st.executed(one, waiting()) }, 0},
		{"one is stuck", func() { st.executed(one, stuck()) }, 1},
		{"it still is", func() { st.executed(one, stuck()) }, 1},
		{"two is stuck as well", func() { st.executed(two, stuck()) }, 2},
		{"one has ended late", func() { st.executed(one, terminated(v1alpha1.ModeCRR)) }, 1},
		{"two is no longer declared", func() { st.forget(keyOf(two.Pod)) }, 0},
		{"two is stuck again", func() { st.executed(two, stuck()) }, 1},
		{"another pod takes its name", func() {
			st.executed(resolvedPodOf(podtest.New(func(p *corev1.Pod) { p.Name, p.UID = "job-2", "0000" }), mesh), waiting())
		}, 0},
		{"it is stuck and goes", func() { st.executed(one, stuck()); st.left(keyOf(one.Pod)) }, 0},
	}
	for _, step := range steps {
		step.do()
		if got := testutil.ToFloat64(stuckPods); got != step.want {
			t.Errorf("%s: the gauge is %v, want %v", step.name, got, step.want)
		}
	}
}

func TestDecisionEvents(t *testing.T) {
	failure := failureOf("proxy", "it had not ended")
	fallback := terminating(v1alpha1.ModeImage)
	fallback.Reason, fallback.Failures, fallback.Restarts = v1alpha1.ReasonFallback, []plan.Failure{failure}, 2
	unordered := terminating(v1alpha1.ModePodPhase)
	unordered.OrderNotKept = "terminationOrder is not kept"
	retry := stuck(failure)
	retry.Writes = []plan.Write{{Mode: v1alpha1.ModeCRR, Containers: []string{"proxy"}, Attempt: 2}}
	for name, tc := range map[string]struct {
		decisions []plan.Decision
		want      []string
	}{
		"waiting": {[]plan.Decision{waiting(), inProgress(v1alpha1.ModeCRR)}, nil},
		"a termination": {
			[]plan.Decision{waiting(), terminating(v1alpha1.ModeCRR), inProgress(v1alpha1.ModeCRR), terminated(v1alpha1.ModeCRR), terminated(v1alpha1.ModeCRR)},
			[]string{"Normal Terminating batch/job-1: ending proxy by mode CRR [SidecarTerminationPolicy/mesh]"},
		},
		"fallback with failure and risk": {[]plan.Decision{fallback}, []string{
			"Warning Fallback batch/job-1: ending proxy by mode Image (it had not ended) [SidecarTerminationPolicy/mesh]",
			"Warning BackoffLimitRisk batch/job-1: under restartPolicy OnFailure, up to 2 restarts of sidecars count towards the Job's backoffLimit [SidecarTerminationPolicy/mesh]",
		}},
		"an order that is not kept, once": {[]plan.Decision{unordered, unordered}, []string{
			"Normal Terminating batch/job-1: ending proxy by mode PodPhase [SidecarTerminationPolicy/mesh]",
			"Warning OrderNotKept batch/job-1: terminationOrder is not kept [SidecarTerminationPolicy/mesh]",
			"Normal Terminating batch/job-1: ending proxy by mode PodPhase [SidecarTerminationPolicy/mesh]",
		}},
		"stuck once": {[]plan.Decision{stuck(failure), stuck(failure)}, []string{
			"Warning Stuck batch/job-1: every usable mode has failed [SidecarTerminationPolicy/mesh]",
		}},
		"stuck with an action": {[]plan.Decision{retry}, []string{
			"Warning Stuck batch/job-1: every usable mode has failed [SidecarTerminationPolicy/mesh]",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStatesTest(t)
			for _, decision := range tc.decisions {
				st.executed(resolvedPodOf(podtest.New(podtest.MainDone), mesh), decision)
			}
			if diff := cmp.Diff(tc.want, st.events.take()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// A stale cache that lacks the pod's last CRR must not lead to another one. The operator does not wait for long.
func TestDecisionWaitsForLastCRR(t *testing.T) {
	st := newStatesTest(t)
	pod, other := podtest.New(), podtest.New(func(p *corev1.Pod) { p.UID = "other" })
	precedes := func(pod *corev1.Pod, numbers ...int) bool {
		snapshot := plan.Snapshot{Pod: pod}
		for _, number := range numbers {
			snapshot.Attempts = append(snapshot.Attempts, plan.Attempt{Mode: v1alpha1.ModeCRR, Number: number})
		}
		return st.precedesCRR(snapshot)
	}
	before := precedes(pod)
	st.requested(pod, 2)
	got := []bool{before, precedes(pod), precedes(pod, 1), precedes(pod, 1, 2), precedes(other)}
	st.clock.SetTime(st.clock.Now().Add(cacheLag))
	if diff := cmp.Diff([]bool{false, true, true, false, false, false}, append(got, precedes(pod, 1))); diff != "" {
		t.Errorf("before, no CRR, the first, both, another pod, later (-want +got):\n%s", diff)
	}
}

func TestLongEventNoteIsCut(t *testing.T) {
	st := newStatesTest(t)
	st.event(podtest.New(), corev1.EventTypeNormal, v1alpha1.ReasonStuck, strings.Repeat("é", safetext.MaxEventNote), nil)
	_, note, _ := strings.Cut(st.events.take()[0], ": ")
	if len(note) > safetext.MaxEventNote || !strings.HasSuffix(note, "é...") {
		t.Errorf("the note has %d bytes and ends in %q", len(note), note[len(note)-8:])
	}
}

func TestWarningIsEmittedOncePerPod(t *testing.T) {
	st := newStatesTest(t)
	resolved := resolvedPodOf(podtest.New(func(p *corev1.Pod) {
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "yes"}}
	}))
	ignored := plan.Decision{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonNoSidecar}
	st.executed(resolved, ignored)
	st.executed(resolved, ignored)
	if got := st.events.take(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning InvalidEnv batch/job-1: container proxy") {
		t.Errorf("events: %q", got)
	}
}

// Many policies must not fill the operator's memory, or the cluster with events.
func TestPodStateStaysSmallWithManyPolicies(t *testing.T) {
	const containers, many = 32, 1000
	pod := podtest.New()
	var names []string
	for i := range containers {
		name := fmt.Sprintf("proxy-%02d", i)
		names = append(names, name)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		native := corev1.Container{Name: "native-" + name, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, native)
		names = append(names, native.Name)
	}
	st := newStatesTest(t)
	var policies []resolve.Policy
	for i := range many {
		policy := podtest.Policy(fmt.Sprintf("mesh-%04d", i), names...)
		policy.Spec.Enforcement, policy.Spec.DrainSeconds = v1alpha1.EnforcementDryRun, ptr.To(int32(i))
		policies = append(policies, policy)
		if i+1 != 1 && i+1 != 10 && i+1 != many {
			continue
		}
		resolved := resolvedPodOf(pod, policies...)
		st.executed(resolved, waiting())
		e := st.pods[keyOf(pod)]
		if len(resolved.resolution.Overrides) != i {
			t.Errorf("%d policies: %d overrides, want one for each but the first", i+1, len(resolved.resolution.Overrides))
		}
		if len(e.warned) != containers || len(e.policies) != i+1 || len(e.declaring) > 0 {
			t.Errorf("%d policies: kept %d warnings, %d policies and %d that declare", i+1, len(e.warned), len(e.policies), len(e.declaring))
		}
	}
	if got := st.events.take(); len(got) != containers {
		t.Errorf("%d events, want one for each native sidecar", len(got))
	}
}

func TestPodsShareEqualPolicyRefs(t *testing.T) {
	st := newStatesTest(t)
	kinds := [][]resolve.Policy{{mesh}, {mesh, podtest.Policy("other", "proxy")}}
	kept := map[*policyRefs]bool{}
	for i := range 100 {
		resolved := resolvedPodOf(podtest.New(func(p *corev1.Pod) { p.Name = fmt.Sprintf("job-%d", i) }), kinds[i%2]...)
		st.executed(resolved, waiting())
		kept[st.pods[keyOf(resolved.Pod)].policyRefs] = true
	}
	if len(kept) != len(kinds) {
		t.Errorf("100 pods with two sets of policies keep %d sets", len(kept))
	}
}

func TestDryRunIsReportedOnce(t *testing.T) {
	st := newStatesTest(t)
	policy := podtest.Policy("mesh", "proxy")
	policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
	resolved := resolvedPodOf(podtest.New(podtest.MainDone), policy)
	st.recordDryRun(resolved, plan.Decision{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonSidecarStarting})
	st.enqueued()
	st.recordDryRun(resolved, terminating(v1alpha1.ModePodPhase))
	if diff := cmp.Diff(map[string]bool{"mesh": true}, st.enqueued()); diff != "" {
		t.Errorf("the result is in no status (-want +got):\n%s", diff)
	}
	st.recordDryRun(resolved, terminating(v1alpha1.ModePodPhase))
	want := []string{"Normal WouldTerminate batch/job-1: nothing was done because the policy's enforcement is DryRun; with Enforce: " +
		"ending proxy by mode PodPhase [SidecarTerminationPolicy/mesh]"}
	if diff := cmp.Diff(want, st.events.take()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	tally := rollup.Tally{Recent: []v1alpha1.RecentTermination{
		{Pod: "job-1", Mode: v1alpha1.ModePodPhase, Outcome: v1alpha1.OutcomeWouldTerminate, Time: aSecondLater},
	}}
	if diff := cmp.Diff(tally, st.take(policy.Ref)); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
	if got := testutil.ToFloat64(dryRunAttemptsTotal.WithLabelValues("PodPhase")); got != 1 {
		t.Errorf("counted %v", got)
	}
	if got := testutil.ToFloat64(attemptsTotal.WithLabelValues("PodPhase")); got != 0 {
		t.Errorf("counted %v started attempts", got)
	}
}

func TestPoliciesAreEnqueuedOnChanges(t *testing.T) {
	pod := podtest.New()
	high := podtest.Policy("high", "proxy")
	high.Spec.Priority = 1
	other := podtest.Policy("other", "main-of-another-pod")
	both := map[string]bool{"high": true, "mesh": true}
	for name, tc := range map[string]struct {
		before, after []resolve.Policy
		want          map[string]bool
	}{
		"nothing changed":                 {[]resolve.Policy{mesh, high}, []resolve.Policy{mesh, high}, map[string]bool{}},
		"another policy comes first":      {[]resolve.Policy{mesh}, []resolve.Policy{mesh, high}, both},
		"the first policy goes":           {[]resolve.Policy{mesh, high}, []resolve.Policy{mesh}, both},
		"a policy no longer selects it":   {[]resolve.Policy{mesh, other}, []resolve.Policy{mesh}, map[string]bool{"mesh": true, "other": true}},
		"the first leaves it a container": {[]resolve.Policy{mesh, high}, []resolve.Policy{mesh, {Ref: high.Ref, Spec: other.Spec}}, both},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStatesTest(t)
			st.executed(resolvedPodOf(pod, tc.before...), waiting())
			st.enqueued()
			st.executed(resolvedPodOf(pod, tc.after...), waiting())
			if diff := cmp.Diff(tc.want, st.enqueued()); diff != "" {
				t.Errorf("enqueued policies (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForgottenPodEnqueuesItsPolicies(t *testing.T) {
	st := newStatesTest(t)
	resolved := resolvedPodOf(podtest.New(), mesh)
	st.executed(resolved, waiting())
	st.enqueued()
	st.forget(keyOf(resolved.Pod))
	if diff := cmp.Diff(map[string]bool{"mesh": true}, st.enqueued()); diff != "" {
		t.Errorf("enqueued policies (-want +got):\n%s", diff)
	}
	st.forget(keyOf(resolved.Pod))
	if (st.left(keyOf(resolved.Pod)) != leaving{}) || len(st.pods) > 0 || len(st.enqueued()) > 0 {
		t.Error("it is still tracked")
	}
}

func TestUnwrittenTallyIsRestored(t *testing.T) {
	st := newStatesTest(t)
	first := rollup.Tally{Terminated: 1, Recent: []v1alpha1.RecentTermination{{Pod: "first"}}}
	second := rollup.Tally{Terminated: 2, Recent: []v1alpha1.RecentTermination{{Pod: "second"}}}
	st.add(mesh.Ref, first)
	taken := st.take(mesh.Ref)
	st.add(mesh.Ref, second)
	st.restore(mesh.Ref, taken)
	want := rollup.Tally{Terminated: 3, Recent: []v1alpha1.RecentTermination{{Pod: "second"}, {Pod: "first"}}}
	if diff := cmp.Diff(want, st.take(mesh.Ref)); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
	st.restore(mesh.Ref, rollup.Tally{})
	if len(st.tallies) > 0 {
		t.Error("an empty tally is kept")
	}
}

func TestMetricsPassPrometheusLint(t *testing.T) {
	st := newStatesTest(t)
	resolved := resolvedPodOf(podtest.New(), mesh)
	st.executed(resolved, waiting())
	st.recordDryRun(resolved, terminating(v1alpha1.ModeCRR))
	st.executed(resolved, terminating(v1alpha1.ModeCRR))
	st.executed(resolved, inProgress(v1alpha1.ModeCRR, failureOf("proxy", "late")))
	st.executed(resolved, terminated(v1alpha1.ModeCRR))
	problems, err := testutil.GatherAndLint(metrics.Registry, "sidecar_termination_attempts_total",
		"sidecar_termination_attempt_failures_total", "sidecar_termination_dry_run_attempts_total",
		"sidecar_termination_fallbacks_total", "sidecar_termination_pods_terminated_total",
		"sidecar_termination_duration_seconds", "sidecar_termination_stuck_pods")
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

func TestOneLogLinePerResult(t *testing.T) {
	st := newStatesTest(t)
	var lines []string
	st.log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	resolved := resolvedPodOf(podtest.New(podtest.MainDone), mesh)
	failed := terminating(v1alpha1.ModeImage)
	failed.Writes[0].Attempt = 1
	failed.Failures = []plan.Failure{{Container: "proxy", Mode: v1alpha1.ModeCRR, Message: "too slow"}}
	outOfModes := plan.Decision{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Message: "all failed", MainsDone: podtest.Noon, Failures: failed.Failures}
	ended := plan.Decision{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated, MainsDone: podtest.Noon}
	for _, decision := range []plan.Decision{waiting(), terminating(v1alpha1.ModeCRR), failed, failed, outOfModes, outOfModes, ended, ended} {
		st.executed(resolved, decision)
	}
	const pod = `"pod"={"name"="job-1" "namespace"="batch"} "uid"="4a1b" "policy"="SidecarTerminationPolicy/mesh" `
	want := []string{
		`"level"=0 "msg"="Attempt failed" ` + pod + `"mode"="CRR" "attempt"=0 "sidecar"="proxy" "message"="too slow"`,
		`"level"=0 "msg"="Pod is stuck" ` + pod + `"reason"="Stuck" "message"="all failed"`,
		`"level"=0 "msg"="Sidecars terminated" ` + pod + `"mode"="Image" "attempt"=1 "sidecars"=["proxy"] "outcome"="Terminated" "milliseconds"=1000`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("log lines (-want +got):\n%s", diff)
	}
}
