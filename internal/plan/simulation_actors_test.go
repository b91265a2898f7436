// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// manner is what a container does.
type manner string

const (
	works      manner = "works"      // the main container: runs for a moment and ends
	slow       manner = "slow"       // exits 0 twenty seconds after the main container has ended
	polite     manner = "polite"     // exits 0 on SIGTERM
	rude       manner = "rude"       // exits 7 on SIGTERM
	deaf       manner = "deaf"       // ignores SIGTERM
	crashing   manner = "crashing"   // exits 1 a moment after each start
	flaky      manner = "flaky"      // exits 1 shortly before the main container ends, and 0 on SIGTERM after its restart
	unpullably manner = "unpullable" // has an image that cannot be pulled
)

// process is a container on the node.
type process struct {
	name   string
	manner manner
	image  string
	state  string // "", unpullable, running, stopping, dead, backoff
	code   int32

	begun, ended time.Time
	runs, stops  int
	restarts     int32
	hadTurn      bool  // it did not run at some time after the main containers were done
	stopped      int32 // restarts when it was stopped first
	onDeath      []func()
}

func (p *process) isAlive() bool { return p.state == "running" || p.state == "stopping" }

// kubelet runs the pod. It keeps a terminal phase that it finds in the API and tears the pod down. A virtual kubelet does not: it
// writes the provider's status and metadata until the phase is terminal.
type kubelet struct {
	m         *model
	received  int // the version of the pod that it received last
	processes []*process
	images    map[string]string // of the last spec that it received
	busy      bool              // stopping containers for new images, which blocks the pod's worker
	// labels and annotations are those that the provider of a virtual node knows.
	labels, annotations map[string]string
	terminal            corev1.PodPhase // once set, it tears the pod down
	killed              string          // why it ends the pod of its own accord: a reason of the status, or Deleted
	reportAfter         time.Time       // status writes keep their order
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
}

// resync is the status manager's: it corrects the phase in the API server.
func (k *kubelet) resync() {
	if phase := k.phase(); phase != k.m.pod.Status.Phase {
		k.report()
	}
	if !isTerminal(k.m.pod) || k.anyAlive() || k.phase() != k.m.pod.Status.Phase && !k.m.scenario.virtual {
		k.m.after(10*time.Second, k.resync)
	}
}

func (k *kubelet) anyAlive() bool { return slices.ContainsFunc(k.processes, (*process).isAlive) }

// updated delivers a version of the pod whose spec or metadata changed.
func (k *kubelet) updated(pod *corev1.Pod) {
	delay := k.m.between(10*time.Millisecond, 500*time.Millisecond)
	if until := done.Add(k.m.scenario.interruptedFor); k.m.now.Before(until) && k.m.now.After(done.Add(-time.Second)) {
		delay += until.Sub(k.m.now)
	}
	k.m.after(delay, func() {
		// A watch keeps the order.
		if versionOf(pod) < k.received {
			return
		}
		k.received = versionOf(pod)
		if !k.m.scenario.forgetful {
			k.labels, k.annotations = pod.Labels, pod.Annotations
		}
		for _, c := range pod.Spec.Containers {
			k.images[c.Name] = c.Image
		}
		if isTerminal(pod) && !k.m.scenario.virtual {
			if k.terminal == "" && k.anyAlive() {
				k.m.say("kubelet", "tears the pod down")
			}
			k.terminal = pod.Status.Phase
		}
		if pod.DeletionTimestamp != nil {
			k.kill("Deleted")
		}
		k.sync()
		k.report()
	})
}

// kill ends the pod: it was evicted or deleted, or its deadline has passed.
func (k *kubelet) kill(why string) {
	if k.killed == "" && k.terminal == "" {
		k.m.say("kubelet", "ends the pod: %s", why)
		k.killed = why
		k.sync()
		k.report()
	}
}

