// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// model is a cluster with one pod: an API server, and actors that see its objects late and act on their own. Time is
// virtual, and every delay comes from one seed.
type model struct {
	scenario simulation
	random   *rand.Rand
	now      time.Time
	queue    []event // in the order of time
	// bug is a bug of the operator or of the admission policy. The zero value is none.
	bug bug

	pod     *corev1.Pod // replaced at each write, never changed
	version int
	crrs    []*modelCRR
	// crrsVersion grows with each change of a CRR.
	crrsVersion int
	// disturbed is when the pod's disruption was reported or its deadline passed, and written when its status was last written.
	disturbed, written time.Time

	kubelet  *kubelet
	kruise   *kruise
	operator *operator

	transcript []string
	problems   []string
}

// event is something that happens at a time.
type event struct {
	at  time.Time
	run func()
}

// after schedules an event. Events at the same time run in a random order.
func (m *model) after(delay time.Duration, run func()) {
	at := m.now.Add(max(delay, 0))
	first, _ := slices.BinarySearchFunc(m.queue, at, func(e event, at time.Time) int { return e.at.Compare(at) })
	after := first
	for after < len(m.queue) && m.queue[after].at.Equal(at) {
		after++
	}
	m.queue = slices.Insert(m.queue, first+m.random.IntN(after-first+1), event{at, run})
}

// at schedules an event at a time after the end of the main container.
func (m *model) at(time time.Duration, run func()) { m.after(done.Add(time).Sub(m.now), run) }

// between returns a delay from the seed.
func (m *model) between(low, high time.Duration) time.Duration {
	return low + time.Duration(m.random.Int64N(int64(high-low)+1))
}

// run processes events until none is left or the horizon is reached.
func (m *model) run(horizon time.Duration) {
	end := m.now.Add(horizon)
	for len(m.queue) > 0 && !m.queue[0].at.After(end) {
		next := m.queue[0]
		m.queue = m.queue[1:]
		m.now = next.at
		next.run()
	}
	m.now = end
}

func (m *model) say(who, format string, args ...any) {
	m.transcript = append(m.transcript, fmt.Sprintf("%8.1fs  %-8s  %s", m.now.Sub(done).Seconds(), who, fmt.Sprintf(format, args...)))
}

func (m *model) fail(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf("%.1fs: ", m.now.Sub(done).Seconds())+fmt.Sprintf(format, args...))
}

// seconds is a time as the API writes it.
func (m *model) seconds() metav1.Time { return metav1.NewTime(m.now.Truncate(time.Second)) }

func (m *model) mustBeFine(t *testing.T, seed uint64) {
	t.Helper()
	if len(m.problems) > 0 {
		t.Fatalf("seed %d:\n%s\n\n%s", seed, strings.Join(m.problems[:min(len(m.problems), 5)], "\n"), strings.Join(m.transcript, "\n"))
	}
}

// crrsChanged delivers the CRRs to the operator.
func (m *model) crrsChanged() {
	m.crrsVersion++
	m.operator.crrsChanged()
}

// writeStatus writes to pods/status, where one admission policy decides, and another keeps a terminal phase.
func (m *model) writeStatus(change func(*corev1.Pod)) {
	m.written = m.now
	m.write(func(pod *corev1.Pod) {
		change(pod)
		if !m.during(m.scenario.away) {
			written := pod.DeepCopy()
			*pod = *decide(m.pod, written)
			if m.bug.policy != nil {
				m.bug.policy(m.pod, written, pod)
			}
		}
		if isMarked(m.pod) && isTerminal(m.pod) && pod.Status.Phase != m.pod.Status.Phase && !m.bug.unguarded {
			*pod = *m.pod // admission policy sidecar-termination-phase denies the write
		}
	})
}

// write changes the pod. The kubelet receives changes of spec and metadata, but none of the status alone.
func (m *model) write(change func(*corev1.Pod)) {
	before, pod := m.pod, m.pod.DeepCopy()
	change(pod)
	if reflect.DeepEqual(before, pod) {
		return
	}
	m.version++
	pod.ResourceVersion = fmt.Sprint(m.version)
	if m.disturbed.IsZero() && isDisturbed(pod) {
		m.disturbed = m.now
	}
	m.checkWrite(before, pod)
	if before.Status.Phase != pod.Status.Phase {
		m.say("pod", "reads %s", pod.Status.Phase)
	}
	if before, after := recordOf(before), recordOf(pod); before != after {
		m.say("pod", "has record %s", after)
	}
	if len(swapsOf(before)) > len(swapsOf(pod)) {
		m.say("pod", "loses the record of a swap")
	}
	m.pod = pod
	m.operator.podChanged(pod)
	if !maps.Equal(before.Labels, pod.Labels) || !maps.Equal(before.Annotations, pod.Annotations) ||
		(before.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) || !reflect.DeepEqual(before.Spec, pod.Spec) {
		m.kubelet.updated(pod)
	}
}

