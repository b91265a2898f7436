// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/plan"
)

var (
	virtualKubelet = map[string]string{"type": "virtual-kubelet"}
	fargate        = map[string]string{"eks.amazonaws.com/compute-type": "fargate"}
)

// createNode creates a node with the name and the labels.
func (f *fixture) createNode(name string, labels map[string]string) {
	f.Helper()
	f.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

func TestPodWaitsForItsNode(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		what   string
		ended  func(*corev1.Pod) bool
	}{
		"a real one":    {nil, "its phase is written", phaseWritten},
		"a virtual one": {virtualKubelet, "its image is swapped", imageSwapped},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.startOperator(testOptions())
			policy := f.newPolicy("mesh")
			late := f.namespace + "-late"
			pod := f.newPod("job-1", podtest.MainDone, func(p *corev1.Pod) { p.Spec.NodeName = late })
			f.untilCounts(policy, counts{matched: 1, terminating: 1})
			f.untouched(pod)
			f.createNode(late, tc.labels)
			f.until(pod, tc.what, tc.ended)
			f.nothingWentWrong()
		})
	}
}

func TestPodWaitsToBeScheduled(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh")
	pod := f.newPod("job-1", func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	})
	f.untilCounts(policy, counts{matched: 1, waiting: 1})
	f.untouched(pod)

	late := f.namespace + "-late"
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: late}}
	if err := f.SubResource("binding").Create(t.Context(), pod, binding); err != nil {
		t.Fatal(err)
	}
	f.change(pod, func(p *corev1.Pod) { p.Status = podtest.New(podtest.MainDone).Status })
	f.untilCounts(policy, counts{matched: 1, terminating: 1})
	f.untouched(pod)
	f.createNode(late, virtualKubelet)
	f.until(pod, "its image is swapped", imageSwapped)
	f.nothingWentWrong()
}

func TestReplacedNodeHasItsCurrentKind(t *testing.T) {
	f := newFixture(t)
	mgr := f.newManager()
	if err := Setup(t.Context(), mgr, testOptions()); err != nil {
		t.Fatal(err)
	}
	f.start(mgr)
	policy := f.newPolicy("mesh")
	name := f.namespace + "-replaced"
	f.createNode(name, nil)
	pod := f.newPod("job-1", func(p *corev1.Pod) { p.Spec.NodeName = name })
	f.untilCounts(policy, counts{matched: 1, waiting: 1})

	f.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	testenv.Eventually(t, "the operator knows that the node is gone", func(ctx context.Context) error {
		if err := mgr.GetCache().Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	})
	f.change(pod, podtest.MainDone)
	f.untilCounts(policy, counts{matched: 1, terminating: 1})
	f.untouched(pod)
	f.createNode(name, virtualKubelet)
	f.until(pod, "its image is swapped", imageSwapped)
	f.nothingWentWrong()
}

func TestPodsFollowNodeKind(t *testing.T) {
	f := newFixture(t)
	options := testOptions()
	options.NodeKindRules.Virtual.Taints = append(options.NodeKindRules.Virtual.Taints, "example.com/no-kubelet")
	f.startOperator(options)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.node}}
	taint := func(taints ...corev1.Taint) {
		f.reload(node)
		node.Spec.Taints = taints
		f.update(node)
	}
	virtual := corev1.Taint{Key: "example.com/no-kubelet", Effect: corev1.TaintEffectNoSchedule}
	taint(virtual)
	// Nothing tears a pod down on a virtual node, so this mode waits for a real one.
	policy := f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""), func(spec *v1alpha1.PolicySpec) { spec.Fallback = v1alpha1.FallbackDisabled })
	pod := f.newPod("job-1", podtest.MainDone)
	f.untilCounts(policy, counts{matched: 1, stuck: 1})
	f.untouched(pod)
	taint()
	f.until(pod, "its phase is written", phaseWritten)

	other := f.newPod("job-2")
	f.untilCounts(policy, counts{matched: 2, waiting: 1, terminating: 1})
	taint(virtual)
	policy.Spec.Fallback = v1alpha1.FallbackEnabled
	f.update(policy)
	// This mode cannot have written the first pod's phase, because the node is known to be virtual.
	f.untilStatus(policy, "is degraded", func(s v1alpha1.PolicyStatus) bool { return s.MatchedPods == 2 })
	f.change(other, podtest.MainDone)
	f.until(other, "its image is swapped", imageSwapped)
}

