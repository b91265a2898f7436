// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// world is a cluster with one pod: an API server, and actors that see its objects late and act on their own. Time is
// virtual, and every delay comes from one seed.
type world struct {
	scenario simulation
	random   *rand.Rand
	now      time.Time
	queue    events

	pod      *corev1.Pod // replaced at each write, never changed
	version  int
	phase    *plan.Attempt  // the annotation beside a written phase
	swaps    []plan.Attempt // the annotation beside swapped images
	requests []*recreateRequest
	// requestsVersion grows with each change of a request.
	requestsVersion int

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

// after has something happen later. Events of one time happen in a shuffled order.
func (w *world) after(delay time.Duration, run func()) {
	heap.Push(&w.queue, event{at: w.now.Add(delay), order: w.random.Uint64(), run: run})
}

// between returns a delay from the seed.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.random.Int64N(int64(high-low)+1))
}

// run lets the time pass until nothing more happens or the horizon is reached.
func (w *world) run(horizon time.Duration) {
	end := w.now.Add(horizon)
	for len(w.queue) > 0 && !w.queue[0].at.After(end) {
		next := heap.Pop(&w.queue).(event)
		w.now = next.at
		next.run()
	}
	w.now = end
}

func (w *world) say(who, format string, args ...any) {
	w.transcript = append(w.transcript, fmt.Sprintf("%8.1fs  %-8s  %s", w.now.Sub(done).Seconds(), who, fmt.Sprintf(format, args...)))
}

func (w *world) fail(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf("%.1fs: ", w.now.Sub(done).Seconds())+fmt.Sprintf(format, args...))
}

// seconds is a time as the API writes it.
func (w *world) seconds() metav1.Time { return metav1.NewTime(w.now.Truncate(time.Second)) }

// write changes the pod. An update of spec or metadata reaches the kubelet at once; a change of status does not.
func (w *world) write(change func(*corev1.Pod), isUpdate bool) {
	pod := w.pod.DeepCopy()
	change(pod)
	w.version++
	pod.ResourceVersion = fmt.Sprint(w.version)
	if before := w.pod.Status.Phase; before != pod.Status.Phase {
		w.say("pod", "reads %s", pod.Status.Phase)
	}
	w.pod = pod
	w.operator.podChanged(w.view())
	if isUpdate {
		w.kubelet.updated(pod)
	}
}

// refusesPhase says whether the admission policy refuses the kubelet's phase.
func (w *world) refusesPhase(phase corev1.PodPhase) bool {
	return w.scenario.guarded && isTerminal(w.pod) && phase != w.pod.Status.Phase && w.pod.Annotations[v1alpha1.AnnotationPhaseGuard] != ""
}

// view is the pod with its annotations, as a watch event carries it.
func (w *world) view() podView {
	v := podView{pod: w.pod, swaps: slices.Clone(w.swaps)}
	if w.phase != nil {
		v.phase = []plan.Attempt{*w.phase}
	}
	return v
}

type podView struct {
	pod          *corev1.Pod
	phase, swaps []plan.Attempt
}

// recreateRequest is a ContainerRecreateRequest.
type recreateRequest struct {
	attempt  plan.Attempt
	deadline time.Duration
	killed   []string
	deleted  bool
}

// create is the API server with Kruise's webhook. It returns false when the request is refused. A request that was
// replaced since it was observed is not deleted, and nothing is created then.
func (w *world) create(action plan.Action) bool {
	for _, spent := range action.Supersedes {
		if !w.delete(spent) {
			w.operator.wake(time.Second)
			return true
		}
	}
	if w.scenario.refuses {
		w.say("kruise", "refuses a request")
		return false
	}
	if slices.ContainsFunc(w.requests, func(r *recreateRequest) bool { return !r.deleted && r.attempt.Number == action.Attempt }) {
		return true
	}
	if w.scenario.daemonless || w.scenario.virtual {
		w.fail("a request on a node without Kruise's daemon")
	}
	counts := map[string]int32{}
	for _, name := range action.Containers {
		st := status(w.pod, name)
		if st.ContainerID == "" || isTerminal(w.pod) && w.phase == nil {
			w.say("kruise", "refuses a request for %s", name)
			return false
		}
		counts[name] = st.RestartCount
	}
	request := &recreateRequest{deadline: action.Deadline, attempt: plan.Attempt{
		Mode: crr, For: crr, Number: action.Attempt, UID: types.UID(fmt.Sprint(len(w.requests))), RestartCounts: counts, Started: w.seconds().Time,
	}}
	for _, other := range w.requests {
		if !other.deleted && other.attempt.Finished.IsZero() && maps.Equal(other.attempt.RestartCounts, counts) {
			w.fail("a request is made twice: %v", action.Containers)
		}
	}
	w.requests = append(w.requests, request)
	w.operator.requestsChanged()
	w.kruise.created(request)
	return true
}