// checkWrite fails on what must never be written: a record that is not true or is taken back, another phase than the final one, an
// exit code of a main container that does not count, and a restart that no kubelet makes.
func (m *model) checkWrite(before, after *corev1.Pod) {
	switch {
	case !isTerminal(before) && isTerminal(after) && slices.ContainsFunc(m.kubelet.processes, m.kubelet.mustRun):
		m.fail("the pod ends before a main container is done, or while a sidecar drains")
	case isTerminal(before) && after.Status.Phase != before.Status.Phase:
		m.fail("phase %s becomes %s", before.Status.Phase, after.Status.Phase)
	case isRecorded(before) && !m.during(m.scenario.away) && (!isRecorded(after) || after.Status.Phase == corev1.PodFailed):
		m.fail("the record that the main container has succeeded is taken back")
	case isRecorded(after) && !isRecorded(before) && !m.succeeded():
		m.fail("the pod is recorded although a container that counts has not exited 0")
	case isMarked(after) && slices.Contains(plan.IgnoredExitCodes(after), "main"):
		m.fail("the exit code of the main container does not count")
	}
	restarts := 0
	for i := range after.Spec.Containers {
		c := &after.Spec.Containers[i]
		was, is := status(before, c.Name), status(after, c.Name)
		if p := m.kubelet.process(c.Name); p.stops > 0 && !isTerminal(after) {
			restarts += int(max(is.RestartCount-p.stopped, 0))
		}
		end := was.State.Terminated
		if is.RestartCount < was.RestartCount || end != nil && is.RestartCount > was.RestartCount && c.Image == is.Image && was.Image == is.Image &&
			!restartsAfter(after.Spec.RestartPolicy, c, end.ExitCode) {
			m.fail("%s restarts: %d restarts become %d", c.Name, was.RestartCount, is.RestartCount)
		}
	}
	if m.scenario.policy == onFailure && restarts > m.scenario.mayCount {
		m.fail("%d restarts of stopped sidecars count towards the Job's backoffLimit", restarts)
	}
}

// succeeded says whether every container that counts has exited 0, and was not disturbed.
func (m *model) succeeded() bool {
	for _, p := range m.kubelet.processes {
		if !slices.Contains(ignoredBy(m.view()), p.name) && (p.state != "dead" || p.code != 0 || !m.disturbed.IsZero() && p.ended.After(m.disturbed)) {
			return false
		}
	}
	return true
}

// modelCRR is a ContainerRecreateRequest.
type modelCRR struct {
	attempt  plan.Attempt
	deadline time.Duration
	killed   []string
	deleted  bool
}

// result is what the API server answers to a write.
type result string

const (
	written  result = "written"
	conflict result = "conflict"
	denied   result = "denied"
)

// create plays the API server with OpenKruise's webhook. If a superseded CRR was replaced since the operator observed it, create
// deletes and creates nothing.
func (m *model) create(action plan.Write) result {
	for _, spent := range action.Supersedes {
		if !m.delete(spent) {
			return conflict
		}
	}
	if m.during(m.scenario.denies) {
		return m.denial()
	}
	if slices.ContainsFunc(m.crrs, func(r *modelCRR) bool { return !r.deleted && r.attempt.Number == action.Attempt }) {
		return written
	}
	if m.scenario.daemonless || m.scenario.virtual {
		m.fail("a CRR on a node without Kruise's daemon")
	}
	markedToEnd := slices.ContainsFunc(m.pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == v1alpha1.PodConditionSidecarTerminated })
	counts := map[string]int32{}
	for _, name := range action.Containers {
		st := status(m.pod, name)
		if name == "main" {
			m.fail("a CRR stops the main container")
		}
		if st.ContainerID == "" || isTerminal(m.pod) && !markedToEnd {
			return denied
		}
		counts[name] = st.RestartCount
	}
	r := &modelCRR{deadline: action.Timeout, attempt: plan.Attempt{
		Mode: crr, Number: action.Attempt, UID: types.UID(fmt.Sprint(len(m.crrs))), RestartCounts: counts, Started: m.seconds().Time,
		MainRestarts: action.MainRestarts,
	}}
	for _, other := range m.crrs {
		if !other.deleted && other.attempt.Finished.IsZero() && maps.Equal(other.attempt.RestartCounts, counts) {
			m.fail("a CRR is created twice: %v", action.Containers)
		}
	}
	m.crrs = append(m.crrs, r)
	m.crrsChanged()
	m.kruise.created(r)
	return written
}

