// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
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

// TestMarks covers when a pod is marked, and with which containers.
func TestMarks(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, running("main"), running("proxy")) }
	two := func() *corev1.Pod { return newPod(never, running("main"), running("logs"), running("proxy")) }
	waiting := waits(v1alpha1.ReasonMainContainersRunning, 0)
	listing := func(names string) func(*plan.Snapshot) {
		return func(s *plan.Snapshot) { annotate(s.Pod, v1alpha1.AnnotationIgnoredExitCodes, own(names)) }
	}

	outdated := func(s *plan.Snapshot) {
		listing("other")(s)
		record(v1alpha1.MainsRunning)(s)
	}

	runScenarios(t, map[string]scenario{
		"a scheduled pod":                {observed(pod(), oneProxy(), unmarked), 0, marking("[proxy]")},
		"a pod whose mark is current":    {observed(pod(), oneProxy()), 0, waiting},
		"sidecars with Ignore only":      {observed(two(), sidecarsOf(sidecar("logs"), sidecar("proxy", respect)), unmarked), 0, marking("[logs]")},
		"all sidecars have Respect":      {observed(pod(), oneProxy(respect)), 0, waiting},
		"unknown exit codes":             {observed(pod(), oneProxy(unknownExitCodes)), 0, waiting},
		"predictions":                    {observed(pod(), oneProxy(), unmarked, assumeMarked), 0, waiting},
		"the mark was denied":            {observed(pod(), oneProxy(), unmarked, denying(podPhase)), 0, deniedMark(requeued(waiting, 10*minute))},
		"no mark to deny":                {observed(pod(), oneProxy(respect), denying(podPhase)), 0, requeued(waiting, 10*minute)},
		"another write was denied":       {observed(pod(), oneProxy(), unmarked, denying(image)), 0, requeued(marking("[proxy]"), 10*minute)},
		"a mark that must wait":          {observed(pod(), oneProxy(), unmarked, markAfter(1)), 0, markWaits(waiting, 1)},
		"a mark that has waited":         {observed(pod(), oneProxy(), unmarked, markAfter(minute)), minute, marking("[proxy]")},
		"it waits, and is denied":        {observed(pod(), oneProxy(), unmarked, markAfter(1), denying(podPhase)), 0, deniedMark(requeued(waiting, 10*minute))},
		"no mark to wait for":            {observed(pod(), oneProxy(), markAfter(1)), 0, waiting},
		"it waits, mains are done":       {observed(finishedMain(never), oneProxy(), unmarked, markAfter(10*time.Second)), 0, markWaits(terminating(swapOfProxy), 10*time.Second)},
		"an outdated mark waits":         {observed(finishedMain(never), oneProxy(), outdated, markAfter(time.Hour)), 0, markWaits(waits(v1alpha1.ReasonMarking, 0), 5*minute)},
		"sidecars wait 5 min at most":    {observed(finishedMain(never), oneProxy(), outdated, markAfter(time.Hour)), 5 * minute, markWaits(terminating(crrOfProxy), 0)},
		"an outdated mark is denied":     {observed(finishedMain(never), oneProxy(), outdated, markAfter(time.Hour), denying(podPhase)), 0, deniedMark(requeued(terminating(crrOfProxy), 15*time.Second))},
		"the mark of another pod's copy": {observed(pod(), oneProxy(), withoutKruise, func(s *plan.Snapshot) { annotate(s.Pod, v1alpha1.AnnotationEnd, "PodPhase/other") }), 0, marking("[proxy] PodPhase")},
		"a sidecar is declared later":    {observed(two(), sidecarsOf(sidecar("logs"), sidecar("proxy")), listing("proxy")), 0, marking("[logs proxy]")},
		"exit codes now count":           {observed(two(), sidecarsOf(sidecar("logs"), sidecar("proxy", respect)), listing("logs,proxy")), 0, marking("[logs]")},
		"the Job cannot be read":         {observed(two(), oneProxy(), jobUnreadable, listing("logs,proxy")), 0, requeued(waits(v1alpha1.ReasonMainContainersRunning, 0), 10*minute)},
		"nor when it is not marked":      {observed(pod(), oneProxy(), jobUnreadable, unmarked), 0, requeued(marking("[proxy]"), 10*minute)},
		"all exit codes now count": {
			observed(pod(), oneProxy(respect), func(s *plan.Snapshot) {
				s.Pod.Labels = map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}
			}, listing("proxy")),
			0, marking("[]"),
		},
		"never after the record": {observed(finishedMain(never), oneProxy(), listing("other")), 0, terminating(crrOfProxy)},
		"after the record of another pod": {
			observed(finishedMain(never), oneProxy(), listing("other"), func(s *plan.Snapshot) { annotate(s.Pod, v1alpha1.AnnotationMainContainers, "Succeeded/other") }),
			0, marking("[proxy] recorded"),
		},
		"a record without the label":      {observed(finishedMain(never), oneProxy(), func(s *plan.Snapshot) { s.Pod.Labels = nil }), 0, marking("[proxy]")},
		"never with a terminal phase":     {observed(finishedMain(never), oneProxy(), endedByPhase, listing("other"), record(v1alpha1.MainsRunning)), 0, inProgress(minute)},
		"a pod being deleted is marked":   {observed(pod(), oneProxy(), unmarked, beingDeleted), 0, marking("[proxy]")},
		"a disrupted pod is marked":       {observed(pod(), oneProxy(), unmarked, condition(corev1.DisruptionTarget)), 0, marking("[proxy]")},
		"main containers are done":        {observed(finishedMain(never), oneProxy(), unmarked), 0, marking("[proxy] recorded")},
		"main containers are done, drain": {observed(finishedMain(never), oneProxy(drain(minute)), unmarked), 0, marking("[proxy] recorded")},
		"all containers have ended":       {observed(finishedMain(never, exited("proxy", 7)), oneProxy(), unmarked), 0, marking("[proxy] decided")},
		"a main container has failed":     {observed(newPod(never, exited("main", 3), running("proxy")), oneProxy(), unmarked), 0, marking("[proxy]")},
		"a corrupt record of a swap":      {observed(pod(), oneProxy(), unmarked, func(s *plan.Snapshot) { s.InvalidAnnotation = "corrupt" }), 0, marking("[proxy]")},
	})
}