// delete removes a request. It returns false when there is another one of that name.
func (w *world) delete(spent plan.Attempt) bool {
	for _, r := range w.requests {
		switch {
		case r.deleted || r.attempt.Number != spent.Number:
		case r.attempt.UID != spent.UID:
			w.say("operator", "meets another request with the number %d", spent.Number)
			return false
		default:
			r.deleted = true
			w.kruise.deleted(r)
			w.operator.requestsChanged()
		}
	}
	return true
}

func (w *world) finish(request *recreateRequest, message string) {
	if request.deleted || !request.attempt.Finished.IsZero() {
		return
	}
	request.attempt.Finished, request.attempt.Message = w.seconds().Time, message
	w.say("kruise", "finishes request %d: %s", request.attempt.Number, message)
	w.operator.requestsChanged()
}

// patchPhase writes phase and annotation, unless the pod has changed since it was read.
func (w *world) patchPhase(read *corev1.Pod, action plan.Action) bool {
	if read.ResourceVersion != w.pod.ResourceVersion {
		return false
	}
	if action.ReleasePhase {
		w.write(func(pod *corev1.Pod) { pod.Annotations = nil }, true)
		return true
	}
	if isTerminal(w.pod) || action.Phase != corev1.PodSucceeded && action.Phase != corev1.PodFailed {
		w.fail("phase %s is written over %s", action.Phase, w.pod.Status.Phase)
	}
	w.phase = &plan.Attempt{Mode: podPhase, For: action.For, Number: action.Attempt, Started: w.seconds().Time}
	w.write(func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Annotations = action.Phase, map[string]string{v1alpha1.AnnotationPhaseGuard: "Enabled"}
	}, true)
	return true
}

// patchImages swaps images and writes the annotation, unless the pod has changed since it was read.
func (w *world) patchImages(read *corev1.Pod, action plan.Action) bool {
	if read.ResourceVersion != w.pod.ResourceVersion {
		return false
	}
	for _, name := range action.Containers {
		if i := slices.IndexFunc(w.pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }); w.pod.Spec.Containers[i].Image == action.Images[name] {
			w.fail("the image of %s is swapped once more", name)
		}
	}
	swap := plan.Attempt{Mode: image, For: image, Number: action.Attempt, Started: w.seconds().Time, RestartCounts: map[string]int32{}}
	for _, name := range action.Containers {
		swap.RestartCounts[name] = -1
		if st := status(w.pod, name); st.ContainerID != "" {
			swap.RestartCounts[name] = st.RestartCount
		}
	}
	w.swaps = append(w.swaps, swap)
	w.write(func(pod *corev1.Pod) {
		for i := range pod.Spec.Containers {
			if to, ok := action.Images[pod.Spec.Containers[i].Name]; ok {
				pod.Spec.Containers[i].Image = to
			}
		}
	}, true)
	return true
}

// operator is the loop around plan.Next. It remembers only since when the pod and its containers have been as they are.
type operator struct {
	w            *world
	seen         podView // as its cache has it
	seenRequests []plan.Attempt
	// seenRequestsVersion is that of the requests as they were seen.
	seenRequestsVersion int
	quietVersion        string
	quietSince          time.Time
	// containers are as they were seen last, since then.
	containers      []corev1.ContainerStatus
	containersSince time.Time
	wakeAt          time.Time

	down   bool
	writes int
	last   plan.Decision
}

func (o *operator) lag() time.Duration {
	if o.w.scenario.stale {
		return o.w.between(5*time.Millisecond, 3*time.Second)
	}
	return o.w.between(5*time.Millisecond, 200*time.Millisecond)
}