// denial is what package crr makes of a denial by OpenKruise: it is the answer of a stale cache if a container has just ended.
func (m *model) denial() result {
	believes := func(sinceEnd time.Duration) bool { return sinceEnd.Abs() >= minute }
	if m.bug.believes != nil {
		believes = m.bug.believes
	}
	if end := status(m.pod, "main").State.Terminated; end != nil && !believes(m.now.Sub(end.FinishedAt.Time)) {
		return conflict
	}
	return denied
}

// delete removes a CRR. It returns false if another CRR has that name.
func (m *model) delete(spent plan.Attempt) bool {
	for _, r := range m.crrs {
		switch {
		case r.deleted || r.attempt.Number != spent.Number:
		case r.attempt.UID != spent.UID:
			return false
		default:
			r.deleted = true
			m.kruise.deleted(r)
			m.crrsChanged()
		}
	}
	return true
}

func (m *model) finish(r *modelCRR, message string) {
	if r.deleted || !r.attempt.Finished.IsZero() {
		return
	}
	r.attempt.Finished, r.attempt.Message = m.seconds().Time, message
	m.say("kruise", "finishes CRR %d: %s", r.attempt.Number, message)
	m.crrsChanged()
}

// mark does what package terminator/podphase does.
func (m *model) mark(read *corev1.Pod, mark plan.Mark) result {
	if m.during(m.scenario.deniesMarks) {
		return denied
	}
	if (mark.Record != "" || mark.End == v1alpha1.EndFailed) && m.isStale(read) {
		return conflict
	}
	if mark.End == v1alpha1.EndCRR {
		for _, p := range m.kubelet.processes {
			wasKilled := slices.ContainsFunc(m.crrs, func(r *modelCRR) bool { return slices.Contains(r.killed, p.name) })
			if p.state == "running" && !wasKilled {
				m.fail("a mark says that %s has stopped, which runs", p.name)
			}
		}
	}
	m.writeStatus(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}
		for key, value := range mark.Annotations(read) {
			if m.bug.withoutUID {
				value = strings.TrimSuffix(value, "/"+string(read.UID))
			}
			annotate(pod, key, value)
		}
		if mark.End != "" && !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == v1alpha1.PodConditionSidecarTerminated }) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: v1alpha1.PodConditionSidecarTerminated, Status: corev1.ConditionFalse})
		}
		if mark.Record == v1alpha1.MainsDecided {
			pod.Status.Phase = corev1.PodSucceeded
		}
		if mark.End == v1alpha1.EndFailed {
			pod.Status.Phase = corev1.PodFailed
		}
	})
	return written
}

// isStale says whether a patch with these preconditions is a conflict.
func (m *model) isStale(read *corev1.Pod) bool {
	return read.ResourceVersion != m.pod.ResourceVersion && !m.bug.unconditional
}

// swapsOf are the attempts that the pod's annotation records.
func swapsOf(pod *corev1.Pod) []plan.Attempt {
	var swaps []plan.Attempt
	if value := pod.Annotations[v1alpha1.AnnotationImageSwap]; value != "" {
		if err := json.Unmarshal([]byte(value), &swaps); err != nil {
			panic(err)
		}
	}
	return swaps
}

// patchImages swaps images and writes the annotation, unless the pod has changed since it was read.
func (m *model) patchImages(read *corev1.Pod, action plan.Write) result {
	if m.isStale(read) {
		return conflict
	}
	swap := plan.Attempt{Mode: image, Number: action.Attempt, Started: m.seconds().Time, RestartCounts: map[string]int32{}}
	for _, name := range action.Containers {
		if specOf(m.pod, name).Image == action.Images[name] || m.scenario.smooth && m.scenario.quickUnpullable {
			m.fail("the image of %s is swapped twice, or for one that cannot be pulled", name)
		}
		swap.RestartCounts[name] = -1
		if st := status(m.pod, name); st.ContainerID != "" {
			swap.RestartCounts[name] = st.RestartCount
		}
	}
	encoded, err := json.Marshal(append(swapsOf(read), swap))
	if err != nil {
		m.fail("%v", err)
	}
	m.write(func(pod *corev1.Pod) {
		annotate(pod, v1alpha1.AnnotationImageSwap, string(encoded))
		for i := range pod.Spec.Containers {
			if to, ok := action.Images[pod.Spec.Containers[i].Name]; ok {
				pod.Spec.Containers[i].Image = to
			}
		}
	})
	return written
}