// TestEndInAdvance covers pods that the admission policy can end without the operator.
func TestEndInAdvance(t *testing.T) {
	pod := func() *corev1.Pod { return newPod(never, running("main"), running("proxy")) }
	two := func() *corev1.Pod { return newPod(never, running("main"), running("logs"), running("proxy")) }
	oneFailed := func() *corev1.Pod { return newPod(never, exited("main", 3), running("other"), running("proxy")) }
	inAdvance := ending(v1alpha1.EndPodPhase)
	waiting := waits(v1alpha1.ReasonMainContainersRunning, 0)
	const ends, only = "[proxy] PodPhase", "[proxy]"

	runScenarios(t, map[string]scenario{
		"Auto without Kruise":            {observed(pod(), oneProxy(), unmarked, withoutKruise), 0, marking(ends)},
		"Auto without Kruise, marked":    {observed(pod(), oneProxy(), inAdvance, withoutKruise), 0, waiting},
		"declared":                       {observed(pod(), oneProxy(mode(podPhase)), unmarked), 0, marking(ends)},
		"no daemon on the node":          {observed(pod(), oneProxy(), unmarked, onDaemonlessNode), 0, marking(ends)},
		"all sidecars":                   {observed(two(), sidecarsOf(sidecar("logs"), sidecar("proxy")), unmarked, withoutKruise), 0, marking("[logs proxy] PodPhase")},
		"not where one uses a CRR":       {observed(two(), sidecarsOf(sidecar("logs", mode(podPhase)), sidecar("proxy")), unmarked), 0, marking("[logs proxy]")},
		"not where one has Respect":      {observed(two(), sidecarsOf(sidecar("logs"), sidecar("proxy", respect)), unmarked, withoutKruise), 0, marking("[logs]")},
		"not where one drains":           {observed(two(), sidecarsOf(sidecar("logs"), sidecar("proxy", drain(1))), unmarked, withoutKruise), 0, marking("[logs proxy]")},
		"not where one has no mode left": {observed(two(), sidecarsOf(sidecar("logs"), sidecar("proxy", mode(crr), noFallback)), unmarked, withoutKruise), 0, marking("[logs proxy]")},
		"not with mode Image":            {observed(pod(), oneProxy(mode(image)), unmarked, withoutKruise), 0, marking(only)},
		"not if the phase is the last":   {observed(pod(), oneProxy(), unmarked, withoutKruise, lastResort), 0, marking(only)},
		"not if the phase is disabled":   {observed(pod(), oneProxy(), unmarked, withoutKruise, withoutPodPhase), 0, marking(only)},
		"not with a long grace period":   {observed(pod(), oneProxy(byPolicy), unmarked, withoutKruise, grace(2*time.Hour)), 0, marking(only)},
		"not on a virtual node":          {observed(pod(), oneProxy(), unmarked, onVirtualNode), 0, marking(only)},
		"not on a node that is not read": {observed(pod(), oneProxy(), unmarked, onUnreadNode), 0, marking(only)},
		"not on an unknown node":         {observed(pod(), oneProxy(), unmarked, withoutKruise, onUnknownNode), 0, marking(only)},
		"without the admission policy":   {observed(pod(), oneProxy(), undecided, withoutKruise), 0, marking(ends)},
		"taken back for a drain":         {observed(pod(), oneProxy(drain(1)), inAdvance, withoutKruise), 0, marking(only)},
		"taken back for Kruise":          {observed(pod(), oneProxy(), inAdvance), 0, marking(only)},
		"not after a main has failed":    {observed(oneFailed(), oneProxy(), unmarked, withoutKruise), 0, marking(only)},
		"kept after a main has failed":   {observed(oneFailed(), oneProxy(), inAdvance), 0, waiting},
		"while a main may restart":       {observed(newPod(onFailure, exited("main", 3), running("proxy")), oneProxy(), unmarked, withoutKruise), 0, marking(ends)},
		"kept after the mains are done":  {observed(newPod(never, exited("main", 3), running("proxy")), oneProxy(), inAdvance), 0, terminating(swapOfProxy)},
		"not after the mains are done":   {observed(finishedMain(never), oneProxy(), unmarked, withoutKruise), 0, marking("[proxy] recorded")},
	})
}

