// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
)

// journalTest is a journal whose reports are kept.
type journalTest struct {
	*journal
	clock    *clocktesting.FakePassiveClock
	events   *recordedEvents
	notified map[string]bool
}

func newJournalTest(t *testing.T) *journalTest {
	t.Helper()
	attemptsTotal.Reset()
	attemptFailuresTotal.Reset()
	dryRunAttemptsTotal.Reset()
	fallbacksTotal.Reset()
	podsTerminatedTotal.Reset()
	terminationSeconds.Reset()
	stuckPods.Set(0)
	jt := &journalTest{clock: clocktesting.NewFakePassiveClock(noon.Add(time.Second)), events: &recordedEvents{}, notified: map[string]bool{}}
	jt.journal = newJournal(jt.events, jt.clock, func(policy resolve.PolicyRef) { jt.notified[policy.Name] = true })
	return jt
}

// told returns the policies whose status has been asked for since it was last called.
func (jt *journalTest) told() map[string]bool {
	told := jt.notified
	jt.notified = map[string]bool{}
	return told
}

var mesh = policyOn("mesh", "proxy")

// The decisions in the life of a pod.
func waiting() plan.Decision {
	return plan.Decision{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMainContainersRunning, Message: "waiting"}
}

func terminating(mode v1alpha1.Mode) plan.Decision {
	return plan.Decision{
		Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Message: "ending proxy by mode " + string(mode), MainsDone: noon,
		Actions: []plan.Action{{Mode: mode, For: mode}},
	}
}

func inProgress(mode v1alpha1.Mode, failures ...plan.Failure) plan.Decision {
	return plan.Decision{
		Stage: plan.StageTerminating, Reason: v1alpha1.ReasonAttemptInProgress, Message: "waiting for proxy", MainsDone: noon,
		Tried: mode, Failures: failures,
	}
}

func stuck(failures ...plan.Failure) plan.Decision {
	return plan.Decision{
		Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Message: "every usable mode has failed", MainsDone: noon,
		Tried: v1alpha1.ModeCRR, Failures: failures,
	}
}

func terminated(mode v1alpha1.Mode) plan.Decision {
	return plan.Decision{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated, Message: "every sidecar has ended", MainsDone: noon, Tried: mode}
}

func failureOf(container, message string) plan.Failure {
	return plan.Failure{Container: container, Mode: v1alpha1.ModeCRR, Attempt: 0, Message: message}
}

