// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/imagelist"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

const (
	quickExit = "registry.example/quick-exit:v1"

	never     = corev1.RestartPolicyNever
	onFailure = corev1.RestartPolicyOnFailure

	crr      = v1alpha1.ModeCRR
	image    = v1alpha1.ModeImage
	podPhase = v1alpha1.ModePodPhase

	minute = time.Minute
)

// done is when the last main container of a fixture ended.
var done = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// container is a container with its status.
type container struct {
	spec   corev1.Container
	status corev1.ContainerStatus
}

func running(name string) container {
	c := started(name)
	c.status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(done.Add(-time.Hour))}
	return c
}

func exited(name string, code int32) container {
	c := started(name)
	c.status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(done)}
	return c
}

func crashLooping(name string) container {
	c := started(name)
	c.status.RestartCount = 4
	c.status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	return c
}

// waiting returns a container that has never started.
func waiting(name, reason string) container {
	return container{
		spec:   corev1.Container{Name: name},
		status: corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
	}
}

func creating(name string) container   { return waiting(name, "ContainerCreating") }
func unpullable(name string) container { return waiting(name, "ImagePullBackOff") }
func started(name string) container {
	return container{
		spec:   corev1.Container{Name: name},
		status: corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + name},
	}
}

func (c container) restarted(count int32) container {
	c.status.RestartCount = count
	return c
}

// runs gives the container a command.
func (c container) runs(words ...string) container {
	c.spec.Command = words
	return c
}

func (c container) endedAt(t time.Time) container {
	c.status.State.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: c.status.State.Terminated.ExitCode, FinishedAt: metav1.NewTime(t),
	}
	return c
}

// swapped gives the container its quick-exit image.
func (c container) swapped() container {
	c.spec.Image = quickExit
	return c
}

// restarting gives the container its own restart policy and rules.
func (c container) restarting(policy corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) container {
	c.spec.RestartPolicy, c.spec.RestartPolicyRules = &policy, rules
	return c
}

func rule(action corev1.ContainerRestartRuleAction, operator corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{
		Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes},
	}
}

// newPod returns a pod that runs on a node, with a grace period of 30 s.
func newPod(policy corev1.RestartPolicy, containers ...container) *corev1.Pod {
	grace := int64(30)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "batch", Name: "job", UID: "pod-uid", CreationTimestamp: metav1.NewTime(done.Add(-2 * time.Hour)),
		},
		Spec:   corev1.PodSpec{RestartPolicy: policy, NodeName: "node", TerminationGracePeriodSeconds: &grace},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, c.spec)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, c.status)
	}
	return pod
}

// finishedMain is a pod whose container main has exited 0, with these sidecars, or with a container proxy that runs.
func finishedMain(policy corev1.RestartPolicy, sidecars ...container) *corev1.Pod {
	if len(sidecars) == 0 {
		sidecars = []container{running("proxy")}
	}
	return newPod(policy, append([]container{exited("main", 0)}, sidecars...)...)
}

// oneProxy is the sidecar proxy with these changes.
func oneProxy(changes ...func(*resolve.Sidecar)) []resolve.Sidecar {
	return sidecarsOf(sidecar("proxy", changes...))
}

// sidecar returns a sidecar with the operator's defaults and a quick-exit image, and applies the changes.
func sidecar(name string, changes ...func(*resolve.Sidecar)) resolve.Sidecar {
	sidecar := resolve.Sidecar{
		Container: name, Mode: v1alpha1.ModeAuto, Image: quickExit, ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore,
		Timeout: 30 * time.Second, Fallback: v1alpha1.FallbackEnabled,
	}
	for _, change := range changes {
		change(&sidecar)
	}
	return sidecar
}

func mode(m v1alpha1.Mode) func(*resolve.Sidecar) { return func(t *resolve.Sidecar) { t.Mode = m } }
func order(value int32) func(*resolve.Sidecar) {
	return func(t *resolve.Sidecar) { t.Order = value }
}

func drain(d time.Duration) func(*resolve.Sidecar) {
	return func(t *resolve.Sidecar) { t.Drain = d }
}
func respect(t *resolve.Sidecar)    { t.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect }
func noFallback(t *resolve.Sidecar) { t.Fallback = v1alpha1.FallbackDisabled }
func noImage(t *resolve.Sidecar)    { t.Image = "" }
func byPolicy(t *resolve.Sidecar) {
	t.Policy = &resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: "mesh"}
}

