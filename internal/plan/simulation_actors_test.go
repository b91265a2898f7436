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

// process is a container on the node.
type process struct {
	name   string
	manner manner
	image  string
	// missing means that the quick-exit image does not cover the command.
	missing bool
	state   string // "", unpullable, running, stopping, dead, backoff
	code    int32

	begun, ended time.Time
	runs, stops  int
	restarts     int32
	onDeath      []func()
}

// kubelet runs the pod. A virtual kubelet swaps images and does not tear pods down. A future one (kubernetes#139830) overwrites
// any other phase with its own.
type kubelet struct {
	m           *model
	received    int // the version of the pod that it received last
	processes   []*process
	images      map[string]string // of the last spec that it received
	busy        bool              // stopping containers for new images, which blocks the pod's worker
	records     []plan.Attempt    // the annotation that records swapped images, as a virtual kubelet knows it
	terminal    corev1.PodPhase   // once set, it tears the pod down
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
	k.m.after(10*time.Second, k.resync)
	if k.m.scenario.restless {
		k.m.after(time.Second, k.probe)
	}
}

// probe changes the result of a probe. That status write carries the phase that the kubelet knows.
func (k *kubelet) probe() {
	k.send(true)
	if k.anyAlive() {
		k.m.after(k.m.between(800*time.Millisecond, 1200*time.Millisecond), k.probe)
	}
}

// resync is the status manager's: it corrects the phase in the API server.
func (k *kubelet) resync() {
	if phase := k.phase(); phase != k.m.pod.Status.Phase {
		k.report()
	}
	if !isTerminal(k.m.pod) || k.anyAlive() {
		k.m.after(10*time.Second, k.resync)
	}
}

// lastEnd is when the last container ended.
func (k *kubelet) lastEnd() time.Time {
	var last time.Time
	for _, p := range k.processes {
		if p.ended.After(last) {
			last = p.ended
		}
	}
	return last
}

func (k *kubelet) anyAlive() bool {
	return slices.ContainsFunc(k.processes, func(p *process) bool { return p.state == "running" || p.state == "stopping" })
}