// sync is the pod's worker.
func (k *kubelet) sync() {
	if k.terminal != "" || k.killed != "" {
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
		if k.terminal == "" && k.killed == "" {
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
	spec := specOf(k.m.pod, p.name)
	return restartsAfter(k.m.scenario.policy, &spec, p.code)
}

// mustRun reports whether nobody may end the container: a main container that is not done, or a sidecar before all of them are done and it
// has drained or ended after them.
func (k *kubelet) mustRun(p *process) bool {
	view := k.m.view()
	sidecar := view.Sidecar(p.name)
	isDone := func(main *process) bool { return main.state == "dead" && !k.restarts(main) }
	return k.killed == "" && !isDone(p) && (sidecar == nil || len(view.Mains) == 0 || slices.ContainsFunc(view.Mains, func(name string) bool {
		main := k.process(name)
		return !isDone(main) || k.m.now.Before(main.ended.Add(sidecar.Drain)) && p.ended.Before(main.ended)
	}))
}

// takeTurns notes which sidecars do not run although every main container is done.
func (k *kubelet) takeTurns() {
	view := k.m.view()
	if slices.ContainsFunc(view.Mains, func(name string) bool { p := k.process(name); return p.state != "dead" || k.restarts(p) }) {
		return
	}
	for _, p := range k.processes {
		p.hadTurn = p.hadTurn || !p.isAlive() && p.state != ""
	}
}

// mustEndBefore returns the sidecar that must end before this one by its terminationOrder, or "". An attempt to end it may have failed, and the
// phase ends all sidecars at once.
func (k *kubelet) mustEndBefore(p *process) string {
	view := k.m.view()
	own := view.Sidecar(p.name)
	if own == nil || k.terminal != "" || k.killed != "" {
		return ""
	}
	for _, other := range view.Sidecars {
		before := k.process(other.Container)
		expired := slices.ContainsFunc(k.m.crrs, func(r *modelCRR) bool {
			_, covers := r.attempt.RestartCounts[before.name]
			return covers && (!r.attempt.Finished.IsZero() || !k.m.now.Before(r.attempt.Started.Add(r.deadline)))
		})
		if other.Order < own.Order && before.isAlive() && !before.hadTurn && !expired {
			return before.name
		}
	}
	return ""
}

// backOff starts the container again: the first time perhaps at once.
func (k *kubelet) backOff(p *process) {
	p.state = "backoff"
	wait := min(10*time.Second<<min(p.restarts, 5), 5*time.Minute)
	if p.image != k.images[p.name] || p.restarts == 0 && k.m.random.IntN(2) == 0 {
		wait = 0
	}
	k.m.after(wait+100*time.Millisecond, func() {
		if p.state == "backoff" && k.terminal == "" && k.killed == "" {
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
	exit := func(after time.Duration, code int32) {
		k.m.after(after, func() {
			if p.state == "running" && p.runs == run {
				k.died(p, code)
			}
		})
	}
	last := p.runs >= len(k.m.scenario.mainCodes())
	switch {
	case isQuick:
		exit(k.m.between(50*time.Millisecond, 300*time.Millisecond), 0)
	case p.manner == works && !last:
		exit(time.Second, k.m.scenario.mainCodes()[p.runs-1])
	case p.manner == works:
		exit(done.Sub(k.m.now), k.m.scenario.mainCodes()[p.runs-1])
	case p.manner == slow:
		exit(done.Add(20*time.Second).Sub(k.m.now), 0)
	case p.manner == flaky && p.runs == 1:
		exit(done.Add(-5*time.Second).Sub(k.m.now), 1)
	case p.manner == crashing:
		exit(3*time.Second, 1)
	case k.m.scenario.endThemselves:
		exit(max(done.Sub(k.m.now), 0)+minute, exitCode(p.manner))
	}
}

// exitCode is what a container leaves that ends on SIGTERM.
func exitCode(m manner) int32 {
	switch m {
	case rude:
		return 7
	case crashing:
		return 1
	case deaf:
		return 137
	}
	return 0
}

// stop sends SIGTERM, then SIGKILL after the grace period.
func (k *kubelet) stop(p *process, then func()) {
	if then != nil {
		p.onDeath = append(p.onDeath, then)
	}
	if p.state != "running" {
		return
	}
	if k.mustRun(p) {
		k.m.fail("%s is stopped, although it or a main container runs or it drains", p.name)
	}
	if before := k.mustEndBefore(p); before != "" {
		k.m.fail("%s is stopped before %s has ended", p.name, before)
	}
	if p.stops == 0 {
		p.stopped = p.restarts
	}
	if p.stops++; p.stops > 1 && k.m.scenario.virtual {
		k.m.fail("%s is stopped twice", p.name)
	}
	p.state = "stopping"
	delay, code := k.m.between(100*time.Millisecond, 2*time.Second), exitCode(p.manner)
	switch {
	case p.image == quickExit:
		code = 0
	case p.manner == deaf:
		delay = 30 * time.Second
	}
	k.m.after(delay, func() { k.died(p, code) })
}

func (k *kubelet) died(p *process, code int32) {
	k.m.say("node", "%s exits %d", p.name, code)
	p.state, p.code, p.ended = "dead", code, k.m.now
	k.takeTurns()
	callbacks := p.onDeath
	p.onDeath = nil
	k.report()
	for _, callback := range callbacks {
		callback()
	}
	k.m.after(k.m.between(10*time.Millisecond, 100*time.Millisecond), func() { k.sync(); k.report() })
	k.m.after(relist, k.report)
}

// relist is how long after the report of a container's exit a kubelet reports the phase that follows from it: it looks for containers that
// still run before (mergePodStatus in pkg/kubelet/status/status_manager.go). It reports both at once if it ends the pod itself, and so does a
// provider of virtual nodes.
const relist = time.Second

// phase is the pod's phase according to the kubelet.
func (k *kubelet) phase() corev1.PodPhase {
	switch {
	case k.terminal != "":
		return k.terminal
	case k.busy, k.killed != "" && k.anyAlive():
		return corev1.PodRunning
	case k.killed == "" && slices.ContainsFunc(k.processes, func(p *process) bool { return p.state == "unpullable" && p.runs == 0 }):
		return corev1.PodPending
	}
	failed := k.killed != "" && k.killed != "Deleted"
	for _, p := range k.processes {
		if k.killed == "" && (p.state != "dead" || k.restarts(p)) {
			return corev1.PodRunning
		}
		failed = failed || p.code != 0
		if k.m.now.Before(p.ended.Add(relist)) && !k.m.scenario.virtual && k.killed == "" {
			return corev1.PodRunning
		}
	}
	// A phase that the kubelet computed itself is final, unless it finds another terminal one in the API.
	k.terminal = corev1.PodSucceeded
	if failed {
		k.terminal = corev1.PodFailed
	}
	return k.terminal
}

// report writes the current status after a short delay if it has changed, and so overwrites updates that arrive in the meantime. While a
// kubelet stops containers for new images, it computes no status.
func (k *kubelet) report() {
	if k.busy && !k.m.scenario.virtual {
		return
	}
	now := corev1.PodStatus{Phase: k.phase(), ContainerStatuses: k.statuses(), StartTime: k.m.pod.Status.StartTime}
	if k.killed != "" && k.killed != "Deleted" && isTerminal(&corev1.Pod{Status: now}) {
		now.Reason = k.killed // mergePodStatus drops it while containers run
	}
	if k.killed == "Evicted" {
		now.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	}
	labels, annotations := k.labels, k.annotations
	at := k.m.now.Add(k.m.between(10*time.Millisecond, 300*time.Millisecond))
	if at.Before(k.reportAfter) {
		at = k.reportAfter
	}
	k.reportAfter = at.Add(time.Millisecond)
	k.m.after(at.Sub(k.m.now), func() {
		live := k.m.pod.Status
		same := live.Phase == now.Phase && live.Reason == now.Reason && equal(live.ContainerStatuses, now.ContainerStatuses) &&
			(len(now.Conditions) == 0 || hasCondition(k.m.pod, corev1.DisruptionTarget))
		if same || k.m.scenario.virtual && isTerminal(k.m.pod) {
			return
		}
		k.m.writeStatus(func(pod *corev1.Pod) {
			// A kubelet keeps the conditions of others.
			others := slices.DeleteFunc(slices.Clone(pod.Status.Conditions), func(c corev1.PodCondition) bool {
				return slices.ContainsFunc(now.Conditions, func(own corev1.PodCondition) bool { return c.Type == own.Type })
			})
			pod.Status = *now.DeepCopy()
			if k.m.scenario.virtual {
				pod.Labels, pod.Annotations = maps.Clone(labels), maps.Clone(annotations)
			} else {
				pod.Status.Conditions = append(others, now.Conditions...)
			}
		})
	})
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
	for _, name := range slices.Sorted(maps.Keys(r.attempt.RestartCounts)) {
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
	r.attempt.Stopped = true
	k.m.crrsChanged()
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
