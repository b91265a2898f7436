// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// model is a cluster with one pod: an API server, and actors that see its objects late and act on their own. Time is
// virtual, and every delay comes from one seed.
type model struct {
	scenario simulation
	random   *rand.Rand
	now      time.Time
	queue    events
	// bug is a bug of the operator. The zero value is none.
	bug bug

	pod     *corev1.Pod // replaced at each write, never changed
	version int
	phase   *plan.Attempt  // the annotation that records a written phase
	swaps   []plan.Attempt // the annotation that records swapped images
	crrs    []*modelCRR
	// crrsVersion grows with each change of a CRR.
	crrsVersion int

	kubelet  *kubelet
	kruise   *kruise
	operator *operator

	transcript []string
	problems   []string
}

// event is something that happens at a time; the order breaks ties.
type event struct {
	at    time.Time
	order uint64
	run   func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// after schedules an event. Events at the same time run in a random order.
func (m *model) after(delay time.Duration, run func()) {
	heap.Push(&m.queue, event{at: m.now.Add(delay), order: m.random.Uint64(), run: run})
}

// between returns a delay from the seed.
func (m *model) between(low, high time.Duration) time.Duration {
	return low + time.Duration(m.random.Int64N(int64(high-low)+1))
}

// run processes events until none is left or the horizon is reached.
func (m *model) run(horizon time.Duration) {
	end := m.now.Add(horizon)
	for len(m.queue) > 0 && !m.queue[0].at.After(end) {
		next := heap.Pop(&m.queue).(event)
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
		t.Fatalf("seed %d:\n%s\n\n%s", seed, strings.Join(m.problems, "\n"), strings.Join(m.transcript, "\n"))
	}
}

// crrsChanged delivers the CRRs to the operator.
func (m *model) crrsChanged() {
	m.crrsVersion++
	m.operator.crrsChanged()
}

// write changes the pod. The kubelet receives the operator's writes, which are updates of spec or metadata, but not its own.
func (m *model) write(byOperator bool, change func(*corev1.Pod)) {
	pod := m.pod.DeepCopy()
	change(pod)
	m.checkWrite(m.pod, pod)
	m.version++
	pod.ResourceVersion = fmt.Sprint(m.version)
	if before := m.pod.Status.Phase; before != pod.Status.Phase {
		m.say("pod", "reads %s", pod.Status.Phase)
	}
	m.pod = pod
	m.operator.podChanged(m.view())
	if byOperator {
		m.kubelet.updated(pod)
	}
}

// checkWrite fails on what no kubelet does: it keeps a terminal phase that it knows, and restarts a container only by the pod's
// restartPolicy or for a swapped image.
func (m *model) checkWrite(before, after *corev1.Pod) {
	knowsEnd := slices.ContainsFunc(before.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason != "" })
	if isTerminal(before) && (knowsEnd || m.phase == nil) && after.Status.Phase != before.Status.Phase {
		m.fail("phase %s becomes %s", before.Status.Phase, after.Status.Phase)
	}
	for i := range after.Spec.Containers {
		c := &after.Spec.Containers[i]
		was, is := status(before, c.Name), status(after, c.Name)
		end := was.State.Terminated
		if is.RestartCount < was.RestartCount || end != nil && is.RestartCount > was.RestartCount && c.Image == is.Image && was.Image == is.Image &&
			!restartsAfter(after.Spec.RestartPolicy, c, end.ExitCode) {
			m.fail("%s restarts: %d restarts become %d", c.Name, was.RestartCount, is.RestartCount)
		}
	}
}

// deniesPhase says whether the admission policy denies the kubelet's phase.
func (m *model) deniesPhase(phase corev1.PodPhase) bool {
	return m.scenario.guarded && isTerminal(m.pod) && phase != m.pod.Status.Phase && m.pod.Annotations[v1alpha1.AnnotationPhaseGuard] != ""
}

// view is the pod with its annotations, as a watch event carries it.
func (m *model) view() podView {
	v := podView{pod: m.pod, swaps: slices.Clone(m.swaps)}
	if m.phase != nil {
		v.phase = []plan.Attempt{*m.phase}
	}
	return v
}

type podView struct {
	pod          *corev1.Pod
	phase, swaps []plan.Attempt
}

// modelCRR is a ContainerRecreateRequest.
type modelCRR struct {
	attempt  plan.Attempt
	deadline time.Duration
	killed   []string
	deleted  bool
}

