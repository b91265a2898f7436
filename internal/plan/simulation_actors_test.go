// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/internal/plan"
)

// manner is what a container does.
type manner string

const (
	works      manner = "works"      // the main container: runs for a moment and ends
	polite     manner = "polite"     // exits 0 on SIGTERM
	rude       manner = "rude"       // exits 7 on SIGTERM
	deaf       manner = "deaf"       // ignores SIGTERM
	crashing   manner = "crashing"   // exits 1 a moment after each start
	unpullably manner = "unpullable" // has an image that cannot be pulled
)

// process is a container as the node has it.
type process struct {
	name   string
	manner manner
	image  string
	// missing means that the quick-exit image does not have the command.
	missing bool
	state   string // "", unpullable, running, stopping, dead, backoff
	code    int32

	begun, ended time.Time
	runs, stops  int
	restarts     int32
	onDeath      []func()
}

// kubelet runs the pod. A virtual one swaps images and knows no teardown; a future one (kubernetes#139830) trusts its
// own phase and puts it back.
type kubelet struct {
	w           *world
	processes   []*process
	images      map[string]string // of the spec that it has seen
	busy        bool              // stops containers for their new images, which blocks the pod's worker
	records     []plan.Attempt    // the annotation beside swapped images, as a virtual one knows it
	terminal    corev1.PodPhase   // the phase upon which it tears the pod down
	reportAfter time.Time         // status writes keep their order
}

func (k *kubelet) process(name string) *process {
	return k.processes[slices.IndexFunc(k.processes, func(p *process) bool { return p.name == name })]
}

// boot starts every container.
func (k *kubelet) boot() {
	for _, p := range k.processes {
		k.start(p)
	}
	k.report()
	k.w.after(10*time.Second, k.resync)
	if k.w.scenario.restless {
		k.w.after(time.Second, k.probe)
	}
}

// probe has the readiness of the pod change. The write that says so carries the phase that the kubelet knows.
func (k *kubelet) probe() {
	phase := k.phase()
	k.w.after(k.w.between(10*time.Millisecond, 300*time.Millisecond), func() {
		if !k.w.refusesPhase(phase) {
			k.w.write(func(pod *corev1.Pod) { pod.Status.Phase = phase }, false)
		}
	})
	if k.anyAlive() {
		k.w.after(k.w.between(800*time.Millisecond, 1200*time.Millisecond), k.probe)
	}
}

// resync is the status manager's: what the API server has is put right.
func (k *kubelet) resync() {
	if phase := k.phase(); phase != k.w.pod.Status.Phase {
		k.report()
	}
	if !isTerminal(k.w.pod) || k.anyAlive() {
		k.w.after(10*time.Second, k.resync)
	}
}

func (k *kubelet) anyAlive() bool {
	return slices.ContainsFunc(k.processes, func(p *process) bool { return p.state == "running" || p.state == "stopping" })
}

// updated delivers a version of the pod whose spec or metadata changed.
func (k *kubelet) updated(pod *corev1.Pod) {
	records := slices.Clone(k.w.swaps)
	delay := k.w.between(10*time.Millisecond, 500*time.Millisecond)
	if until := done.Add(k.w.scenario.interruptedFor); k.w.now.Before(until) {
		delay += until.Sub(k.w.now)
	}
	k.w.after(delay, func() {
		if !k.w.scenario.forgetful {
			k.records = records
		}
		for _, c := range pod.Spec.Containers {
			k.images[c.Name] = c.Image
		}
		if isTerminal(pod) && k.terminal == "" && !k.w.scenario.future && !k.w.scenario.virtual {
			k.terminal = pod.Status.Phase
			k.w.say("kubelet", "tears the pod down")
		}
		k.sync()
		k.report()
	})
}

// sync is the pod's worker.
func (k *kubelet) sync() {
	if k.terminal != "" {
		for _, p := range k.processes {
			if p.state == "running" {
				k.stop(p, nil)
			}
		}
		return
	}
	if k.busy {
		return
	}
	var swapped []*process
	for _, p := range k.processes {
		changed := p.image != k.images[p.name]
		switch {
		case p.state == "running" && changed:
			swapped = append(swapped, p)
		case p.state == "unpullable" && changed:
			p.image = k.images[p.name]
			k.start(p)
		case p.state == "dead" && k.restarts(p):
			k.backOff(p)
		}
	}
	k.swap(swapped, 0)
}