// TestMarkOfStoppedSidecars covers sidecars that OpenKruise has stopped before the kubelet reports it.
func TestMarkOfStoppedSidecars(t *testing.T) {
	two := sidecarsOf(sidecar("logs"), sidecar("proxy"))
	bothRun := func() *corev1.Pod { return finishedMain(never, running("logs"), running("proxy")) }
	ofProxy := attempted(stopped(crrAttempt(1, "proxy")))
	of := func(changes ...func(*plan.Snapshot)) plan.Snapshot {
		return observed(finishedMain(never), oneProxy(), append(changes, ofProxy)...)
	}
	marked := func(names string) brief {
		b := inProgress(minute)
		b.Mark = names + " CRR decided"
		return b
	}

	runScenarios(t, map[string]scenario{
		"stopped":               {of(), 0, marked("[proxy]")},
		"under OnFailure":       {observed(finishedMain(onFailure), oneProxy(), ofProxy), 0, marked("[proxy]")},
		"not stopped":           {observed(finishedMain(never), oneProxy(), attempted(crrAttempt(1, "proxy"))), 0, inProgress(minute)},
		"by one CRR each":       {observed(bothRun(), two, attempted(stopped(crrAttempt(1, "logs")), stopped(crrAttempt(2, "proxy")))), 0, marked("[logs proxy]")},
		"another has not":       {observed(bothRun(), two, attempted(crrAttempt(1, "logs"), stopped(crrAttempt(2, "proxy")))), 0, inProgress(minute)},
		"another has ended":     {observed(finishedMain(never, exited("logs", 0), running("proxy")), two, ofProxy), 0, marked("[logs proxy]")},
		"came back":             {observed(finishedMain(onFailure, running("proxy").restarted(1)), oneProxy(), ofProxy), 0, fallingBack(phaseOfProxy)},
		"marked already":        {of(ending(v1alpha1.EndCRR)), 0, marking("[proxy] CRR decided")},
		"not recorded":          {of(record(v1alpha1.MainsRunning)), 0, marking("[proxy] recorded")},
		"waits":                 {of(markAfter(10 * time.Second)), 0, markWaits(inProgress(minute), 10*time.Second)},
		"needs no mark to wait": {of(markAfter(10*time.Second), withClaim), 0, inProgress(minute)},
		"resource claims":       {of(withClaim), 0, inProgress(minute)},
		"PodPhase disabled":     {of(withoutPodPhase), 0, inProgress(minute)},
		"PodPhase denied":       {of(denying(podPhase)), 0, inProgress(15 * time.Second)},
		"long grace period":     {of(grace(2 * time.Hour)), 0, inProgress(2*time.Hour + 30*time.Second)},
		"a main has failed":     {observed(newPod(never, exited("main", 3), running("proxy")), oneProxy(mode(crr)), ofProxy), 0, inProgress(minute)},
		"exit codes that count": {observed(finishedMain(never), oneProxy(respect), ofProxy), 0, inProgress(minute)},
	})
}