// create plays the API server with OpenKruise's webhook. It returns false if the CRR is denied. If a superseded CRR was replaced
// since the operator observed it, create deletes and creates nothing.
func (m *model) create(o *operator, action plan.Action) bool {
	for _, spent := range action.Supersedes {
		if !m.delete(spent) {
			o.wake(time.Second)
			return true
		}
	}
	if m.scenario.denies {
		m.say("kruise", "denies a CRR")
		return false
	}
	if slices.ContainsFunc(m.crrs, func(r *modelCRR) bool { return !r.deleted && r.attempt.Number == action.Attempt }) {
		return true
	}
	if m.scenario.daemonless || m.scenario.virtual {
		m.fail("a CRR on a node without Kruise's daemon")
	}
	counts := map[string]int32{}
	for _, name := range action.Containers {
		st := status(m.pod, name)
		if st.ContainerID == "" || isTerminal(m.pod) && m.phase == nil {
			m.say("kruise", "denies a CRR for %s", name)
			return false
		}
		counts[name] = st.RestartCount
	}
	r := &modelCRR{deadline: action.Timeout, attempt: plan.Attempt{
		Mode: crr, For: crr, Number: action.Attempt, UID: types.UID(fmt.Sprint(len(m.crrs))), RestartCounts: counts, Started: m.seconds().Time,
	}}
	for _, other := range m.crrs {
		if !other.deleted && other.attempt.Finished.IsZero() && maps.Equal(other.attempt.RestartCounts, counts) {
			m.fail("a CRR is created twice: %v", action.Containers)
		}
	}
	m.crrs = append(m.crrs, r)
	m.crrsChanged()
	m.kruise.created(r)
	return true
}

// delete removes a CRR. It returns false if another CRR has that name.
func (m *model) delete(spent plan.Attempt) bool {
	for _, r := range m.crrs {
		switch {
		case r.deleted || r.attempt.Number != spent.Number:
		case r.attempt.UID != spent.UID:
			m.say("operator", "finds another CRR with number %d", spent.Number)
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

// patchPhase writes phase and annotation, unless the pod has changed since it was read.
func (m *model) patchPhase(o *operator, read *corev1.Pod, action plan.Action) bool {
	if m.isStale(read) {
		return false
	}
	if action.ReleasePhase {
		m.write(true, func(pod *corev1.Pod) { delete(pod.Annotations, v1alpha1.AnnotationPhaseGuard) })
		return true
	}
	if isTerminal(m.pod) || action.Phase != corev1.PodSucceeded && action.Phase != corev1.PodFailed {
		m.fail("phase %s is written over %s", action.Phase, m.pod.Status.Phase)
	}
	m.phase = &plan.Attempt{Mode: podPhase, For: action.For, Number: action.Attempt, Started: m.seconds().Time}
	m.write(true, func(pod *corev1.Pod) {
		pod.Status.Phase = action.Phase
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationPodPhase, fmt.Sprintf(`{"phase":%q}`, action.Phase))
		if !m.bug.unguarded {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationPhaseGuard, "Enabled")
		}
	})
	return true
}

// isStale says whether a patch with these preconditions is a conflict.
func (m *model) isStale(read *corev1.Pod) bool {
	return read.ResourceVersion != m.pod.ResourceVersion && !m.bug.unconditional
}

// recordSwaps writes the annotation that records swapped images.
func (m *model) recordSwaps(pod *corev1.Pod) {
	record := map[string]struct{}{}
	for _, swap := range m.swaps {
		for name := range swap.RestartCounts {
			record[name] = struct{}{}
		}
	}
	encoded, err := json.Marshal(record)
	if err != nil {
		m.fail("%v", err)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationImageSwap, string(encoded))
}

// patchImages swaps images and writes the annotation, unless the pod has changed since it was read.
func (m *model) patchImages(o *operator, read *corev1.Pod, action plan.Action) bool {
	if m.isStale(read) {
		return false
	}
	for _, name := range action.Containers {
		if i := slices.IndexFunc(m.pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }); m.pod.Spec.Containers[i].Image == action.Images[name] {
			m.fail("the image of %s is swapped twice", name)
		}
	}
	swap := plan.Attempt{Mode: image, For: image, Number: action.Attempt, Started: m.seconds().Time, RestartCounts: map[string]int32{}}
	for _, name := range action.Containers {
		swap.RestartCounts[name] = -1
		if st := status(m.pod, name); st.ContainerID != "" {
			swap.RestartCounts[name] = st.RestartCount
		}
	}
	m.swaps = append(m.swaps, swap)
	m.write(true, func(pod *corev1.Pod) {
		m.recordSwaps(pod)
		for i := range pod.Spec.Containers {
			if to, ok := action.Images[pod.Spec.Containers[i].Name]; ok {
				pod.Spec.Containers[i].Image = to
			}
		}
	})
	return true
}

// operator calls plan.Next in a loop. It remembers only when the pod and its containers last changed.
type operator struct {
	m        *model
	seen     podView // the pod in its cache
	seenCRRs []plan.Attempt
	// seenCRRsVersion is the crrsVersion of seenCRRs.
	seenCRRsVersion int
	quietVersion    string
	quietSince      time.Time
	// containers is the last observed state, unchanged since containersSince.
	containers      []corev1.ContainerStatus
	containersSince time.Time
	wakeAt          time.Time

	down   bool
	writes int
	last   plan.Decision
	// trial is its last written phase, and evidence what that has shown about the kubelet.
	trial    *plan.PhaseTrial
	evidence []plan.PhaseEvidence
}