func TestPhaseIsWrittenOnNodeWithoutKruiseDaemon(t *testing.T) {
	f := newFixture(t)
	newKruise(t).Install(t)
	options := testOptions()
	options.NodeKindRules.Daemonless.Labels = append(options.NodeKindRules.Daemonless.Labels, plan.LabelMatch{Key: "example.com/bare"})
	f.startOperator(options)
	f.newPolicy("mesh")
	for i, labels := range []map[string]string{fargate, {"example.com/bare": ""}} {
		node := f.newNode(labels)
		pod := f.newPod(fmt.Sprintf("job-%d", i), podtest.MainDone, func(p *corev1.Pod) { p.Spec.NodeName = node })
		f.until(pod, "its phase is written", phaseWritten)
	}
	if requests := f.crrs(); len(requests) > 0 {
		t.Errorf("%d requests", len(requests))
	}
}

// A virtual kubelet writes a pod's status with the annotations of its provider's copy.
func TestSwapWithRevertedRecordIsKnown(t *testing.T) {
	options := testOptions()
	options.Clock = clocktesting.NewFakePassiveClock(podtest.Noon.Add(10 * time.Second))
	b := newBench(t, options, nil)
	b.newPolicy("mesh")
	node := b.newNode(virtualKubelet)
	pod := b.newPod("job-1", podtest.MainDone, func(p *corev1.Pod) { p.Spec.NodeName = node })
	known := pod.DeepCopy()
	b.reconcile(pod)
	b.wrote("PATCH pods")

	report := func(status corev1.ContainerStatus) {
		t.Helper()
		b.reload(pod)
		known.ResourceVersion, known.Status.ContainerStatuses[1] = pod.ResourceVersion, status
		b.updateStatus(known)
		b.reload(pod)
		if !imageSwapped(pod) || pod.Annotations[v1alpha1.AnnotationImageSwap] != "" {
			t.Fatalf("the update left images %v and annotations %v", images(pod), pod.Annotations)
		}
	}
	old := podtest.Ended("proxy", 0)
	old.State.Terminated.StartedAt = podtest.Running("proxy").State.Running.StartedAt
	for _, status := range []corev1.ContainerStatus{podtest.Running("proxy"), old} {
		report(status)
		b.reconcile(pod)
		if got := b.stageOf(pod); got != plan.StageTerminating {
			t.Errorf("the pod is %s when the old container is %+v", got, status.State)
		}
	}
	renewed := podtest.Ended("proxy", 0)
	renewed.State.Terminated.StartedAt, renewed.RestartCount = renewed.State.Terminated.FinishedAt, 1
	report(renewed)
	b.reconcile(pod)
	if got := b.stageOf(pod); got != plan.StageTerminated {
		t.Errorf("the pod is %s when the new container has ended", got)
	}
	b.wrote("PATCH pods")
	if got := b.events.take(); slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, corev1.EventTypeWarning) }) {
		t.Errorf("events: %q", got)
	}
}

// stageOf decides about the pod as Reconcile does.
func (b *bench) stageOf(pod *corev1.Pod) plan.Stage {
	b.Helper()
	b.caughtUp(pod)
	resolved, err := b.pods.reader.resolve(b.Context(), pod)
	if err != nil {
		b.Fatal(err)
	}
	snapshot, err := b.pods.reader.snapshot(b.Context(), pod, resolved.resolution.Enforced)
	if err != nil {
		b.Fatal(err)
	}
	return plan.Next(snapshot, b.pods.options.Clock.Now()).Stage
}

// Without an image no mode can terminate a sidecar on a virtual node, and the pod reports that.
func TestEnvOnVirtualNodeWithoutImageIsReported(t *testing.T) {
	f := newFixture(t)
	options := testOptions()
	options.Resolve.Image = ""
	f.startOperator(options)
	node := f.newNode(virtualKubelet)
	pod := f.newPod("job-1", podtest.MainDone, func(p *corev1.Pod) {
		p.Spec.NodeName = node
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
	})
	testenv.Eventually(t, "the pod is reported", func(ctx context.Context) error {
		got, err := f.eventsOn(ctx, pod)
		if err == nil && !slices.Contains(got, "Warning "+string(v1alpha1.ReasonNoUsableMode)) {
			err = fmt.Errorf("the events are %q", got)
		}
		return err
	})
	f.untouched(pod)
	// A policy that names the container sets the image.
	f.newPolicy("mesh", func(spec *v1alpha1.PolicySpec) { spec.Image = quickExit })
	f.until(pod, "its image is swapped", imageSwapped)
}