// swap stops the containers one after the other and then starts them with their new images.
func (k *kubelet) swap(swapped []*process, next int) {
	k.busy = next < len(swapped)
	if k.busy {
		k.stop(swapped[next], func() { k.swap(swapped, next+1) })
		return
	}
	for _, p := range swapped {
		if k.terminal == "" {
			p.image = k.images[p.name]
			k.start(p)
		}
	}
	if len(swapped) > 0 {
		k.report()
		k.sync()
	}
}

func (k *kubelet) restarts(p *process) bool {
	return k.w.scenario.policy == onFailure && p.code != 0
}

func (k *kubelet) backOff(p *process) {
	p.state = "backoff"
	wait := min(10*time.Second<<min(p.restarts, 5), 5*time.Minute)
	if p.image != k.images[p.name] {
		wait = 0
	}
	k.w.after(wait+100*time.Millisecond, func() {
		if p.state == "backoff" && k.terminal == "" {
			p.image = k.images[p.name]
			k.start(p)
			k.report()
		}
	})
}

func (k *kubelet) start(p *process) {
	isQuick := p.image == quickExit
	if p.manner == unpullably && !isQuick || isQuick && k.w.scenario.quickUnpullable {
		// Under Never a container that has run is not started again, and its last end stands.
		if p.runs == 0 || k.w.scenario.policy == onFailure {
			p.state = "unpullable"
		}
		return
	}
	if p.runs++; p.runs > 1 {
		p.restarts++
	}
	p.state, p.begun = "running", k.w.now
	run := p.runs
	var live time.Duration
	var code int32
	switch {
	case isQuick && p.missing:
		code = 128 // StartError
	case isQuick:
		live = k.w.between(50*time.Millisecond, 300*time.Millisecond)
	case p.manner == works:
		live, code = done.Sub(k.w.now), k.w.scenario.mainCode
	case p.manner == crashing:
		live, code = 3*time.Second, 1
	default:
		return
	}
	k.w.after(live, func() {
		if p.state == "running" && p.runs == run {
			k.died(p, code)
		}
	})
}

// stop sends SIGTERM, and SIGKILL after the grace period.
func (k *kubelet) stop(p *process, then func()) {
	if then != nil {
		p.onDeath = append(p.onDeath, then)
	}
	if p.manner == works {
		k.w.fail("the main container is stopped")
	}
	if p.state != "running" {
		return
	}
	if p.stops++; p.stops > 1 && k.w.scenario.virtual {
		k.w.fail("%s is stopped once more", p.name)
	}
	p.state = "stopping"
	delay, code := k.w.between(100*time.Millisecond, 2*time.Second), int32(0)
	switch {
	case p.image == quickExit:
	case p.manner == rude:
		code = 7
	case p.manner == crashing:
		code = 1
	case p.manner == deaf:
		delay, code = 30*time.Second, 137
	}
	k.w.after(delay, func() { k.died(p, code) })
}

func (k *kubelet) died(p *process, code int32) {
	k.w.say("node", "%s exits %d", p.name, code)
	p.state, p.code, p.ended = "dead", code, k.w.now
	callbacks := p.onDeath
	p.onDeath = nil
	k.report()
	for _, callback := range callbacks {
		callback()
	}
	k.w.after(k.w.between(10*time.Millisecond, 100*time.Millisecond), func() { k.sync(); k.report() })
}

// phase is what the kubelet takes the pod's phase for.
func (k *kubelet) phase() corev1.PodPhase {
	if k.terminal != "" {
		return k.terminal
	}
	failed := false
	for _, p := range k.processes {
		switch {
		case p.state == "unpullable" && p.runs == 0:
			return corev1.PodPending
		case p.state != "dead" || k.restarts(p):
			return corev1.PodRunning
		}
		failed = failed || p.code != 0
	}
	if k.busy {
		return corev1.PodRunning
	}
	// What it has found by itself it keeps to, whatever it learns later.
	k.terminal = corev1.PodSucceeded
	if failed {
		k.terminal = corev1.PodFailed
	}
	return k.terminal
}

// report writes the status as it is now, a moment later: what the API server gets meanwhile is overwritten.
func (k *kubelet) report() {
	phase, statuses, conditions, records := k.phase(), k.statuses(), k.conditions(), k.records
	at := k.w.now.Add(k.w.between(10*time.Millisecond, 300*time.Millisecond))
	if at.Before(k.reportAfter) {
		at = k.reportAfter
	}
	k.reportAfter = at.Add(time.Millisecond)
	k.w.after(at.Sub(k.w.now), func() {
		if k.w.refusesPhase(phase) || k.w.pod.Status.Phase == phase && len(k.w.pod.Status.Conditions) == len(conditions) && equal(k.w.pod.Status.ContainerStatuses, statuses) {
			return
		}
		if k.w.scenario.virtual && len(k.w.swaps) > len(records) {
			k.w.say("node", "takes the record of the swap back")
			k.w.swaps = records
		}
		k.w.write(func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.ContainerStatuses, pod.Status.Conditions = phase, statuses, conditions
		}, false)
	})
}