func (o *operator) lag() time.Duration {
	if o.m.scenario.stale {
		return o.m.between(5*time.Millisecond, 3*time.Second)
	}
	return o.m.between(5*time.Millisecond, 200*time.Millisecond)
}

// podChanged delivers a version of the pod. A cache never goes back.
func (o *operator) podChanged(view podView) {
	version := o.m.version
	o.m.after(o.lag(), func() {
		if o.seen.pod == nil || version > versionOf(o.seen.pod) {
			o.seen = view
			o.reconcile()
		}
	})
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
		if !r.deleted {
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

func (o *operator) snapshot() plan.Snapshot {
	if o.quietVersion != o.seen.pod.ResourceVersion {
		o.quietVersion, o.quietSince = o.seen.pod.ResourceVersion, o.m.now
	}
	if now := o.seen.pod.Status.ContainerStatuses; o.containersSince.IsZero() || !equal(o.containers, now) {
		o.containers, o.containersSince = now, o.m.now
	}
	return observed(o.seen.pod, o.m.scenario.declared(), func(s *plan.Snapshot) {
		switch {
		case o.m.scenario.virtual:
			s.Node = plan.NodeVirtual
		case o.m.scenario.daemonless:
			s.Node = plan.NodeDaemonless
		}
		s.Capabilities = plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: o.m.scenario.kruise, MaxGracePeriod: o.m.scenario.maxGrace}
		if o.m.scenario.lastResort {
			s.Capabilities.PodPhase = plan.PodPhaseLastResort
		}
		s.Attempts = slices.Concat(o.seenCRRs, o.seen.swaps, o.seen.phase)
		s.UnchangedSince, s.ContainersUnchangedSince = o.quietSince, o.containersSince
		s.Kubelet = plan.Kubelet{Version: "v1.40.0", ReadySince: done.Add(-time.Hour), IgnoresPhase: o.m.scenario.known}
	})
}

func (o *operator) reconcile() {
	if o.seen.pod == nil || o.down {
		return
	}
	s := o.snapshot()
	decision := o.decide(s)
	if problem := checkInvariants(s, o.m.now, decision); problem != "" {
		o.m.fail("%s: %+v", problem, briefly(decision))
	}
	o.learn(s)
	if denied := o.act(s, decision); denied {
		s.Capabilities.CRRServed = false
		decision = o.decide(s)
		o.act(s, decision)
	}
	if decision.RequeueAfter > 0 {
		o.wake(decision.RequeueAfter)
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

// learn judges the last written phase by the observed pod.
func (o *operator) learn(s plan.Snapshot) {
	if o.trial == nil {
		return
	}
	evidence, over := o.trial.See(s, o.m.now)
	if evidence != "" {
		o.m.say("operator", "learns about the kubelet: phase %s", strings.ToLower(string(evidence)))
		o.evidence = append(o.evidence, evidence)
	}
	if over {
		o.trial = nil
	}
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

// act executes the decision and reports whether OpenKruise denied a CRR. The operator may crash after each action.
func (o *operator) act(s plan.Snapshot, d plan.Decision) bool {
	if d.Stage != o.last.Stage || d.Reason != o.last.Reason || len(d.Actions) > 0 {
		o.m.say("operator", "%s: %s%s", d.Stage, d.Reason, lines(d.Actions))
	}
	o.last = d
	if len(d.Failures) > 0 && o.m.scenario.smooth {
		o.m.fail("an attempt failed: %+v", d.Failures)
	}
	for _, action := range d.Actions {
		switch action.Mode {
		case crr:
			before := len(o.m.crrs)
			if !o.m.create(o, action) {
				o.wake(15 * time.Second)
				return true
			}
			o.writes += len(o.m.crrs) - before
		default:
			patch := o.m.patchPhase
			if action.Mode == image {
				patch = o.m.patchImages
			}
			if !patch(o, s.Pod, action) {
				o.m.say("operator", "gets a conflict: the pod has changed")
				o.wake(time.Second)
				return false
			}
			o.writes++
			o.trial = plan.NewPhaseTrial(o.trial, action, s.Kubelet, o.m.now)
		}
		if o.m.scenario.crashes && o.m.random.IntN(2) == 0 {
			o.restart()
			return false
		}
	}
	return false
}

// restart makes the operator forget everything and read the cluster again.
func (o *operator) restart() {
	o.m.say("operator", "crashes")
	*o = operator{m: o.m, writes: o.writes, evidence: o.evidence, down: true}
	o.m.after(o.m.between(time.Second, 5*time.Second), func() {
		o.m.say("operator", "starts")
		o.down, o.seen = false, o.m.view()
		o.m.crrsVersion++
		o.crrsChanged()
	})
}

func lines(actions []plan.Action) string {
	var text strings.Builder
	for _, action := range actions {
		text.WriteString("; " + describe(action))
	}
	return text.String()
}