// operator calls plan.Next in a loop. It remembers what package controllers remembers.
type operator struct {
	m        *model
	seen     *corev1.Pod // the pod in its cache
	seenCRRs []plan.Attempt
	// seenVersion is the newest version that has arrived, and seenCRRsVersion the crrsVersion of seenCRRs. The operator waits until its cache
	// has markVersion, the version of the pod's last mark, and crrVersion, that of its last CRR.
	seenVersion, seenCRRsVersion, markVersion, crrVersion int
	mainsRan                                              bool
	drainsSince, phaseSince, markedAt, wakeAt             time.Time
	marks                                                 []time.Time
	// denied are the modes whose writes were denied in this reconcile.
	denied map[v1alpha1.Mode]string

	down   bool
	writes int
	last   plan.Decision
}

func (o *operator) lag() time.Duration {
	if o.m.scenario.stale {
		return o.m.between(5*time.Millisecond, 3*time.Second)
	}
	return o.m.between(5*time.Millisecond, 200*time.Millisecond)
}

// podChanged delivers a version of the pod. A cache never goes back.
func (o *operator) podChanged(pod *corev1.Pod) {
	o.m.after(o.lag(), func() {
		if versionOf(pod) > o.seenVersion {
			o.see(pod)
		}
	})
}

// see puts the pod into the cache. A finished pod is in no cache, and is looked after only by a process that has seen it before.
func (o *operator) see(pod *corev1.Pod) {
	if o.down {
		return
	}
	o.seenVersion = versionOf(pod)
	if !isTerminal(pod) || o.seen != nil {
		o.seen = pod
		o.reconcile()
	}
}

func versionOf(pod *corev1.Pod) int {
	var version int
	_, _ = fmt.Sscan(pod.ResourceVersion, &version)
	return version
}

// crrsChanged delivers the CRRs as they are now. A cache never goes back.
func (o *operator) crrsChanged() {
	var attempts []plan.Attempt
	for _, r := range o.m.crrs {
		if !r.deleted && r.attempt.Number <= plan.MaxNumber {
			attempts = append(attempts, r.attempt)
		}
	}
	version := o.m.crrsVersion
	o.m.after(o.lag(), func() {
		if version > o.seenCRRsVersion {
			o.seenCRRsVersion, o.seenCRRs = version, attempts
			o.reconcile()
		}
	})
}

// markAfter allows three marks at once, one more where somebody has forged marks, and then one a minute.
func (o *operator) markAfter() time.Time {
	if len(o.marks) < 3 || len(o.marks) == 3 && o.m.scenario.forged {
		return time.Time{}
	}
	return o.marks[len(o.marks)-1].Add(minute)
}

func (o *operator) snapshot() plan.Snapshot {
	scenario := o.m.scenario
	s := plan.Snapshot{
		Pod: o.seen, Node: plan.NodeReal, Kubelet: plan.Kubelet{Version: "v1.36.0"},
		Capabilities: plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: scenario.kruise},
		Attempts:     slices.Concat(o.seenCRRs, swapsOf(o.seen)), Denied: o.denied, MarkAfter: o.markAfter(), MarkedAt: o.markedAt, MarkVersion: fmt.Sprint(o.markVersion),
	}
	s.View, s.JobUnreadable = o.m.view(), o.m.during(scenario.unreadable)
	if s.JobUnreadable {
		s.View = o.m.viewOf(slices.DeleteFunc(slices.Clone(s.View.Sidecars), func(t resolve.Sidecar) bool { return t.DeclaredBy != "" }))
	}
	switch {
	case scenario.virtual:
		s.Node = plan.NodeVirtual
	case scenario.daemonless:
		s.Node = plan.NodeDaemonless
	}
	if scenario.lastResort {
		s.Capabilities.PodPhase = plan.PodPhaseLastResort
	}
	switch mainsDone := plan.MainsDone(s); {
	case mainsDone.IsZero():
		o.drainsSince, o.mainsRan = mainsDone, true
	case !o.drainsSince.IsZero():
	case o.mainsRan, mainsDone.After(o.m.now):
		o.drainsSince = o.m.now
	default:
		o.drainsSince = mainsDone
	}
	if isTerminal(o.seen) && o.phaseSince.IsZero() {
		o.phaseSince = o.m.now
	}
	s.DrainsSince, s.PhaseSince = o.drainsSince, o.phaseSince
	return s
}