// having sets the coverage of the sidecar's quick-exit image.
func having(entries ...string) func(*resolve.Sidecar) {
	return func(t *resolve.Sidecar) { t.QuickExitPaths = quickexit.CoverageOf(entries...) }
}

// modes are all modes, with the given use of the phase.
func modes(phase plan.PodPhaseUse) plan.EnabledModes {
	return plan.EnabledModes{CRR: true, Image: true, PodPhase: phase}
}

// observed returns a snapshot of a pod on a real node with OpenKruise. All containers that are not sidecars are main containers. The
// operator has marked the pod without an end, and the admission policy has answered.
func observed(pod *corev1.Pod, sidecars []resolve.Sidecar, changes ...func(*plan.Snapshot)) plan.Snapshot {
	s := plan.Snapshot{
		Pod: pod, View: resolve.View{Sidecars: sidecars}, Node: plan.NodeReal,
		Capabilities: plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: true, MaxGracePeriod: time.Hour},
		MarkedAt:     done,
	}
	for _, c := range pod.Spec.Containers {
		if !slices.ContainsFunc(sidecars, func(t resolve.Sidecar) bool { return t.Container == c.Name }) {
			s.View.Mains = append(s.View.Mains, c.Name)
		}
	}
	marked(&s)
	for _, change := range changes {
		change(&s)
	}
	return s
}

func jobUnreadable(s *plan.Snapshot) { s.JobUnreadable = true }

// mayRestart reports whether the kubelet may restart a container that fails.
func mayRestart(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == onFailure || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.RestartPolicy != nil })
}

// marked gives the pod its mark and the record that the admission policy makes of it. A pod whose exit codes all count has none.
func marked(s *plan.Snapshot) {
	if ignored := ignoredBy(s.View); len(ignored) > 0 {
		s.Pod.Labels = map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}
		annotate(s.Pod, v1alpha1.AnnotationIgnoredExitCodes, strings.Join(ignored, ",")+"/"+string(s.Pod.UID))
		if mayRestart(s.Pod) {
			end := v1alpha1.EndWaiting
			if slices.ContainsFunc(s.View.Sidecars, func(t resolve.Sidecar) bool { return t.Drain > 0 }) {
				end = v1alpha1.EndRestarted
			}
			annotate(s.Pod, v1alpha1.AnnotationEnd, own(end))
		}
		annotate(s.Pod, v1alpha1.AnnotationMainContainers, decide(s.Pod, s.Pod).Annotations[v1alpha1.AnnotationMainContainers])
	}
}

// ignoredBy lists the sidecars whose exit codes do not count.
func ignoredBy(view resolve.View) []string {
	var ignored []string
	for _, sidecar := range view.Sidecars {
		if sidecar.ExitCodePolicy == v1alpha1.ExitCodePolicyIgnore {
			ignored = append(ignored, sidecar.Container)
		}
	}
	return ignored
}

func annotate(pod *corev1.Pod, key, value string) {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
}

// own is a value that is for the pods of the fixtures, by their UID.
func own(value string) string { return value + "/pod-uid" }

func unmarked(s *plan.Snapshot)     { s.Pod.Labels, s.Pod.Annotations = nil, nil }
func assumeMarked(s *plan.Snapshot) { s.AssumeMarked = true }

// undecided is a marked pod without an answer of the admission policy.
func undecided(s *plan.Snapshot) { delete(s.Pod.Annotations, v1alpha1.AnnotationMainContainers) }

// record replaces what the admission policy has found.
func record(value string) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { annotate(s.Pod, v1alpha1.AnnotationMainContainers, own(value)) }
}

// ending marks the pod with this end.
func ending(end string) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { annotate(s.Pod, v1alpha1.AnnotationEnd, own(end)) }
}

// endedByPhase is a pod that the admission policy has ended in this phase.
func endedByPhase(s *plan.Snapshot) {
	ending(v1alpha1.EndPodPhase)(s)
	record(v1alpha1.MainsDecided)(s)
	s.Pod.Status.Phase = corev1.PodSucceeded
}

// failedByPhase is a pod whose phase Failed the operator has written.
func failedByPhase(s *plan.Snapshot) {
	ending(v1alpha1.EndFailed)(s)
	s.Pod.Status.Phase = corev1.PodFailed
}