// TestRecordByOperator covers pods whose restart rules the admission policy does not evaluate: the operator records that their main
// containers have succeeded.
func TestRecordByOperator(t *testing.T) {
	restartOn42 := rule(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 42)
	restartAll := rule(corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn, 7)
	const ownNever, ownAlways = corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyAlways
	pod := func(code int32, sidecars ...container) *corev1.Pod {
		return newPod(never, append([]container{exited("main", code).restarting(ownNever, restartOn42)}, sidecars...)...)
	}
	withRule := func() *corev1.Pod { return pod(0, running("proxy")) }
	oldKubelet := func(s *plan.Snapshot) { s.Kubelet.Version = "v1.34.1" }
	deadline := func(seconds int64) func(*plan.Snapshot) {
		return func(s *plan.Snapshot) {
			s.Pod.Spec.ActiveDeadlineSeconds, s.Pod.Status.StartTime = &seconds, &metav1.Time{Time: done.Add(-minute)}
		}
	}
	const recorded = "[proxy] Waiting recorded"

	runScenarios(t, map[string]scenario{
		"a main with a rule has succeeded": {observed(withRule(), oneProxy()), 0, marking(recorded)},
		"found late":                       {observed(withRule(), oneProxy(), unmarked), 0, marking(recorded)},
		"marked to end in advance":         {observed(withRule(), oneProxy(), ending(v1alpha1.EndPodPhase), withoutKruise), 0, marking("[proxy] PodPhase decided")},
		"once recorded, sidecars end":      {observed(withRule(), oneProxy(), record(v1alpha1.MainsSucceeded)), 0, terminating(crrOfProxy)},
		"not while a main runs":            {observed(newPod(never, running("main").restarting(ownNever, restartOn42), running("proxy")), oneProxy()), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"not while a rule restarts a main": {observed(pod(42, running("proxy")), oneProxy()), 0, waits(v1alpha1.ReasonMainContainersRunning, 0)},
		"not after a main has failed":      {observed(pod(3, running("proxy")), oneProxy()), 0, terminating(swapOfProxy)},
		"not of a disrupted pod":           {observed(withRule(), oneProxy(), condition(corev1.DisruptionTarget)), 0, ignored(v1alpha1.ReasonPodDisrupted)},
		"not of a deleted pod":             {observed(withRule(), oneProxy(), beingDeleted), 0, ignored(v1alpha1.ReasonPodDeleted)},
		"not after the pod's deadline":     {observed(withRule(), oneProxy(), deadline(60)), 0, ignored(v1alpha1.ReasonPodDisrupted)},
		"before the pod's deadline":        {observed(withRule(), oneProxy(), deadline(61)), 0, marking(recorded)},
		"the node does not say when the main ended": {
			observed(newPod(never, exited("main", 0).endedAt(time.Time{}).restarting(ownNever, restartOn42), running("proxy")), oneProxy(), deadline(60)), 0, marking(recorded),
		},
		"without the admission policy": {observed(withRule(), oneProxy(), undecided), 0, marking(recorded)},
		"the sidecar has a rule":       {observed(finishedMain(never, running("proxy").restarting(ownNever, restartOn42)), oneProxy()), 0, marking(recorded)},
		"an init container has a rule": {
			observed(finishedMain(never), oneProxy(), record(v1alpha1.MainsRunning), func(s *plan.Snapshot) {
				s.Pod.Spec.InitContainers = []corev1.Container{{Name: "init", RestartPolicyRules: []corev1.ContainerRestartRule{restartOn42}}}
			}), 0, marking("[proxy] recorded"),
		},
		"an old kubelet restarts no container Always":      {observed(newPod(never, exited("main", 0).restarting(ownAlways), running("proxy")), oneProxy(), oldKubelet), 0, marking(recorded)},
		"an ignored container with Always does not matter": {observed(finishedMain(never, running("proxy").restarting(ownAlways)), oneProxy(), record(v1alpha1.MainsRunning)), 0, marking(recorded)},
		"a respected sidecar runs":                         {observed(pod(0, running("logs"), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy"))), 0, terminating("CRR#1 [logs proxy] within 1m30s")},
		"a respected sidecar has succeeded":                {observed(pod(0, exited("logs", 0), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy"))), 0, marking(recorded)},
		"a respected sidecar has failed":                   {observed(pod(0, exited("logs", 7), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy"))), 0, terminating(swapOfProxy)},
		"an open sidecar may restart all: recorded with the end": {
			observed(finishedMain(never, running("proxy").restarting(ownNever, restartAll)), oneProxy()),
			0, terminating("PodPhase#1=Succeeded [proxy] within 1m0s"),
		},
		"an open sidecar may restart all, marked in advance": {
			observed(finishedMain(never, running("proxy").restarting(ownNever, restartAll)), oneProxy(), ending(v1alpha1.EndPodPhase)),
			0, marking("[proxy] PodPhase decided"),
		},
		"an ended sidecar does not restart all": {
			observed(finishedMain(never, exited("logs", 0).restarting(ownNever, restartAll), running("proxy")), sidecarsOf(sidecar("logs"), sidecar("proxy"))),
			0, marking("[logs proxy] Waiting recorded"),
		},
		"a respected sidecar with Always restarts": {
			observed(newPod(never, exited("main", 0), exited("logs", 0).restarting(ownAlways), running("proxy")), sidecarsOf(sidecar("logs", respect), sidecar("proxy"))),
			0, terminating("CRR#1 [logs proxy] within 1m30s"),
		},
	})
}

// TestFacts covers what others read in a marked pod.
func TestFacts(t *testing.T) {
	facts := func(pod *corev1.Pod) string {
		var all []string
		for name, holds := range map[string]func(*corev1.Pod) bool{
			"undecided": plan.OutcomeUndecided, "recorded": plan.MainsRecorded, "ends": plan.MarkedToEnd, "tearing down": plan.IsTearingDown,
		} {
			if holds(pod) {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		return strings.Join(all, ", ")
	}
	otherPods := func(s *plan.Snapshot) {
		for key, value := range s.Pod.Annotations {
			s.Pod.Annotations[key] = strings.Replace(value, "/pod-uid", "/other", 1)
		}
	}
	for name, tc := range map[string]struct {
		changes []func(*plan.Snapshot)
		want    string
	}{
		"not marked":       {[]func(*plan.Snapshot){unmarked}, ""},
		"not answered":     {[]func(*plan.Snapshot){undecided}, "undecided"},
		"main runs":        {[]func(*plan.Snapshot){record(v1alpha1.MainsRunning)}, ""},
		"main succeeded":   {[]func(*plan.Snapshot){record(v1alpha1.MainsSucceeded)}, "recorded"},
		"marked to end":    {[]func(*plan.Snapshot){record(v1alpha1.MainsRunning), ending(v1alpha1.EndPodPhase)}, "ends"},
		"unknown end":      {[]func(*plan.Snapshot){record(v1alpha1.MainsRunning), ending("Other")}, ""},
		"ended":            {[]func(*plan.Snapshot){endedByPhase}, "ends, recorded, tearing down"},
		"failed":           {[]func(*plan.Snapshot){record(v1alpha1.MainsRunning), failedByPhase}, "ends, tearing down"},
		"without label":    {[]func(*plan.Snapshot){endedByPhase, func(s *plan.Snapshot) { s.Pod.Labels = nil }}, "tearing down"},
		"other pod's copy": {[]func(*plan.Snapshot){ending(v1alpha1.EndPodPhase), otherPods}, "undecided"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, facts(observed(finishedMain(never), oneProxy(), tc.changes...).Pod)); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRecordLate covers pods whose outcome the admission policy has not decided: it is not installed, or was away.
func TestRecordLate(t *testing.T) {
	noMode := stuck(v1alpha1.ReasonNoUsableMode)
	const recorded, decided = "[proxy] recorded", "[proxy] decided"
	disruptionTakenBack := func(s *plan.Snapshot) {
		s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse}}
	}
	// notKept is a record that the operator made at the time, and that the pod has not kept.
	notKept := func(after time.Duration) func(*plan.Snapshot) {
		return func(s *plan.Snapshot) { s.MarkedAt, s.MarkVersion, s.Pod.ResourceVersion = done.Add(after), "7", "7" }
	}
	running := func(changes ...func(*plan.Snapshot)) plan.Snapshot {
		return observed(finishedMain(never), oneProxy(noImage), append([]func(*plan.Snapshot){withoutKruise, withoutPodPhase, undecided}, changes...)...)
	}
	ended := func(changes ...func(*plan.Snapshot)) plan.Snapshot {
		return observed(finishedMain(never, exited("proxy", 7)), oneProxy(), append([]func(*plan.Snapshot){undecided}, changes...)...)
	}

	runScenarios(t, map[string]scenario{
		"the sidecar runs":               {running(), time.Hour, marking(recorded)},
		"all containers have ended":      {ended(), 0, marking(decided)},
		"ended after the record":         {ended(record(v1alpha1.MainsSucceeded)), 0, marking(decided)},
		"the mark ends the pod":          {observed(finishedMain(never), oneProxy(), ending(v1alpha1.EndPodPhase), undecided), 0, marking("[proxy] PodPhase decided")},
		"the policy was away":            {running(record(v1alpha1.MainsRunning)), time.Hour, marking(recorded)},
		"a disruption is taken back":     {running(record(v1alpha1.MainsRunning), disruptionTakenBack), time.Hour, marking(recorded)},
		"not of a disrupted pod":         {running(condition(corev1.DisruptionTarget)), time.Hour, ignored(v1alpha1.ReasonPodDisrupted)},
		"disrupted after the record":     {ended(record(v1alpha1.MainsSucceeded), condition(corev1.DisruptionTarget)), 0, marking(decided)},
		"deleted after the record":       {ended(record(v1alpha1.MainsSucceeded), beingDeleted), 0, marking(decided)},
		"undeclared after the record":    {ended(record(v1alpha1.MainsSucceeded), func(s *plan.Snapshot) { s.View = resolve.View{} }), 0, marking(decided)},
		"recorded already":               {running(record(v1alpha1.MainsSucceeded)), time.Hour, noMode},
		"in predictions":                 {running(assumeMarked), time.Hour, noMode},
		"denied":                         {running(denying(podPhase)), time.Hour, deniedMark(requeued(noMode, minute))},
		"must wait":                      {running(markAfter(minute)), 50 * time.Second, markWaits(waits(v1alpha1.ReasonMarking, 0), 10*time.Second)},
		"not kept: not at once":          {running(notKept(0)), 10 * time.Second, requeued(noMode, 20*time.Second)},
		"not kept: again after 30 s":     {running(notKept(0)), 30 * time.Second, marking(recorded)},
		"not kept: the interval grows":   {running(notKept(2 * minute)), 3 * minute, requeued(noMode, minute)},
		"not kept: the interval's limit": {running(notKept(time.Hour)), time.Hour + minute, requeued(noMode, 9*minute)},
		"before the CRR of a sidecar":    {observed(finishedMain(never), oneProxy(), undecided), 0, marking(recorded)},
		"too late":                       {ended(phase(corev1.PodFailed)), 0, ignored(v1alpha1.ReasonDecidedTooLate)},
		"too late, after the record":     {ended(record(v1alpha1.MainsSucceeded), phase(corev1.PodFailed)), 0, ignored(v1alpha1.ReasonDecidedTooLate)},
		"not too late: a main failed":    {observed(newPod(never, exited("main", 3), exited("proxy", 7)), oneProxy(), phase(corev1.PodFailed)), 0, ignored(v1alpha1.ReasonPodFinished)},
		"not too late: disrupted":        {ended(phase(corev1.PodFailed), condition(corev1.DisruptionTarget)), 0, ignored(v1alpha1.ReasonPodFinished)},
	})
}

// TestUnmark covers marked pods in which no sidecar is declared any more, or no main container is left.
func TestUnmark(t *testing.T) {
	of := func(changes ...func(*plan.Snapshot)) plan.Snapshot {
		undeclared := func(s *plan.Snapshot) { s.View = resolve.View{Mains: []string{"main", "proxy"}} }
		return observed(newPod(never, running("main"), running("proxy")), oneProxy(), append([]func(*plan.Snapshot){undeclared}, changes...)...)
	}
	declareAll := func(s *plan.Snapshot) {
		s.View.Sidecars, s.View.Mains = sidecarsOf(sidecar("main"), sidecar("proxy")), nil
	}
	noSidecar, noMain := ignored(v1alpha1.ReasonNoSidecar), stuck(v1alpha1.ReasonNoMainContainer)
	unmarks := func(b brief) brief {
		b.Mark = "[]"
		return b
	}

	runScenarios(t, map[string]scenario{
		"no sidecar":                 {of(), 0, unmarks(noSidecar)},
		"no main container":          {of(declareAll), 0, unmarks(noMain)},
		"the Job cannot be read":     {of(jobUnreadable), 0, requeued(noSidecar, 10*minute)},
		"no answer of the policy":    {of(declareAll, undecided), 0, unmarks(noMain)},
		"marked to end":              {of(ending(v1alpha1.EndPodPhase)), 0, unmarks(noSidecar)},
		"must wait":                  {of(markAfter(minute)), 0, markWaits(noSidecar, minute)},
		"denied":                     {of(denying(podPhase)), 0, deniedMark(requeued(noSidecar, 10*minute))},
		"not marked":                 {of(unmarked), 0, noSidecar},
		"in predictions":             {of(assumeMarked), 0, noSidecar},
		"recorded":                   {of(record(v1alpha1.MainsSucceeded)), 0, noSidecar},
		"being deleted":              {of(beingDeleted), 0, noSidecar},
		"terminal":                   {of(phase(corev1.PodFailed)), 0, noSidecar},
		"unmarked, undecided, stuck": {of(declareAll, undecided, func(s *plan.Snapshot) { annotate(s.Pod, v1alpha1.AnnotationIgnoredExitCodes, "") }), 0, noMain},
	})
}

// TestMarksAreCorrectedForever covers a pod whose mark others restore each time.
func TestMarksAreCorrectedForever(t *testing.T) {
	s := observed(newPod(never, running("main"), running("logs"), running("proxy")), sidecarsOf(sidecar("logs"), sidecar("proxy", respect)))
	for step := range 100 {
		annotate(s.Pod, v1alpha1.AnnotationIgnoredExitCodes, "logs,proxy")
		now := done.Add(time.Duration(step) * minute)
		if got := plan.Next(s, now); markOf(got) == nil {
			t.Fatalf("minute %d: the mark that lets a failed sidecar succeed is not corrected: %+v", step, briefly(got))
		}
		s.MarkedAt, s.MarkAfter = now, now.Add(minute)
	}
}

// TestMarkPermitsEnd covers writes of a kubelet after the main container has exited 0: the admission policy ends a pod whose sidecar may run
// again only where mode PodPhase could end it, and in a drain only if it has ended since.
func TestMarkPermitsEnd(t *testing.T) {
	before := func(c container, after time.Duration) container {
		last := &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(done.Add(after))}
		c.status.RestartCount, c.status.LastTerminationState.Terminated = 1, last
		return c
	}
	restarted := before(running("proxy"), 3*time.Second)
	longDrain := drain(300 * time.Second)
	for name, tc := range map[string]struct {
		sidecar resolve.Sidecar
		changes []func(*plan.Snapshot)
		becomes container
		want    bool
	}{
		"exits for good":                     {sidecar("proxy", longDrain), nil, exited("proxy", 0), true},
		"fails":                              {sidecar("proxy"), nil, exited("proxy", 143), true},
		"fails, drains":                      {sidecar("proxy", longDrain), nil, exited("proxy", 1), true},
		"failed before main, drains":         {sidecar("proxy", longDrain), nil, exited("proxy", 1).endedAt(done.Add(-time.Second)), false},
		"fails, drains, virtual node":        {sidecar("proxy", longDrain), []func(*plan.Snapshot){onVirtualNode}, exited("proxy", 1), true},
		"fails, virtual node":                {sidecar("proxy"), []func(*plan.Snapshot){onVirtualNode}, exited("proxy", 143), true},
		"fails, 2 h of grace":                {sidecar("proxy", byPolicy), []func(*plan.Snapshot){grace(2 * time.Hour)}, exited("proxy", 143), false},
		"is restarted":                       {sidecar("proxy", byPolicy), nil, restarted, true},
		"is restarted, drains":               {sidecar("proxy", longDrain, byPolicy), nil, restarted, true},
		"was restarted before main, drains":  {sidecar("proxy", longDrain, byPolicy), nil, before(running("proxy"), -time.Second), false},
		"was restarted before main":          {sidecar("proxy", byPolicy), nil, before(running("proxy"), -time.Second), false},
		"is restarted, virtual node":         {sidecar("proxy", byPolicy), []func(*plan.Snapshot){onVirtualNode}, restarted, false},
		"is restarted, PodPhase is disabled": {sidecar("proxy", byPolicy), []func(*plan.Snapshot){withoutPodPhase}, restarted, false},
		"is restarted, not by its modes":     {sidecar("proxy", byPolicy, mode(image), noFallback), nil, restarted, false},
		"fails, not by its modes":            {sidecar("proxy", byPolicy, mode(image), noFallback), nil, exited("proxy", 143), true},
		"is restarted, 600 s of grace":       {sidecar("proxy", byPolicy), []func(*plan.Snapshot){grace(600 * time.Second)}, restarted, true},
		"is restarted, 600 s by variable":    {sidecar("proxy"), []func(*plan.Snapshot){grace(600 * time.Second)}, restarted, false},
		"is restarted, resource claims":      {sidecar("proxy", byPolicy), []func(*plan.Snapshot){withClaim}, restarted, false},
		"waits to be restarted":              {sidecar("proxy", byPolicy), nil, crashLooping("proxy"), true},
		"waits since main's end, drains":     {sidecar("proxy", longDrain, byPolicy), nil, before(crashLooping("proxy"), 3*time.Second), true},
		"waits to be restarted, drains":      {sidecar("proxy", longDrain, byPolicy), nil, before(crashLooping("proxy"), -time.Second), false},
		"is being created, drains":           {sidecar("proxy", longDrain), nil, creating("proxy"), false},
		"is being created, virtual node":     {sidecar("proxy", byPolicy), []func(*plan.Snapshot){onVirtualNode}, creating("proxy"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := observed(newPod(onFailure, running("main"), running("proxy")), sidecarsOf(tc.sidecar), append(tc.changes, unmarked)...)
			write := plan.Next(s, done.Add(-minute)).Writes[0]
			if write.Mark.End == v1alpha1.EndPodPhase {
				t.Fatal("the pod ends at once")
			}
			pod := writtenBy(s.Pod, *write.Mark)
			report := pod.DeepCopy()
			report.Status.ContainerStatuses = []corev1.ContainerStatus{exited("main", 0).status, tc.becomes.status}
			if got := decide(pod, report); isTerminal(got) != tc.want {
				t.Errorf("phase %s after mark %s, want an end: %t", got.Status.Phase, describeMark(*write.Mark), tc.want)
			}
		})
	}
}