// updated delivers a version of the pod whose spec or metadata changed.
func (k *kubelet) updated(pod *corev1.Pod) {
	records := slices.Clone(k.m.swaps)
	delay := k.m.between(10*time.Millisecond, 500*time.Millisecond)
	if until := done.Add(k.m.scenario.interruptedFor); k.m.now.Before(until) {
		delay += until.Sub(k.m.now)
	}
	k.m.after(delay, func() {
		// A watch keeps the order.
		if versionOf(pod) < k.received {
			return
		}
		k.received = versionOf(pod)
		if !k.m.scenario.forgetful {
			k.records = records
		}
		for _, c := range pod.Spec.Containers {
			k.images[c.Name] = c.Image
		}
		if isTerminal(pod) && k.terminal == "" && !k.m.scenario.future && !k.m.scenario.virtual {
			k.terminal = pod.Status.Phase
			k.m.say("kubelet", "tears the pod down")
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
	return k.m.scenario.policy == onFailure && p.code != 0
}

func (k *kubelet) backOff(p *process) {
	p.state = "backoff"
	wait := min(10*time.Second<<min(p.restarts, 5), 5*time.Minute)
	if p.image != k.images[p.name] {
		wait = 0
	}
	k.m.after(wait+100*time.Millisecond, func() {
		if p.state == "backoff" && k.terminal == "" {
			p.image = k.images[p.name]
			k.start(p)
			k.report()
		}
	})
}

func (k *kubelet) start(p *process) {
	isQuick := p.image == quickExit
	if p.manner == unpullably && !isQuick || isQuick && k.m.scenario.quickUnpullable {
		// Under Never, a container that has run is not started again and keeps its last exit.
		if p.runs == 0 || k.m.scenario.policy == onFailure {
			p.state = "unpullable"
		}
		return
	}
	if p.runs++; p.runs > 1 {
		p.restarts++
	}
	p.state, p.begun = "running", k.m.now
	run := p.runs
	var live time.Duration
	var code int32
	switch {
	case isQuick && p.missing:
		code = 128 // StartError
	case isQuick:
		live = k.m.between(50*time.Millisecond, 300*time.Millisecond)
	case p.manner == works:
		live, code = done.Sub(k.m.now), k.m.scenario.mainCode
	case p.manner == crashing:
		live, code = 3*time.Second, 1
	default:
		return
	}
	k.m.after(live, func() {
		if p.state == "running" && p.runs == run {
			k.died(p, code)
		}
	})
}

// stop sends SIGTERM, then SIGKILL after the grace period.
func (k *kubelet) stop(p *process, then func()) {
	if then != nil {
		p.onDeath = append(p.onDeath, then)
	}
	if p.manner == works {
		k.m.fail("the main container is stopped")
	}
	if p.state != "running" {
		return
	}
	if p.stops++; p.stops > 1 && k.m.scenario.virtual {
		k.m.fail("%s is stopped twice", p.name)
	}
	p.state = "stopping"
	delay, code := k.m.between(100*time.Millisecond, 2*time.Second), int32(0)
	switch {
	case p.image == quickExit:
	case p.manner == rude:
		code = 7
	case p.manner == crashing:
		code = 1
	case p.manner == deaf:
		delay, code = 30*time.Second, 137
	}
	k.m.after(delay, func() { k.died(p, code) })
}

func (k *kubelet) died(p *process, code int32) {
	k.m.say("node", "%s exits %d", p.name, code)
	p.state, p.code, p.ended = "dead", code, k.m.now
	callbacks := p.onDeath
	p.onDeath = nil
	k.report()
	for _, callback := range callbacks {
		callback()
	}
	k.m.after(k.m.between(10*time.Millisecond, 100*time.Millisecond), func() { k.sync(); k.report() })
}

// phase is the pod's phase according to the kubelet.
func (k *kubelet) phase() corev1.PodPhase {
	if k.terminal != "" {
		return k.terminal
	}
	if slices.ContainsFunc(k.processes, func(p *process) bool { return p.state == "unpullable" && p.runs == 0 }) {
		return corev1.PodPending
	}
	failed := false
	for _, p := range k.processes {
		if p.state != "dead" || k.restarts(p) {
			return corev1.PodRunning
		}
		failed = failed || p.code != 0
	}
	if k.busy {
		return corev1.PodRunning
	}
	// A phase that the kubelet computed itself is final.
	k.terminal = corev1.PodSucceeded
	if failed {
		k.terminal = corev1.PodFailed
	}
	return k.terminal
}

// report writes the current status if it has changed.
func (k *kubelet) report() { k.send(false) }

// send writes the current status after a short delay, and so overwrites updates that arrive in the meantime. While a kubelet stops
// containers for new images, it computes no status.
func (k *kubelet) send(always bool) {
	if k.busy && !k.m.scenario.virtual {
		return
	}
	phase, statuses, conditions, records := k.phase(), k.statuses(), k.conditions(), k.records
	at := k.m.now.Add(k.m.between(10*time.Millisecond, 300*time.Millisecond))
	if at.Before(k.reportAfter) {
		at = k.reportAfter
	}
	k.reportAfter = at.Add(time.Millisecond)
	k.m.after(at.Sub(k.m.now), func() {
		if k.m.deniesPhase(phase) || !always && k.m.pod.Status.Phase == phase && len(k.m.pod.Status.Conditions) == len(conditions) && equal(k.m.pod.Status.ContainerStatuses, statuses) {
			return
		}
		if k.m.scenario.virtual && len(k.m.swaps) > len(records) {
			k.m.say("node", "overwrites the record of the swap")
			k.m.swaps = records
		}
		k.m.write(false, func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.ContainerStatuses, pod.Status.Conditions = phase, statuses, conditions
			if k.m.scenario.virtual {
				k.m.recordSwaps(pod)
			}
		})
	})
}

// conditions report that the kubelet has seen the pod end. A virtual kubelet sets none.
func (k *kubelet) conditions() []corev1.PodCondition {
	reason := map[corev1.PodPhase]string{corev1.PodSucceeded: "PodCompleted", corev1.PodFailed: "PodFailed"}[k.phase()]
	if k.m.scenario.virtual || reason == "" {
		return nil
	}
	return []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason}}
}