// conditions say that the kubelet takes the pod for completed. A virtual one has none.
func (k *kubelet) conditions() []corev1.PodCondition {
	if k.w.scenario.virtual || k.phase() != corev1.PodSucceeded {
		return nil
	}
	return []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"}}
}

func equal(a, b []corev1.ContainerStatus) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.ContainerStatus) bool {
		return x.RestartCount == y.RestartCount && x.ContainerID == y.ContainerID && reasonOf(x.State) == reasonOf(y.State) &&
			codeOf(x.State) == codeOf(y.State) && (x.State.Running == nil) == (y.State.Running == nil)
	})
}

// clock is what the node's clock reads at the time.
func (k *kubelet) clock(t time.Time) metav1.Time {
	return metav1.NewTime(t.Add(-k.w.scenario.nodeBehind).Truncate(time.Second))
}

func (k *kubelet) statuses() []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for _, p := range k.processes {
		st := corev1.ContainerStatus{Name: p.name, RestartCount: p.restarts}
		if p.runs > 0 {
			st.ContainerID = "containerd://" + p.name
		}
		begun, ended := k.clock(p.begun), k.clock(p.ended)
		switch p.state {
		case "running", "stopping":
			st.State.Running = &corev1.ContainerStateRunning{StartedAt: begun}
		case "dead":
			st.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: p.code, StartedAt: begun, FinishedAt: ended}
		case "backoff":
			st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		case "unpullable":
			st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
		default:
			st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		}
		statuses = append(statuses, st)
	}
	return statuses
}

// kruise is Kruise's manager and its daemon on the node.
type kruise struct {
	w    *world
	busy *recreateRequest
}

func (k *kruise) silent() bool {
	return k.w.scenario.silentFor > 0 && k.w.now.Before(done.Add(k.w.scenario.silentFor))
}

func (k *kruise) created(request *recreateRequest) {
	k.w.after(k.w.between(50*time.Millisecond, 500*time.Millisecond), k.sync)
	if k.silent() {
		k.w.after(done.Add(k.w.scenario.silentFor).Sub(k.w.now), k.sync) // a daemon that is back lists what is active
	}
	k.w.after(time.Minute, func() {
		if k.silent() {
			k.w.finish(request, "daemon has not responded for a long time")
		}
	})
	k.w.after(request.deadline, func() {
		k.w.finish(request, "recreating has exceeded the activeDeadlineSeconds")
		k.free(request)
	})
}

func (k *kruise) deleted(request *recreateRequest) { k.free(request) }

// free ends the work on a request. The daemon does not look at the next one for that: it looks when a request is created
// or, while unfinished, written to.
func (k *kruise) free(request *recreateRequest) {
	if k.busy == request {
		k.busy = nil
	}
}

// sync works on the oldest request that is not finished, one container after the other.
func (k *kruise) sync() {
	if k.silent() || k.busy != nil {
		return
	}
	for _, request := range k.w.requests {
		if !request.deleted && request.attempt.Finished.IsZero() {
			k.busy = request
			k.next(request)
			return
		}
	}
}

func (k *kruise) next(request *recreateRequest) {
	for _, name := range slices.Sorted(keys(request.attempt.RestartCounts)) {
		if request.deleted || slices.Contains(request.killed, name) {
			continue
		}
		request.killed = append(request.killed, name)
		if p := k.w.kubelet.process(name); p.state == "running" || p.state == "stopping" {
			k.w.say("kruise", "stops %s", name)
			k.w.kubelet.stop(p, func() { k.w.after(100*time.Millisecond, func() { k.next(request) }) })
			return
		}
		// A container that does not run is marked as stopped, and nothing is done to it.
	}
	k.watch(request)
}

// watch finishes a request whose containers have all come back; one whose containers stay dead is never finished.
func (k *kruise) watch(request *recreateRequest) {
	if request.deleted || !request.attempt.Finished.IsZero() {
		return
	}
	for name, before := range request.attempt.RestartCounts {
		if k.w.kubelet.process(name).restarts <= before {
			k.w.after(time.Second, func() { k.watch(request) })
			return
		}
	}
	k.w.finish(request, "succeeded")
	k.free(request)
}

func keys(m map[string]int32) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}
