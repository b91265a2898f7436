// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
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
	settle    = 1500 * time.Millisecond

	never     = corev1.RestartPolicyNever
	onFailure = corev1.RestartPolicyOnFailure
)

// done is when the last main container of a fixture ended.
var done = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// container is a container of a fixture with its status.
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

// waiting is a container that has never started.
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

// sidecar returns a target with the operator's defaults and a quick-exit image, changed as told.
func sidecar(name string, changes ...func(*resolve.Target)) resolve.Target {
	target := resolve.Target{
		Container: name, Mode: v1alpha1.ModeAuto, Image: quickExit, ExitCodes: v1alpha1.ExitCodesIgnore,
		Deadline: 30 * time.Second, Fallback: v1alpha1.FallbackEnabled,
	}
	for _, change := range changes {
		change(&target)
	}
	return target
}

func mode(m v1alpha1.Mode) func(*resolve.Target) { return func(t *resolve.Target) { t.Mode = m } }
func drain(d time.Duration) func(*resolve.Target) {
	return func(t *resolve.Target) { t.Drain = d }
}
func respect(t *resolve.Target)    { t.ExitCodes = v1alpha1.ExitCodesRespect }
func noFallback(t *resolve.Target) { t.Fallback = v1alpha1.FallbackDisabled }
func noImage(t *resolve.Target)    { t.Image = "" }
func byPolicy(t *resolve.Target) {
	t.Policy = &resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: "mesh"}
}

// having says what the target's quick-exit image covers.
func having(entries ...string) func(*resolve.Target) {
	return func(t *resolve.Target) { t.QuickExitPaths = quickexit.CoverageOf(entries...) }
}

// observed returns a snapshot of the pod on a real node, with Kruise, quiet for long. Containers that are no targets are
// main containers.
func observed(pod *corev1.Pod, targets []resolve.Target, changes ...func(*plan.Snapshot)) plan.Snapshot {
	s := plan.Snapshot{
		Pod: pod, View: resolve.View{Targets: targets}, Node: plan.NodeReal,
		Capabilities: plan.Capabilities{CRR: true, PodPhase: plan.PodPhaseEnabled, MaxGracePeriod: time.Hour},
		QuietSince:   done.Add(-time.Hour), SettlePeriod: settle,
	}
	for _, c := range pod.Spec.Containers {
		if !slices.ContainsFunc(targets, func(t resolve.Target) bool { return t.Container == c.Name }) {
			s.View.Mains = append(s.View.Mains, c.Name)
		}
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func withoutKruise(s *plan.Snapshot)    { s.Capabilities.CRR = false }
func withoutPodPhase(s *plan.Snapshot)  { s.Capabilities.PodPhase = plan.PodPhaseDisabled }
func lastResort(s *plan.Snapshot)       { s.Capabilities.PodPhase = plan.PodPhaseLastResort }
func withoutImages(s *plan.Snapshot)    { s.Capabilities.Images = imagesOf("registry.example/other") }
func onVirtualNode(s *plan.Snapshot)    { s.Node = plan.NodeVirtual }
func onDaemonlessNode(s *plan.Snapshot) { s.Node = plan.NodeDaemonless }

// mirror makes the pod the mirror pod of a static pod.
func mirror(s *plan.Snapshot) {
	s.Pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
}

// grace gives the pod a grace period. Those above an hour are beyond what the operator writes phases for.
func grace(d time.Duration) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { *s.Pod.Spec.TerminationGracePeriodSeconds = int64(d / time.Second) }
}

func quietFrom(t time.Time) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { s.QuietSince = t }
}

func containersFrom(t time.Time) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { s.ContainersSince = t }
}

func phase(p corev1.PodPhase) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { s.Pod.Status.Phase = p }
}

// knowingKubelet has the kubelet say that it knows of the pod's phase.
func knowingKubelet(s *plan.Snapshot) {
	s.Pod.Status.Conditions = append(s.Pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"})
}

func attempted(attempts ...plan.Attempt) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) { s.Attempts = append(s.Attempts, attempts...) }
}

// request is an attempt of mode CRR that began when the mains were done, on containers with no restart.
func request(number int, containers ...string) plan.Attempt {
	a := plan.Attempt{Mode: v1alpha1.ModeCRR, For: v1alpha1.ModeCRR, Number: number, Started: done, RestartCounts: map[string]int32{}}
	for _, name := range containers {
		a.RestartCounts[name] = 0
	}
	return a
}

func swap(containers ...string) plan.Attempt {
	a := request(0, containers...)
	a.Mode, a.For = v1alpha1.ModeImage, v1alpha1.ModeImage
	return a
}

func phaseWrite(number int, purpose v1alpha1.Mode) plan.Attempt {
	return plan.Attempt{Mode: v1alpha1.ModePodPhase, For: purpose, Number: number, Started: done}
}

func at(a plan.Attempt, started time.Duration) plan.Attempt {
	a.Started = done.Add(started)
	return a
}

func finished(a plan.Attempt, after time.Duration, message string) plan.Attempt {
	a.Finished, a.Message = done.Add(after), message
	return a
}

// brief is what tables compare: the decision with its actions as one line each, without the message.
type brief struct {
	Stage   plan.Stage
	Reason  v1alpha1.Reason
	Actions []string
	Requeue time.Duration
}

func briefly(d plan.Decision) brief {
	b := brief{Stage: d.Stage, Reason: d.Reason, Requeue: d.RequeueAfter}
	for _, action := range d.Actions {
		b.Actions = append(b.Actions, describe(action))
	}
	return b
}

// describe writes an action as a line: what is written, for which containers, and what the attempt may take.
func describe(a plan.Action) string {
	line := fmt.Sprintf("%s#%d", a.Mode, a.Attempt)
	if a.ReleasePhase {
		return line + " is released"
	}
	if a.Phase != "" {
		line += "=" + string(a.Phase)
	}
	line += fmt.Sprintf(" %v", a.Containers)
	if a.For != a.Mode {
		line += fmt.Sprintf(" for %s", a.For)
	}
	if len(a.Supersedes) > 0 {
		var numbers []int
		for _, spent := range a.Supersedes {
			numbers = append(numbers, spent.Number)
		}
		line += fmt.Sprintf(" instead of %v", numbers)
	}
	return line + fmt.Sprintf(" within %s", a.Deadline)
}

func targets(t ...resolve.Target) []resolve.Target { return t }

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

func from(source resolve.Source) func(*resolve.Target) {
	return func(t *resolve.Target) { t.ImageSource = source }
}