func TestEachTransitionIsReportedOnce(t *testing.T) {
	jt := newJournalTest(t)
	subject := subjectOf(newPod(), mesh)
	for _, decision := range []plan.Decision{
		waiting(), waiting(),
		terminating(v1alpha1.ModeCRR), inProgress(v1alpha1.ModeCRR), inProgress(v1alpha1.ModeCRR),
		terminated(v1alpha1.ModeCRR), terminated(v1alpha1.ModeCRR),
	} {
		jt.record(subject, decision)
	}
	if diff := cmp.Diff([]string{"Normal Terminating batch/job-1: ending proxy by mode CRR [SidecarTerminationPolicy/mesh]"}, jt.events.take()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	jt.gone(keyOf(subject.pod))
	want := rollup.Tally{Terminated: 1, Last: jt.clock.Now(), Recent: []v1alpha1.RecentTermination{
		{Pod: "job-1", Mode: v1alpha1.ModeCRR, Outcome: v1alpha1.OutcomeTerminated, Milliseconds: 1000},
	}}
	if diff := cmp.Diff(want, jt.take(mesh.Ref)); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
	for name, got := range map[string]float64{
		"started":    testutil.ToFloat64(attemptsTotal.WithLabelValues("CRR")),
		"terminated": testutil.ToFloat64(podsTerminatedTotal.WithLabelValues("CRR")),
		"durations":  float64(testutil.CollectAndCount(terminationSeconds)),
	} {
		if got != 1 {
			t.Errorf("%s: counted %v times", name, got)
		}
	}
	if len(jt.pods)+len(jt.tallies) > 0 {
		t.Errorf("the journal still holds %v and %v", jt.pods, jt.tallies)
	}
}

func TestAFailureIsCountedForThePoliciesOfTheContainersThatItLeft(t *testing.T) {
	jt := newJournalTest(t)
	logging, tracing := policyOn("logging", "logs"), policyOn("tracing", "agent", "tracer")
	pod := newPod(func(p *corev1.Pod) {
		for _, name := range []string{"logs", "agent", "tracer"} {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
		}
	})
	subject := subjectOf(pod, mesh, logging, tracing)
	jt.record(subject, terminating(v1alpha1.ModeCRR))
	before := testutil.ToFloat64(attemptFailuresTotal.WithLabelValues("CRR"))
	proxy, agent, tracer := failureOf("proxy", "late"), failureOf("agent", "late"), failureOf("tracer", "late")
	jt.record(subject, inProgress(v1alpha1.ModeCRR, proxy))
	jt.record(subject, inProgress(v1alpha1.ModeCRR, proxy, agent, tracer))
	got := map[string]int64{}
	for _, policy := range []resolve.PolicyRef{mesh.Ref, logging.Ref, tracing.Ref} {
		got[policy.Name] = jt.take(policy).Failed
	}
	if diff := cmp.Diff(map[string]int64{"mesh": 1, "logging": 0, "tracing": 1}, got); diff != "" {
		t.Errorf("failed attempts (-want +got):\n%s", diff)
	}
	if counted := testutil.ToFloat64(attemptFailuresTotal.WithLabelValues("CRR")) - before; counted != 1 {
		t.Errorf("one attempt was counted %v times", counted)
	}
}

func TestAPodThatLeavesTheCacheHasTerminated(t *testing.T) {
	for name, tc := range map[string]struct {
		last plan.Decision
		want int64
	}{
		"after an attempt":                           {inProgress(v1alpha1.ModeImage), 1},
		"without an attempt":                         {waiting(), 0},
		"when it is deleted in the middle of a move": {plan.Decision{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonPodDeleted, MainsDone: noon, Tried: v1alpha1.ModeImage}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			jt := newJournalTest(t)
			subject := subjectOf(newPod(), mesh)
			jt.record(subject, waiting())
			jt.record(subject, tc.last)
			if again := jt.gone(keyOf(subject.pod)); again != 0 {
				t.Errorf("asked to look again after %s", again)
			}
			if got := jt.take(mesh.Ref).Terminated; got != tc.want {
				t.Errorf("counted %d, want %d", got, tc.want)
			}
		})
	}
}

func TestAPodBetweenTheTwoCachesIsLookedForAWhile(t *testing.T) {
	jt := newJournalTest(t)
	subject := subjectOf(newPod(mainDone), mesh)
	jt.record(subject, waiting())
	jt.record(subject, terminating(v1alpha1.ModePodPhase))
	if again := jt.gone(keyOf(subject.pod)); again != teardownPoll {
		t.Errorf("asked to look again after %s, want %s", again, teardownPoll)
	}
	// It turns up in the other cache, still tearing down, and leaves that at its end.
	jt.record(subjectOf(newPod(mainDone, succeeded), mesh), inProgress(v1alpha1.ModePodPhase))
	if again := jt.gone(keyOf(subject.pod)); again != 0 {
		t.Errorf("asked to look again after %s", again)
	}
	if got := jt.take(mesh.Ref).Terminated; got != 1 {
		t.Errorf("counted %d", got)
	}

	jt.record(subject, waiting())
	jt.record(subject, terminating(v1alpha1.ModePodPhase))
	jt.clock.SetTime(jt.clock.Now().Add(teardownLag))
	if again := jt.gone(keyOf(subject.pod)); again != 0 || len(jt.pods) > 0 {
		t.Errorf("a pod that never turned up is looked for after %s; held: %v", again, jt.pods)
	}
}

func TestAFailedAttemptIsCountedOnce(t *testing.T) {
	jt := newJournalTest(t)
	subject := subjectOf(newPod(mainDone), policyOn("mesh", "proxy", "logger"))
	jt.record(subject, waiting())
	jt.record(subject, inProgress(v1alpha1.ModeCRR))
	jt.record(subject, inProgress(v1alpha1.ModeCRR, failureOf("logger", "the daemon gave up")))
	jt.record(subject, inProgress(v1alpha1.ModeCRR, failureOf("logger", "it had not ended"), failureOf("proxy", "it had not ended")))
	jt.record(subject, stuck(failureOf("logger", "it had not ended"), failureOf("proxy", "it had not ended")))
	want := rollup.Tally{Failed: 1, Recent: []v1alpha1.RecentTermination{{Pod: "job-1", Mode: v1alpha1.ModeCRR, Outcome: v1alpha1.OutcomeFailed}}}
	if diff := cmp.Diff(want, jt.take(mesh.Ref)); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
	if got := testutil.ToFloat64(attemptFailuresTotal.WithLabelValues("CRR")); got != 1 {
		t.Errorf("counted %v failed attempts", got)
	}
	if got := testutil.ToFloat64(attemptsTotal.WithLabelValues("CRR")); got != 0 {
		t.Errorf("the failure was counted as %v started attempts", got)
	}
}