func withoutKruise(s *plan.Snapshot)    { s.Capabilities.CRRServed = false }
func withoutPodPhase(s *plan.Snapshot)  { s.Capabilities.PodPhase = plan.PodPhaseDisabled }
func lastResort(s *plan.Snapshot)       { s.Capabilities.PodPhase = plan.PodPhaseLastResort }
func withoutImages(s *plan.Snapshot)    { s.Capabilities.Images = imagesOf("registry.example/other") }
func onVirtualNode(s *plan.Snapshot)    { s.Node = plan.NodeVirtual }
func onDaemonlessNode(s *plan.Snapshot) { s.Node = plan.NodeDaemonless }
func onUnreadNode(s *plan.Snapshot)     { s.Node = plan.NodeNotRead }
func onUnknownNode(s *plan.Snapshot)    { s.Node = plan.NodeUnknown }
func namespacesOnly(s *plan.Snapshot)   { s.Capabilities.NamespacesOnly = true }
func beingDeleted(s *plan.Snapshot)     { s.Pod.DeletionTimestamp = &metav1.Time{Time: done} }
func evicted(s *plan.Snapshot)          { s.Pod.Status.Reason = "Evicted" }
func withClaim(s *plan.Snapshot) {
	s.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
}

// mirror makes the pod the mirror pod of a static pod.
func mirror(s *plan.Snapshot) { annotate(s.Pod, corev1.MirrorPodAnnotationKey, "") }

// condition adds a condition of the pod, which is true.
func condition(kind corev1.PodConditionType) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) {
		s.Pod.Status.Conditions = append(s.Pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
	}
}

// grace sets the pod's grace period. The operator's limit for mode PodPhase is one hour.
func grace(d time.Duration) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = int64(d / time.Second) }
}

func drainsSince(t time.Time) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { s.DrainsSince = t }
}

func phaseSince(after time.Duration) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { s.PhaseSince = done.Add(after) }
}

func phase(p corev1.PodPhase) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { s.Pod.Status.Phase = p }
}

// markAfter returns a change after which the next mark must wait, until so long after done.
func markAfter(wait time.Duration) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { s.MarkAfter = done.Add(wait) }
}

// denying returns a change after which the last write of each of these modes was denied.
func denying(modes ...v1alpha1.Mode) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) {
		s.Denied = map[v1alpha1.Mode]string{}
		for _, m := range modes {
			s.Denied[m] = "a webhook denied it"
		}
	}
}

func attempted(attempts ...plan.Attempt) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { s.Attempts = append(s.Attempts, attempts...) }
}

// crrAttempt is an attempt of mode CRR that began when the mains were done, on containers with no restart.
func crrAttempt(number int, containers ...string) plan.Attempt {
	a := plan.Attempt{Mode: v1alpha1.ModeCRR, Number: number, Started: done, RestartCounts: map[string]int32{}}
	for _, name := range containers {
		a.RestartCounts[name] = 0
	}
	return a
}

func stopped(a plan.Attempt) plan.Attempt {
	a.Stopped = true
	return a
}

func withMainRestarts(a plan.Attempt, restarts int32) plan.Attempt {
	a.MainRestarts = map[string]int32{"main": restarts}
	return a
}

func swap(containers ...string) plan.Attempt {
	a := crrAttempt(1, containers...)
	a.Mode = v1alpha1.ModeImage
	return a
}

func at(a plan.Attempt, started time.Duration) plan.Attempt {
	a.Started = done.Add(started)
	return a
}

func finished(a plan.Attempt, after time.Duration, message string) plan.Attempt {
	a.Finished, a.Message = done.Add(after), message
	return a
}

// brief is what tables compare: the decision without its message, with one line for a mark that ends nothing and for each other write. The
// requeue at the timeout of a write is left out.
type brief struct {
	Stage   plan.Stage
	Reason  v1alpha1.Reason
	Mark    string
	Writes  []string
	Requeue time.Duration
	Waits   bool
	// MarkDenied is true where the decision says that a mark is needed and denied.
	MarkDenied bool
	// Unordered is true where the decision says that the terminationOrder is not kept.
	Unordered bool
}

func briefly(d plan.Decision) brief {
	b := brief{Stage: d.Stage, Reason: d.Reason, Requeue: d.RequeueAfter, Waits: d.MarkWaits, MarkDenied: d.MarkDenied != "", Unordered: d.OrderNotKept != ""}
	if mark := markOf(d); mark != nil {
		b.Mark = describeMark(*mark)
	}
	for _, write := range d.Ends() {
		b.Writes = append(b.Writes, describe(write))
		if write.Timeout == d.RequeueAfter {
			b.Requeue = 0
		}
	}
	return b
}