// podChanged delivers a version of the pod. A cache never goes back.
func (o *operator) podChanged(view podView) {
	version := o.w.version
	o.w.after(o.lag(), func() {
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

// requestsChanged delivers the requests as they are now. A cache never goes back.
func (o *operator) requestsChanged() {
	var attempts []plan.Attempt
	for _, r := range o.w.requests {
		if !r.deleted {
			attempts = append(attempts, r.attempt)
		}
	}
	o.w.requestsVersion++
	version := o.w.requestsVersion
	o.w.after(o.lag(), func() {
		if version > o.seenRequestsVersion {
			o.seenRequestsVersion, o.seenRequests = version, attempts
			o.reconcile()
		}
	})
}

func (o *operator) snapshot() plan.Snapshot {
	if o.quietVersion != o.seen.pod.ResourceVersion {
		o.quietVersion, o.quietSince = o.seen.pod.ResourceVersion, o.w.now
	}
	if now := o.seen.pod.Status.ContainerStatuses; o.containersSince.IsZero() || !equal(o.containers, now) {
		o.containers, o.containersSince = now, o.w.now
	}
	return observed(o.seen.pod, o.w.scenario.targets(), func(s *plan.Snapshot) {
		switch {
		case o.w.scenario.virtual:
			s.Node = plan.NodeVirtual
		case o.w.scenario.daemonless:
			s.Node = plan.NodeDaemonless
		}
		s.Capabilities = plan.Capabilities{CRR: o.w.scenario.kruise, PodPhase: plan.PodPhaseEnabled, MaxGracePeriod: o.w.scenario.maxGrace}
		if o.w.scenario.lastResort {
			s.Capabilities.PodPhase = plan.PodPhaseLastResort
		}
		s.Attempts = slices.Concat(o.seenRequests, o.seen.swaps, o.seen.phase)
		s.QuietSince, s.ContainersSince = o.quietSince, o.containersSince
	})
}

func (o *operator) reconcile() {
	if o.seen.pod == nil || o.down {
		return
	}
	s := o.snapshot()
	decision := plan.Next(s, o.w.now)
	if problem := checkInvariants(s, o.w.now, decision); problem != "" {
		o.w.fail("%s: %+v", problem, briefly(decision))
	}
	if refused := o.act(s, decision); refused {
		s.Capabilities.CRR = false
		decision = plan.Next(s, o.w.now)
		o.act(s, decision)
	}
	if decision.RequeueAfter > 0 {
		o.wake(decision.RequeueAfter)
	}
}

// wake keeps the earliest time to look again, as a work queue does.
func (o *operator) wake(delay time.Duration) {
	at := o.w.now.Add(delay)
	if o.wakeAt.After(o.w.now) && !o.wakeAt.After(at) {
		return
	}
	o.wakeAt = at
	o.w.after(delay, func() {
		if o.wakeAt.Equal(at) {
			o.reconcile()
		}
	})
}

// act carries the decision out. It reports whether Kruise refused a request. The operator may crash after each action.
func (o *operator) act(s plan.Snapshot, d plan.Decision) bool {
	if d.Stage != o.last.Stage || d.Reason != o.last.Reason || len(d.Actions) > 0 {
		o.w.say("operator", "%s: %s%s", d.Stage, d.Reason, lines(d.Actions))
	}
	o.last = d
	if len(d.Failures) > 0 && o.w.scenario.smooth {
		o.w.fail("an attempt failed: %+v", d.Failures)
	}
	for _, action := range d.Actions {
		switch action.Mode {
		case crr:
			before := len(o.w.requests)
			if !o.w.create(action) {
				o.wake(15 * time.Second)
				return true
			}
			o.writes += len(o.w.requests) - before
		default:
			patch := o.w.patchPhase
			if action.Mode == image {
				patch = o.w.patchImages
			}
			if !patch(s.Pod, action) {
				o.w.say("operator", "meets a newer version of the pod")
				o.wake(time.Second)
				return false
			}
			o.writes++
		}
		if o.w.scenario.crashes && o.w.random.IntN(2) == 0 {
			o.restart()
			return false
		}
	}
	return false
}

// restart has the operator forget everything and read the world anew.
func (o *operator) restart() {
	o.w.say("operator", "crashes")
	*o = operator{w: o.w, writes: o.writes, down: true}
	o.w.after(o.w.between(time.Second, 5*time.Second), func() {
		o.w.say("operator", "starts")
		o.down, o.seen = false, o.w.view()
		o.requestsChanged()
	})
}

func lines(actions []plan.Action) string {
	var text strings.Builder
	for _, action := range actions {
		text.WriteString("; " + describe(action))
	}
	return text.String()
}