// What was written is counted by its own mode, so that failures can be held against starts, and the pod by the mode that it
// was a step of.
func TestThePhaseThatModeCRRWritesFirstIsCounted(t *testing.T) {
	jt := newJournalTest(t)
	subject := subjectOf(newPod(mainDone), mesh)
	phase := terminating(v1alpha1.ModeCRR)
	phase.Actions[0].Mode = v1alpha1.ModePodPhase
	for _, decision := range []plan.Decision{waiting(), phase, inProgress(v1alpha1.ModeCRR), terminated(v1alpha1.ModeCRR)} {
		jt.record(subject, decision)
	}
	want := map[string]float64{"PodPhase started": 1, "CRR terminated": 1}
	got := map[string]float64{}
	for _, mode := range []string{"PodPhase", "CRR"} {
		for name, counter := range map[string]prometheus.Counter{
			"started":    attemptsTotal.WithLabelValues(mode),
			"terminated": podsTerminatedTotal.WithLabelValues(mode),
		} {
			if value := testutil.ToFloat64(counter); value != 0 {
				got[mode+" "+name] = value
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	if recent := jt.take(mesh.Ref).Recent; len(recent) != 1 || recent[0].Mode != v1alpha1.ModeCRR {
		t.Errorf("recent is %+v", recent)
	}
}

func TestAnAttemptByAnotherModeThanTheDeclaredOneIsCounted(t *testing.T) {
	jt := newJournalTest(t)
	subject := subjectOf(newPod(mainDone), mesh)
	jt.record(subject, waiting())
	jt.record(subject, terminating(v1alpha1.ModeCRR))
	jt.record(subject, inProgress(v1alpha1.ModeCRR))
	fallback := terminating(v1alpha1.ModePodPhase)
	fallback.Reason = v1alpha1.ReasonFallback
	jt.record(subject, fallback)
	jt.record(subject, inProgress(v1alpha1.ModePodPhase))
	got := map[v1alpha1.Mode]float64{}
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModePodPhase} {
		got[mode] = testutil.ToFloat64(fallbacksTotal.WithLabelValues(string(mode)))
	}
	if diff := cmp.Diff(map[v1alpha1.Mode]float64{v1alpha1.ModeCRR: 0, v1alpha1.ModePodPhase: 1}, got); diff != "" {
		t.Errorf("fallbacks by mode (-want +got):\n%s", diff)
	}
}

func TestWhatCameAboutBeforeARestartIsNotCountedAgain(t *testing.T) {
	jt := newJournalTest(t)
	subject := subjectOf(newPod(mainDone), mesh)
	old, late := failureOf("proxy", "it had not ended"), plan.Failure{Container: "proxy", Mode: v1alpha1.ModeImage, Message: "neither"}
	jt.record(subject, stuck(old))
	jt.record(subject, stuck(old, late))
	if got := jt.take(mesh.Ref).Failed; got != 1 {
		t.Errorf("counted %d failures, want the one after the restart", got)
	}

	jt = newJournalTest(t)
	jt.record(subject, terminated(v1alpha1.ModePodPhase))
	jt.record(subject, terminated(v1alpha1.ModePodPhase))
	jt.gone(keyOf(subject.pod))
	if tally := jt.take(mesh.Ref); !tally.Empty() {
		t.Errorf("a pod that had ended before the restart was counted: %+v", tally)
	}

	jt.record(subject, inProgress(v1alpha1.ModePodPhase))
	jt.record(subject, terminated(v1alpha1.ModePodPhase))
	if got := jt.take(mesh.Ref).Terminated; got != 1 {
		t.Errorf("counted %d pods that ended after the restart, want 1", got)
	}
}

func TestStuckPodsAreCountedWhileTheyAreStuck(t *testing.T) {
	jt := newJournalTest(t)
	one, two := subjectOf(newPod(), mesh), subjectOf(newPod(func(p *corev1.Pod) { p.Name, p.UID = "job-2", "9c2d" }), mesh)
	steps := []struct {
		name string
		do   func()
		want float64
	}{
		{"one waits", func() { jt.record(one, waiting()) }, 0},
		{"one is stuck", func() { jt.record(one, stuck()) }, 1},
		{"it still is", func() { jt.record(one, stuck()) }, 1},
		{"two is stuck as well", func() { jt.record(two, stuck()) }, 2},
		{"one has ended late", func() { jt.record(one, terminated(v1alpha1.ModeCRR)) }, 1},
		{"two is no longer governed", func() { jt.dismiss(keyOf(two.pod)) }, 0},
		{"two is stuck again", func() { jt.record(two, stuck()) }, 1},
		{"another pod takes its name", func() {
			jt.record(subjectOf(newPod(func(p *corev1.Pod) { p.Name, p.UID = "job-2", "0000" }), mesh), waiting())
		}, 0},
		{"it is stuck and goes", func() { jt.record(one, stuck()); jt.gone(keyOf(one.pod)) }, 0},
	}
	for _, step := range steps {
		step.do()
		if got := testutil.ToFloat64(stuckPods); got != step.want {
			t.Errorf("%s: the gauge is %v, want %v", step.name, got, step.want)
		}
	}
}

func TestEventsTellWhatHappenedAndWhatStandsInTheWay(t *testing.T) {
	failure := failureOf("proxy", "it had not ended")
	fallback := terminating(v1alpha1.ModeImage)
	fallback.Reason, fallback.Failures, fallback.BackoffLimitRisk = v1alpha1.ReasonFallback, []plan.Failure{failure}, true
	retry := stuck(failure)
	retry.Actions = []plan.Action{{Mode: v1alpha1.ModeCRR, For: v1alpha1.ModeCRR, Attempt: 1}}
	for name, tc := range map[string]struct {
		decisions []plan.Decision
		want      []string
	}{
		"waiting is no event": {[]plan.Decision{waiting(), inProgress(v1alpha1.ModeCRR)}, nil},
		"a fallback tells what failed and what it risks": {[]plan.Decision{fallback}, []string{
			"Warning Fallback batch/job-1: ending proxy by mode Image (it had not ended) [SidecarTerminationPolicy/mesh]",
			"Warning BackoffLimitRisk batch/job-1: mode Image restarts a container, and under restartPolicy OnFailure each restart counts towards the Job's backoffLimit [SidecarTerminationPolicy/mesh]",
		}},
		"stuck once": {[]plan.Decision{stuck(failure), stuck(failure)}, []string{
			"Warning Stuck batch/job-1: every usable mode has failed [SidecarTerminationPolicy/mesh]",
		}},
		"stuck in the act is one event": {[]plan.Decision{retry}, []string{
			"Warning Stuck batch/job-1: every usable mode has failed [SidecarTerminationPolicy/mesh]",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			jt := newJournalTest(t)
			for _, decision := range tc.decisions {
				jt.record(subjectOf(newPod(mainDone), mesh), decision)
			}
			if diff := cmp.Diff(tc.want, jt.events.take()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALongNoteIsCutWhereTheServerWouldRefuseIt(t *testing.T) {
	events := &recordedEvents{}
	podEvent{corev1.EventTypeNormal, v1alpha1.ReasonStuck, strings.Repeat("é", maxNote), nil}.emit(events, newPod())
	_, note, _ := strings.Cut(events.take()[0], ": ")
	if len(note) > maxNote || !strings.HasSuffix(note, "é...") {
		t.Errorf("the note has %d bytes and ends in %q", len(note), note[len(note)-8:])
	}
}

func TestAWarningIsGivenOncePerPod(t *testing.T) {
	jt := newJournalTest(t)
	subject := subjectOf(newPod(func(p *corev1.Pod) {
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "yes"}}
	}))
	ignored := plan.Decision{Stage: plan.StageIgnored, Reason: v1alpha1.ReasonNoSidecar}
	jt.record(subject, ignored)
	jt.record(subject, ignored)
	if got := jt.events.take(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning InvalidEnv batch/job-1: container proxy") {
		t.Errorf("events: %q", got)
	}
}

// Whoever may write policies must not be able to fill the operator's memory, or the cluster with events.
func TestWhatIsKeptOfAPodDoesNotGrowWithPoliciesTimesContainers(t *testing.T) {
	const containers, many = 32, 1000
	pod := newPod()
	var names []string
	for i := range containers {
		name := fmt.Sprintf("proxy-%02d", i)
		names = append(names, name)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		native := corev1.Container{Name: "native-" + name, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, native)
		names = append(names, native.Name)
	}
	jt := newJournalTest(t)
	var policies []resolve.Policy
	for i := range many {
		policy := policyOn(fmt.Sprintf("mesh-%04d", i), names...)
		policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
		policies = append(policies, policy)
		if i+1 != 1 && i+1 != 10 && i+1 != many {
			continue
		}
		subject := subjectOf(pod, policies...)
		jt.record(subject, waiting())
		e := jt.pods[keyOf(pod)]
		if len(subject.resolution.Losses) != i {
			t.Errorf("%d policies: %d losses, want one for each but the winner", i+1, len(subject.resolution.Losses))
		}
		if len(e.warned) != containers || len(e.policies) != i+1 || len(e.governing) > containers {
			t.Errorf("%d policies: kept are %d warnings, %d policies and %d that decide", i+1, len(e.warned), len(e.policies), len(e.governing))
		}
	}
	if got := jt.events.take(); len(got) != containers {
		t.Errorf("%d events, want one for each native sidecar", len(got))
	}
}

func TestPodsOfManyKindsShareWhatTheyHaveInCommon(t *testing.T) {
	jt := newJournalTest(t)
	kinds := [][]resolve.Policy{{mesh}, {mesh, policyOn("other", "proxy")}}
	kept := map[*claims]bool{}
	for i := range 100 {
		subject := subjectOf(newPod(func(p *corev1.Pod) { p.Name = fmt.Sprintf("job-%d", i) }), kinds[i%2]...)
		jt.record(subject, waiting())
		kept[jt.pods[keyOf(subject.pod)].claims] = true
	}
	if len(kept) != len(kinds) {
		t.Errorf("100 pods of two kinds keep %d", len(kept))
	}
}

func TestADryRunIsReportedOnceAndReachesTheStatus(t *testing.T) {
	jt := newJournalTest(t)
	policy := policyOn("mesh", "proxy")
	policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
	subject := subjectOf(newPod(mainDone), policy)
	settling := plan.Decision{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonSettling}
	jt.recordDryRun(subject, settling)
	jt.told()
	jt.recordDryRun(subject, terminating(v1alpha1.ModePodPhase))
	if diff := cmp.Diff(map[string]bool{"mesh": true}, jt.told()); diff != "" {
		t.Errorf("the result is in no status (-want +got):\n%s", diff)
	}
	jt.recordDryRun(subject, terminating(v1alpha1.ModePodPhase))
	want := []string{"Normal WouldTerminate batch/job-1: nothing was done, for the policy's enforcement is DryRun; Enforce would mean: " +
		"ending proxy by mode PodPhase [SidecarTerminationPolicy/mesh]"}
	if diff := cmp.Diff(want, jt.events.take()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	tally := rollup.Tally{Recent: []v1alpha1.RecentTermination{{Pod: "job-1", Mode: v1alpha1.ModePodPhase, Outcome: v1alpha1.OutcomeWouldTerminate}}}
	if diff := cmp.Diff(tally, jt.take(policy.Ref)); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
	if got := testutil.ToFloat64(dryRunAttemptsTotal.WithLabelValues("PodPhase")); got != 1 {
		t.Errorf("counted %v", got)
	}
	if got := testutil.ToFloat64(attemptsTotal.WithLabelValues("PodPhase")); got != 0 {
		t.Errorf("counted %v started attempts", got)
	}
}

func TestPoliciesAreToldWhatChangesForThem(t *testing.T) {
	pod := newPod()
	high := policyOn("high", "proxy")
	high.Spec.Priority = 1
	other := policyOn("other", "main-of-another-pod")
	both := map[string]bool{"high": true, "mesh": true}
	for name, tc := range map[string]struct {
		before, after []resolve.Policy
		want          map[string]bool
	}{
		"nothing changed":                  {[]resolve.Policy{mesh, high}, []resolve.Policy{mesh, high}, map[string]bool{}},
		"the cache lists them anew":        {[]resolve.Policy{mesh, high}, []resolve.Policy{high, mesh}, map[string]bool{}},
		"another policy wins":              {[]resolve.Policy{mesh}, []resolve.Policy{mesh, high}, both},
		"the winner goes":                  {[]resolve.Policy{mesh, high}, []resolve.Policy{mesh}, both},
		"a policy no longer selects it":    {[]resolve.Policy{mesh, other}, []resolve.Policy{mesh}, map[string]bool{"mesh": true, "other": true}},
		"the winner leaves it a container": {[]resolve.Policy{mesh, high}, []resolve.Policy{mesh, {Ref: high.Ref, Spec: other.Spec}}, both},
	} {
		t.Run(name, func(t *testing.T) {
			jt := newJournalTest(t)
			jt.record(subjectOf(pod, tc.before...), waiting())
			jt.told()
			jt.record(subjectOf(pod, tc.after...), waiting())
			if diff := cmp.Diff(tc.want, jt.told()); diff != "" {
				t.Errorf("policies that are told (-want +got):\n%s", diff)
			}
		})
	}
}

func TestADismissedPodIsForgottenAndItsPoliciesAreTold(t *testing.T) {
	jt := newJournalTest(t)
	subject := subjectOf(newPod(), mesh)
	jt.record(subject, waiting())
	jt.told()
	jt.dismiss(keyOf(subject.pod))
	if diff := cmp.Diff(map[string]bool{"mesh": true}, jt.told()); diff != "" {
		t.Errorf("policies that are told (-want +got):\n%s", diff)
	}
	jt.dismiss(keyOf(subject.pod))
	if jt.gone(keyOf(subject.pod)) != 0 || len(jt.pods) > 0 || len(jt.told()) > 0 {
		t.Error("it is remembered")
	}
}

func TestATallyThatCouldNotBeWrittenIsPutBack(t *testing.T) {
	jt := newJournalTest(t)
	first := rollup.Tally{Terminated: 1, Recent: []v1alpha1.RecentTermination{{Pod: "first"}}}
	second := rollup.Tally{Terminated: 2, Recent: []v1alpha1.RecentTermination{{Pod: "second"}}}
	jt.add(mesh.Ref, first)
	taken := jt.take(mesh.Ref)
	jt.add(mesh.Ref, second)
	jt.putBack(mesh.Ref, taken)
	want := rollup.Tally{Terminated: 3, Recent: []v1alpha1.RecentTermination{{Pod: "second"}, {Pod: "first"}}}
	if diff := cmp.Diff(want, jt.take(mesh.Ref)); diff != "" {
		t.Errorf("tally (-want +got):\n%s", diff)
	}
	jt.putBack(mesh.Ref, rollup.Tally{})
	if len(jt.tallies) > 0 {
		t.Error("an empty tally is kept")
	}
}

func TestMetricsFollowTheConventionsOfPrometheus(t *testing.T) {
	jt := newJournalTest(t)
	subject := subjectOf(newPod(), mesh)
	jt.record(subject, waiting())
	jt.recordDryRun(subject, terminating(v1alpha1.ModeCRR))
	jt.record(subject, terminating(v1alpha1.ModeCRR))
	jt.record(subject, inProgress(v1alpha1.ModeCRR, failureOf("proxy", "late")))
	jt.record(subject, terminated(v1alpha1.ModeCRR))
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

func TestOneLogLineForEachResult(t *testing.T) {
	jt := newJournalTest(t)
	var lines []string
	jt.log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	subject := subjectOf(newPod(mainDone), mesh)
	failed := terminating(v1alpha1.ModeImage)
	failed.Actions[0].Attempt = 1
	failed.Failures = []plan.Failure{{Container: "proxy", Mode: v1alpha1.ModeCRR, Message: "too slow"}}
	outOfModes := plan.Decision{Stage: plan.StageStuck, Reason: v1alpha1.ReasonStuck, Message: "all failed", MainsDone: noon, Failures: failed.Failures}
	ended := plan.Decision{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated, MainsDone: noon}
	for _, decision := range []plan.Decision{waiting(), terminating(v1alpha1.ModeCRR), failed, failed, outOfModes, outOfModes, ended, ended} {
		jt.record(subject, decision)
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