// markOf returns the decision's mark that ends no sidecar, or nil.
func markOf(d plan.Decision) *plan.Mark {
	for _, write := range d.Writes {
		if write.Mark != nil && len(write.Containers) == 0 {
			return write.Mark
		}
	}
	return nil
}

// The first action of each mode on the sidecar of finishedMain.
const (
	phaseOfProxy  = "PodPhase#1=Succeeded [proxy] within 1m0s"
	failedOfProxy = "PodPhase#1=Failed [proxy] within 1m0s"
	swapOfProxy   = "Image#1 [proxy] within 1m0s"
	crrOfProxy    = "CRR#1 [proxy] within 1m0s"
)

func ignored(reason v1alpha1.Reason) brief { return brief{Stage: plan.StageIgnored, Reason: reason} }
func stuck(reason v1alpha1.Reason) brief   { return brief{Stage: plan.StageStuck, Reason: reason} }
func terminated() brief                    { return brief{Stage: plan.StageTerminated, Reason: v1alpha1.ReasonTerminated} }

func waits(reason v1alpha1.Reason, requeue time.Duration) brief {
	return brief{Stage: plan.StageWaiting, Reason: reason, Requeue: requeue}
}

// marking is a decision that marks the pod.
func marking(mark string) brief {
	b := brief{Stage: plan.StageWaiting, Reason: v1alpha1.ReasonMarking, Mark: mark}
	if strings.HasSuffix(mark, "recorded") || strings.HasSuffix(mark, "decided") {
		b.Stage = plan.StageTerminating
	}
	return b
}

// pending is a decision without an action after the end of the mains.
func pending(reason v1alpha1.Reason, requeue time.Duration) brief {
	return brief{Stage: plan.StageTerminating, Reason: reason, Requeue: requeue}
}

func inProgress(requeue time.Duration) brief {
	return pending(v1alpha1.ReasonAttemptInProgress, requeue)
}

func terminating(actions ...string) brief {
	return brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonTerminating, Writes: actions}
}

func unordered(b brief) brief {
	b.Unordered = true
	return b
}

func fallingBack(actions ...string) brief {
	return brief{Stage: plan.StageTerminating, Reason: v1alpha1.ReasonFallback, Writes: actions}
}

func requeued(b brief, after time.Duration) brief {
	b.Requeue = after
	return b
}

// deniedMark is the decision about a pod whose mark is denied.
func deniedMark(b brief) brief {
	b.MarkDenied = true
	return b
}

// markWaits is the decision of a pod that is marked after the time.
func markWaits(b brief, after time.Duration) brief {
	b.Waits = true
	return requeued(b, after)
}

// describeMark formats a mark as a line, such as "[logs proxy] PodPhase recorded".
func describeMark(m plan.Mark) string {
	line := strings.TrimSuffix(fmt.Sprintf("%v %s", m.IgnoredExitCodes, m.End), " ")
	return line + map[string]string{v1alpha1.MainsSucceeded: " recorded", v1alpha1.MainsDecided: " decided"}[m.Record]
}

// describe formats an action as a line with its containers and timeout.
func describe(a plan.Write) string {
	line := fmt.Sprintf("%s#%d", a.Mode, a.Attempt)
	if a.Mark != nil {
		line += "=" + string(a.Mark.Phase()) // with the record of it
	}
	line += fmt.Sprintf(" %v", a.Containers)
	if len(a.Supersedes) > 0 {
		var numbers []int
		for _, spent := range a.Supersedes {
			numbers = append(numbers, spent.Number)
		}
		line += fmt.Sprintf(" instead of %v", numbers)
	}
	return line + fmt.Sprintf(" within %s", a.Timeout)
}

func sidecarsOf(s ...resolve.Sidecar) []resolve.Sidecar { return s }

// imagesOf is the administrator's list of these images.
func imagesOf(entries ...string) imagelist.List {
	var list imagelist.List
	for _, text := range entries {
		entry, err := imagelist.ParseEntry(text)
		if err != nil {
			panic(err)
		}
		list.Entries = append(list.Entries, entry)
	}
	return list
}

func from(source resolve.Source) func(*resolve.Sidecar) {
	return func(t *resolve.Sidecar) { t.Origins.Image.Source = source }
}