func equal(a, b []corev1.ContainerStatus) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.ContainerStatus) bool {
		return x.RestartCount == y.RestartCount && x.ContainerID == y.ContainerID && reasonOf(x.State) == reasonOf(y.State) &&
			codeOf(x.State) == codeOf(y.State) && (x.State.Running == nil) == (y.State.Running == nil)
	})
}

// clock is what the node's clock reads at the time.
func (k *kubelet) clock(t time.Time) metav1.Time {
	return metav1.NewTime(t.Add(-k.m.scenario.nodeBehind).Truncate(time.Second))
}

func (k *kubelet) statuses() []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for _, p := range k.processes {
		st := corev1.ContainerStatus{Name: p.name, Image: p.image, RestartCount: p.restarts}
		if p.runs > 0 {
			st.ContainerID = "containerd://" + p.name
		}
		begun, ended := k.clock(p.begun), k.clock(p.ended)
		if p.state != "dead" && !p.ended.IsZero() {
			st.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: p.code, FinishedAt: ended}
		}
		switch p.state {
		case "running", "stopping":
			st.Ready, st.State.Running = true, &corev1.ContainerStateRunning{StartedAt: begun}
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

// kruise is OpenKruise's manager and its daemon on the node.
type kruise struct {
	m    *model
	busy *modelCRR
}

func (k *kruise) silent() bool {
	return k.m.scenario.silentFor > 0 && k.m.now.Before(done.Add(k.m.scenario.silentFor))
}

func (k *kruise) created(r *modelCRR) {
	k.m.after(k.m.between(50*time.Millisecond, 500*time.Millisecond), k.sync)
	if k.silent() {
		k.m.after(done.Add(k.m.scenario.silentFor).Sub(k.m.now), k.sync) // a daemon that recovers lists the active CRRs
	}
	k.m.after(time.Minute, func() {
		if k.silent() {
			k.m.finish(r, "daemon has not responded for a long time")
		}
	})
	k.m.after(r.deadline, func() {
		k.m.finish(r, "recreating has exceeded the activeDeadlineSeconds")
		k.free(r)
	})
}

func (k *kruise) deleted(r *modelCRR) { k.free(r) }

// free ends the work on a CRR. It does not start the next one: the daemon does that when a CRR is created, or updated before
// it has finished.
func (k *kruise) free(r *modelCRR) {
	if k.busy == r {
		k.busy = nil
	}
}

// sync works on the oldest unfinished CRR, one container after the other.
func (k *kruise) sync() {
	if k.silent() || k.busy != nil {
		return
	}
	for _, r := range k.m.crrs {
		if !r.deleted && r.attempt.Finished.IsZero() {
			k.busy = r
			k.next(r)
			return
		}
	}
}

func (k *kruise) next(r *modelCRR) {
	for _, name := range slices.Sorted(keys(r.attempt.RestartCounts)) {
		if r.deleted || slices.Contains(r.killed, name) {
			continue
		}
		r.killed = append(r.killed, name)
		if p := k.m.kubelet.process(name); p.state == "running" || p.state == "stopping" {
			k.m.say("kruise", "stops %s", name)
			k.m.kubelet.stop(p, func() { k.m.after(100*time.Millisecond, func() { k.next(r) }) })
			return
		}
		// A container that does not run counts as stopped.
	}
	k.watch(r)
}

// watch finishes a CRR once all its containers have restarted. If one stays dead, the CRR never finishes.
func (k *kruise) watch(r *modelCRR) {
	if r.deleted || !r.attempt.Finished.IsZero() {
		return
	}
	for name, before := range r.attempt.RestartCounts {
		if k.m.kubelet.process(name).restarts <= before {
			k.m.after(time.Second, func() { k.watch(r) })
			return
		}
	}
	k.m.finish(r, "succeeded")
	k.free(r)
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