// reconcile decides and acts. After a denied write it decides again, without that mode.
func (o *operator) reconcile() {
	o.denied = nil
	for range 4 {
		if o.seen == nil || o.down || o.seenVersion < o.markVersion || o.seenCRRsVersion < o.crrVersion {
			return
		}
		s := o.snapshot()
		decision := o.decide(s)
		if o.m.bug.none() {
			if problem := checkInvariants(s, o.m.now, decision); problem != "" {
				o.m.fail("%s: %+v", problem, briefly(decision))
			}
		}
		if !o.act(s, decision) {
			return
		}
	}
}

// decide makes the operator's decision. A bug may change what it sees, and what it decides.
func (o *operator) decide(s plan.Snapshot) plan.Decision {
	if sees := o.m.bug.sees; sees != nil {
		s.Pod = s.Pod.DeepCopy()
		sees(&s)
	}
	decision := plan.Next(s, o.m.now)
	if decides := o.m.bug.decides; decides != nil {
		decides(s, &decision)
	}
	return decision
}

// wake keeps the earliest requeue time, as a work queue does.
func (o *operator) wake(delay time.Duration) {
	at := o.m.now.Add(delay)
	if o.wakeAt.After(o.m.now) && !o.wakeAt.After(at) {
		return
	}
	o.wakeAt = at
	o.m.after(delay, func() {
		if o.wakeAt.Equal(at) {
			o.reconcile()
		}
	})
}

// act executes the decision and reports whether a write was denied. The operator may crash after each write.
func (o *operator) act(s plan.Snapshot, d plan.Decision) bool {
	if b := briefly(d); d.Stage != o.last.Stage || d.Reason != o.last.Reason || len(d.Writes) > 0 {
		said := append([]string{fmt.Sprintf("%s: %s", b.Stage, b.Reason), b.Mark}, b.Writes...)
		o.m.say("operator", "%s", strings.Join(slices.DeleteFunc(said, func(part string) bool { return part == "" }), "; "))
	}
	o.last = d
	if len(d.Failures) > 0 && o.m.scenario.smooth {
		o.m.fail("an attempt failed: %+v", d.Failures)
	}
	if d.RequeueAfter > 0 {
		o.wake(d.RequeueAfter)
	}
	for i, write := range d.Writes {
		if len(write.Containers) > 0 && isDisturbed(s.Pod) && !isTerminal(s.Pod) {
			o.m.fail("a write ends sidecars of a disturbed pod")
		}
		version, crrs := o.m.version, len(o.m.crrs)
		answer := o.execute(s.Pod, write)
		if o.m.version > version || len(o.m.crrs) > crrs {
			o.writes++
		}
		switch scenario := o.m.scenario; {
		case answer == denied:
			o.m.say("operator", "is denied mode %s", write.Mode)
			if i == 0 {
				denying(append(slices.Collect(maps.Keys(o.denied)), write.Mode)...)(&s)
				o.denied = s.Denied
				return true
			}
		case answer == conflict:
			o.m.say("operator", "gets a conflict: the object has changed")
			o.wake(time.Second)
		case scenario.downAfter > 0 && o.writes >= scenario.downAfter:
			o.m.say("operator", "is down")
			*o = operator{m: o.m, writes: o.writes, down: true}
			return false
		case scenario.crashes && o.m.random.IntN(2) == 0:
			o.restart()
			return false
		case write.Mode == crr:
			o.crrVersion = o.m.crrsVersion
		case write.Mark != nil:
			o.marks, o.markedAt, o.markVersion = append(o.marks, o.m.now), o.m.now, o.m.version
		}
		if answer != written {
			break
		}
	}
	return false
}

// execute makes the write.
func (o *operator) execute(read *corev1.Pod, write plan.Write) result {
	switch write.Mode {
	case crr:
		return o.m.create(write)
	case image:
		return o.m.patchImages(read, write)
	default:
		return o.m.mark(read, *write.Mark)
	}
}

// restart makes the operator forget everything and read the cluster again.
func (o *operator) restart() {
	o.m.say("operator", "crashes")
	*o = operator{m: o.m, writes: o.writes, down: true}
	o.m.after(o.m.between(time.Second, 5*time.Second), o.start)
}

func (o *operator) start() {
	o.m.say("operator", "starts")
	o.down = false
	o.see(o.m.pod)
	o.m.crrsVersion++
	o.crrsChanged()
}
