// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

// until waits until the check passes for the pod.
func (f *fixture) until(pod *corev1.Pod, what string, check func(*corev1.Pod) bool) {
	f.Helper()
	testenv.Eventually(f.T, pod.Name+": "+what, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if !check(pod) {
			return fmt.Errorf("phase %s, images %v, labels %v", pod.Status.Phase, images(pod), pod.Labels)
		}
		return nil
	})
}

func images(pod *corev1.Pod) []string {
	var list []string
	for _, container := range pod.Spec.Containers {
		list = append(list, container.Image)
	}
	return list
}

func phaseWritten(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }
func imageSwapped(pod *corev1.Pod) bool { return slices.Contains(images(pod), quickExit) }

// untilStatus waits until the check passes for the policy's status, and returns the status.
func (f *fixture) untilStatus(policy client.Object, what string, check func(v1alpha1.PolicyStatus) bool) v1alpha1.PolicyStatus {
	f.Helper()
	var status v1alpha1.PolicyStatus
	testenv.Eventually(f.T, policy.GetName()+": "+what, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		switch p := policy.(type) {
		case *v1alpha1.SidecarTerminationPolicy:
			status = p.Status
		case *v1alpha1.ClusterSidecarTerminationPolicy:
			status = p.Status
		}
		if status.ObservedGeneration != policy.GetGeneration() || !check(status) {
			return fmt.Errorf("status of generation %d: %+v", policy.GetGeneration(), status)
		}
		return nil
	})
	return status
}

// counts are the columns of a policy's status.
type counts struct{ matched, waiting, terminating, stuck, terminated int }

func (f *fixture) untilCounts(policy client.Object, want counts) v1alpha1.PolicyStatus {
	f.Helper()
	return f.untilStatus(policy, fmt.Sprintf("counts %+v", want), func(s v1alpha1.PolicyStatus) bool {
		return want == counts{int(s.MatchedPods), int(s.WaitingPods), int(s.TerminatingPods), int(s.StuckPods), int(s.TerminatedPods)}
	})
}

// untilCRRs waits for that many ContainerRecreateRequests.
func (f *fixture) untilCRRs(want int) {
	f.Helper()
	testenv.Eventually(f.T, "there are requests", func(context.Context) error {
		if got := len(f.crrs()); got != want {
			return fmt.Errorf("there are %d, want %d", got, want)
		}
		return nil
	})
}

// untilEvent waits for an event of the operator on the pod.
func (f *fixture) untilEvent(pod *corev1.Pod) {
	f.Helper()
	testenv.Eventually(f.T, pod.Name+": there is an event", func(ctx context.Context) error {
		got, err := f.eventsOn(ctx, pod)
		if err == nil && len(got) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// untouched fails if the operator has written to the pod.
func (f *fixture) untouched(pod *corev1.Pod) {
	f.Helper()
	version := pod.ResourceVersion
	if f.reload(pod); pod.ResourceVersion != version {
		f.Errorf("pod %s was written: phase %s, images %v", pod.Name, pod.Status.Phase, images(pod))
	}
}

// nothingWentWrong fails if the operator has logged an error, such as a missing permission.
func (f *fixture) nothingWentWrong() {
	f.Helper()
	for line := range strings.Lines(operatorLog.take()) {
		// The manager logs this when it stops. A reflector logs it when it loses its connection early.
		if strings.Contains(line, "leader election lost") || strings.Contains(line, "context canceled") || strings.Contains(line, "very short watch") {
			continue
		}
		if strings.Contains(line, `"level":"error"`) || strings.Contains(line, "forbidden") || strings.Contains(line, "Warning:") {
			f.Errorf("the operator logged: %s", line)
		}
	}
}

func TestPolicyThatNoLongerSelectsPodLeavesItAlone(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	left, taken := f.newPod("left"), f.newPod("taken", func(p *corev1.Pod) { p.Labels = map[string]string{"team": "web"} })
	f.untilCounts(policy, counts{matched: 2, waiting: 2})
	policy.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}}
	f.update(policy)
	f.untilCounts(policy, counts{matched: 1, waiting: 1})
	f.change(left, podtest.MainDone)
	f.change(taken, podtest.MainDone)
	f.until(taken, "its phase is written", phaseWritten)
	f.untouched(left)
}

func TestKruiseIsRemovedAndReinstalled(t *testing.T) {
	f := newFixture(t)
	k := newKruise(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect), func(spec *v1alpha1.PolicySpec) {
		spec.Fallback = v1alpha1.FallbackDisabled
	})
	for i := range 2 {
		pod := f.newPod(fmt.Sprintf("job-%d", i), podtest.MainDone)
		f.untilCounts(policy, counts{matched: 1, stuck: 1, terminated: i})
		k.Install(t)
		testenv.Eventually(t, "a request is made", func(ctx context.Context) error {
			if requests := f.crrs(); len(requests) != 1 || requests[0].Spec.PodName != pod.Name {
				return fmt.Errorf("there are %d requests", len(requests))
			}
			return nil
		})
		f.untilCounts(policy, counts{matched: 1, terminating: 1, terminated: i})
		f.change(pod, podtest.SidecarDone, podtest.Succeeded)
		f.untilCounts(policy, counts{terminated: i + 1})
		f.remove(pod)
		k.Remove(t)
	}
}

// A pod with a terminal phase has left the cache of unfinished pods.
func TestPodInTeardownIsEnqueuedOnChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		fallback      v1alpha1.Fallback
		withoutKruise bool
		change        func(*fixture, *testenv.Kruise, *v1alpha1.SidecarTerminationPolicy)
	}{
		"its policy changes": {
			fallback: v1alpha1.FallbackDisabled,
			change: func(f *fixture, _ *testenv.Kruise, policy *v1alpha1.SidecarTerminationPolicy) {
				f.reload(policy)
				policy.Spec.Fallback = v1alpha1.FallbackEnabled
				f.update(policy)
			},
		},
		"Kruise comes": {
			fallback: v1alpha1.FallbackEnabled, withoutKruise: true,
			change: func(f *fixture, k *testenv.Kruise, _ *v1alpha1.SidecarTerminationPolicy) { k.Install(f.T) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			k := newKruise(t)
			if !tc.withoutKruise {
				k.Install(t)
			}
			f.startOperator(testOptions())
			policy := f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""), func(spec *v1alpha1.PolicySpec) {
				spec.Fallback, spec.TerminationDeadlineSeconds = tc.fallback, ptr.To[int32](3)
			})
			pod := f.newPod("job-1", podtest.MainDone, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1) })
			f.until(pod, "its phase is written", phaseWritten)
			// The kubelet has seen the phase and ends nothing.
			f.change(pod, func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"})
			})
			f.untilCounts(policy, counts{matched: 1, stuck: 1})
			tc.change(f, k, policy)
			f.untilCRRs(1)
		})
	}
}

func TestFinishedCRREnqueuesPod(t *testing.T) {
	f := newFixture(t)
	newKruise(t).Install(t)
	f.startOperator(testOptions())
	f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect))
	pod := f.newPod("job-1", podtest.MainDone)
	f.untilCRRs(1)
	// OpenKruise gives up because its daemon has not answered. The pod itself does not change. The operator waits some seconds for the pod's
	// status to follow, which have passed here.
	request := f.crrs()[0]
	request.Status.Phase, request.Status.Message = "Completed", "daemon has not responded for a long time"
	request.Status.CompletionTime = ptr.To(metav1.NewTime(time.Now().Add(-time.Minute)))
	if err := f.Status().Update(t.Context(), &request); err != nil {
		t.Fatal(err)
	}
	f.until(pod, "the next mode follows", imageSwapped)
}

func TestClusterPolicyFollowsNamespaceLabels(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"mesh": "on"}}
	f.create(policy)
	first := f.newPod("first", podtest.MainDone)
	f.untilCounts(policy, counts{})

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	label := func(labels map[string]string) {
		f.reload(namespace)
		namespace.Labels = labels
		f.update(namespace)
	}
	label(map[string]string{"mesh": "on"})
	f.until(first, "its phase is written", phaseWritten)
	second := f.newPod("second")
	f.untilStatus(policy, "second waits", func(s v1alpha1.PolicyStatus) bool { return s.WaitingPods == 1 })
	label(nil)
	f.untilStatus(policy, "second is nobody's", func(s v1alpha1.PolicyStatus) bool { return s.MatchedPods-s.TerminatingPods == 0 })
	f.change(second, podtest.MainDone)
	third := f.newPod("third", podtest.MainDone)
	label(map[string]string{"mesh": "on"})
	f.until(second, "its phase is written", phaseWritten)
	f.until(third, "its phase is written", phaseWritten)
}

func TestStatusCountsPods(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	status := f.untilCounts(policy, counts{})
	if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue || ready.Reason != string(v1alpha1.ReasonNoPodsMatched) {
		t.Errorf("Ready is %+v", ready)
	}
	pod := f.newPod("job-1")
	f.newPod("always", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways })
	f.newPod("unrelated", func(p *corev1.Pod) { p.Spec.Containers[1].Name = "other" })
	f.untilCounts(policy, counts{matched: 1, waiting: 1})
	f.newPod("alone", func(p *corev1.Pod) {
		p.Spec.Containers, p.Status.ContainerStatuses = p.Spec.Containers[1:], p.Status.ContainerStatuses[1:]
	})
	status = f.untilCounts(policy, counts{matched: 2, waiting: 1, stuck: 1})
	if degraded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded); degraded == nil || degraded.Reason != string(v1alpha1.ReasonNoMainContainer) {
		t.Errorf("Degraded is %+v", degraded)
	}
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("a stuck pod makes the policy not ready: %+v", status.Conditions)
	}
	f.change(pod, podtest.MainDone)
	f.until(pod, "its phase is written", phaseWritten)
	f.untilCounts(policy, counts{matched: 2, terminating: 1, stuck: 1})
	f.change(pod, podtest.SidecarDone)
	status = f.untilCounts(policy, counts{matched: 1, stuck: 1, terminated: 1})
	if len(status.Recent) != 1 || status.Recent[0].Pod != "job-1" || status.Recent[0].Outcome != v1alpha1.OutcomeTerminated || status.LastTerminationTime == nil {
		t.Errorf("recent is %+v, last %v", status.Recent, status.LastTerminationTime)
	}
	// Users may touch a retained pod any number of times.
	f.reload(pod)
	pod.Labels["touched"] = "yes"
	f.update(pod)
	second := f.newPod("job-2", podtest.MainDone)
	f.until(second, "its phase is written", phaseWritten)
	f.change(second, podtest.SidecarDone)
	f.untilCounts(policy, counts{matched: 1, stuck: 1, terminated: 2})
	f.nothingWentWrong()
}

func TestOperatorRestartCountsNothingTwice(t *testing.T) {
	f := newFixture(t)
	stop := f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	done, open := f.newPod("done", podtest.MainDone), f.newPod("open")
	f.until(done, "its phase is written", phaseWritten)
	f.change(done, podtest.SidecarDone)
	f.untilCounts(policy, counts{matched: 1, waiting: 1, terminated: 1})
	stop()
	f.startOperator(testOptions())
	f.reload(done)
	done.Labels["touched"] = "yes"
	f.update(done)
	f.change(open, podtest.MainDone)
	f.until(open, "its phase is written", phaseWritten)
	f.change(open, podtest.SidecarDone)
	f.untilCounts(policy, counts{terminated: 2})
	if got, err := f.eventsOn(t.Context(), done); err != nil || len(got) != 1 {
		t.Errorf("events %q, error %v", got, err)
	}
}

func TestRestartDuringAttemptKeepsMode(t *testing.T) {
	f := newFixture(t)
	k := newKruise(t)
	k.Install(t)
	stop := f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeAuto, v1alpha1.ExitCodesRespect))
	pod := f.newPod("job-1", podtest.MainDone)
	f.untilCRRs(1)
	f.untilCounts(policy, counts{matched: 1, terminating: 1})
	stop()
	before := f.writes.in(f.namespace)
	f.startOperator(testOptions())
	// Once the operator has handled a pod that is new to it, its start is over.
	f.newPod("job-2", podtest.MainDone)
	f.untilCRRs(2)
	f.change(pod, func(p *corev1.Pod) { p.Status.Message = "changed" })
	f.untilCounts(policy, counts{matched: 2, terminating: 2})
	f.untouched(pod)
	after := slices.DeleteFunc(f.writes.in(f.namespace)[len(before):], func(w string) bool { return strings.HasPrefix(w, "PUT") })
	if diff := cmp.Diff([]string{"POST containerrecreaterequests"}, after); diff != "" {
		t.Errorf("writes after the restart (-want +got):\n%s", diff)
	}
}

func TestLiveCRRIsKnownWithoutWebhook(t *testing.T) {
	f := newFixture(t)
	k := newKruise(t)
	k.Install(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeAuto, v1alpha1.ExitCodesRespect))
	pod := f.newPod("job-1", podtest.MainDone)
	f.untilCounts(policy, counts{matched: 1, terminating: 1})
	f.untilCRRs(1)
	k.RemoveWebhook(t)
	testenv.Eventually(t, "the operator misses the webhook", func(context.Context) error { return logged(`"available":false`, 1) })
	f.change(pod, func(p *corev1.Pod) { p.Status.Message = "changed" })
	f.until(f.newPod("job-2", podtest.MainDone), "it does without Kruise", imageSwapped)
	f.untouched(pod)
}

func TestStatusWritesAreLimited(t *testing.T) {
	f := newFixture(t)
	options := testOptions()
	options.StatusPeriod = 2 * time.Second
	f.startOperator(options)
	policy := f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	f.untilCounts(policy, counts{})
	started := time.Now()
	const pods = 15
	for i := range pods {
		f.newPod(fmt.Sprintf("job-%d", i))
	}
	f.untilCounts(policy, counts{matched: pods, waiting: pods})
	allowed := 2 + int(time.Since(started)/options.StatusPeriod)
	written := func() int {
		return len(slices.DeleteFunc(f.writes.in(f.namespace), func(w string) bool { return !strings.HasPrefix(w, "PUT sidecarterminationpolicies") }))
	}
	if got := written(); got > allowed {
		t.Errorf("%d writes of the status of one policy, want %d at most: %q", got, allowed, f.writes.in(f.namespace))
	}

	// Changes of pods that change no count, followed by another policy whose status is written last.
	before := written()
	for i := range pods {
		f.change(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: fmt.Sprintf("job-%d", i)}},
			func(p *corev1.Pod) { p.Status.Message = "changed" })
	}
	f.untilCounts(f.newPolicy("other", func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "none" }), counts{})
	f.reload(policy)
	if got := written(); got != before+1 {
		t.Errorf("%d writes, want the one of the other policy", got-before)
	}
}

func TestOverriddenPolicyReportsIt(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	first := f.newPolicy("first")
	pod := f.newPod("job-1")
	f.untilCounts(first, counts{matched: 1, waiting: 1})
	higher := f.newPolicy("higher", func(spec *v1alpha1.PolicySpec) { spec.Priority = 1 })
	overridden := func(s v1alpha1.PolicyStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionOverridden)
	}
	f.untilStatus(first, "is overridden", overridden)
	f.untilCounts(higher, counts{matched: 1, waiting: 1})
	f.remove(higher)
	f.untilStatus(first, "is no longer overridden", func(s v1alpha1.PolicyStatus) bool { return !overridden(s) })
	f.reload(pod)
	pod.Labels = map[string]string{"team": "web"}
	f.update(pod)
}

func TestEventOnPodIsEmittedOnce(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	pod := f.newPod("job-1", podtest.MainDone)
	f.until(pod, "its phase is written", phaseWritten)
	f.untilEvent(pod)
	f.change(pod, podtest.SidecarDone)
	// The event of a later pod is the last one.
	second := f.newPod("job-2", podtest.MainDone)
	f.untilEvent(second)
	got, err := f.eventsOn(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Normal Terminating SidecarTerminationPolicy/mesh"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	f.nothingWentWrong()
}

func TestInvalidPolicyIsStalledUntilFixed(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "broken"}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	policy.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Near", Values: []string{"etl"}}}
	f.create(policy)
	stalled := func(s v1alpha1.PolicyStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled) && meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionReady)
	}
	f.untilStatus(policy, "is stalled", stalled)
	pod := f.newPod("job-1", podtest.MainDone)
	policy.Spec.PodSelector.MatchExpressions[0].Operator = metav1.LabelSelectorOpIn
	f.update(policy)
	f.until(pod, "its phase is written", phaseWritten)
	f.untilStatus(policy, "is ready", func(s v1alpha1.PolicyStatus) bool {
		return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled) == nil && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	})
}

func TestImageCoverageChangeEnqueuesPods(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("own-image", func(spec *v1alpha1.PolicySpec) {
		spec.Mode, spec.Fallback, spec.Image = v1alpha1.ModeImage, v1alpha1.FallbackDisabled, quickExit
	})
	pod := f.newPod("job-1", func(p *corev1.Pod) {
		p.Spec.Containers[1].Command = []string{"/app/server", "--listen"}
	}, podtest.MainDone)
	because := func(kind string, reason v1alpha1.Reason) func(v1alpha1.PolicyStatus) bool {
		return func(s v1alpha1.PolicyStatus) bool {
			condition := meta.FindStatusCondition(s.Conditions, kind)
			return condition != nil && condition.Reason == string(reason)
		}
	}
	f.untilStatus(policy, "the pod is stuck", because(v1alpha1.ConditionDegraded, v1alpha1.ReasonCommandNotCovered))
	f.untouched(pod)
	before := policy.DeepCopy()
	policy.Spec.QuickExitPaths = []v1alpha1.QuickExitPath{"/app/server"}
	if err := f.Patch(t.Context(), policy, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	f.until(pod, "its image is swapped", imageSwapped)
	f.untilStatus(policy, "is ready", func(s v1alpha1.PolicyStatus) bool {
		return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDegraded) == nil && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)
	})
	f.nothingWentWrong()
}

func TestInvalidAnnotationDoesNotHideOtherPods(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: f.namespace}}
	f.create(policy)
	f.newPod("invalid", func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationImageSwap: "null"} })
	f.newPod("job-1")
	status := f.untilCounts(policy, counts{matched: 2, waiting: 1, stuck: 1})
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("somebody's pod makes a cluster policy not ready: %+v", status.Conditions)
	}
	if degraded := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDegraded); degraded == nil ||
		degraded.Reason != string(v1alpha1.ReasonInvalidAnnotation) || !strings.HasPrefix(degraded.Message, "1 pod is stuck: "+f.namespace+"/invalid: ") {
		t.Errorf("Degraded is %+v", degraded)
	}
}

func TestLeaseIsReleasedOnStop(t *testing.T) {
	f := newFixture(t)
	const lease = settings.LeaseName
	elect := func(o *manager.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, lease, systemNamespace
		o.LeaderElectionReleaseOnCancel = true
	}
	watching, err := client.NewWithWatch(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	holder := func(ctx context.Context) (string, error) {
		object := &coordinationv1.Lease{}
		err := f.Get(ctx, types.NamespacedName{Namespace: systemNamespace, Name: lease}, object)
		return ptr.Deref(object.Spec.HolderIdentity, ""), err
	}
	stop := f.startOperator(testOptions(), elect)
	f.untilCounts(f.newPolicy("mesh"), counts{})
	first, err := holder(t.Context())
	if first == "" || err != nil {
		t.Fatalf("the lease is held by %q, error %v", first, err)
	}
	leases, err := watching.Watch(t.Context(), &coordinationv1.LeaseList{}, client.InNamespace(systemNamespace))
	if err != nil {
		t.Fatal(err)
	}
	defer leases.Stop()
	second := f.startOperator(testOptions(), elect)
	stop()
	f.until(f.newPod("job-1", podtest.MainDone), "its phase is written", phaseWritten)
	// The next replica need not wait for the lease to expire.
	var holders []string
	for event := range leases.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok {
			t.Fatalf("the watch says %+v", event)
		}
		holders = slices.Compact(append(holders, ptr.Deref(lease.Spec.HolderIdentity, "")))
		if last := holders[len(holders)-1]; last != "" && last != first {
			break
		}
	}
	if len(holders) != 3 || holders[0] != first || holders[1] != "" {
		t.Errorf("the lease was held by %q in turn", holders)
	}
	second()
	if name, err := holder(t.Context()); name != "" || err != nil {
		t.Errorf("the lease is held by %q, error %v", name, err)
	}
	f.nothingWentWrong()
}

func TestReplicaLeadsAfterKruiseWasRemoved(t *testing.T) {
	f := newFixture(t)
	k := newKruise(t)
	k.Install(t)
	elect := func(o *manager.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, settings.LeaseName, systemNamespace
		o.LeaderElectionReleaseOnCancel = true
	}
	stop := f.startOperator(testOptions(), elect)
	f.untilCounts(f.newPolicy("mesh"), counts{})
	f.startOperator(testOptions(), elect)
	testenv.Eventually(t, "both replicas have found Kruise", func(context.Context) error {
		return logged(`"kind":"ContainerRecreateRequest","available":true`, 2)
	})
	k.Remove(t)
	testenv.Eventually(t, "both replicas miss Kruise", func(context.Context) error {
		return logged(`"kind":"ContainerRecreateRequest","available":false`, 2)
	})
	stop()
	f.until(f.newPod("job-1", podtest.MainDone), "its phase is written", phaseWritten)
}

// logged reports whether the operator has logged the text that many times.
func logged(text string, times int) error {
	operatorLog.mu.Lock()
	defer operatorLog.mu.Unlock()
	if got := strings.Count(operatorLog.text.String(), text); got != times {
		return fmt.Errorf("%s was logged %d times", text, got)
	}
	return nil
}

func TestOperatorLeaksNoGoroutines(t *testing.T) {
	f := newFixture(t)
	newKruise(t).Install(t)
	stop := f.startOperator(testOptions())
	f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect))
	f.newPod("job-1", podtest.MainDone)
	f.untilCRRs(1)
	stop()
	testenv.Eventually(t, "the reconcilers, the caches and the search for Kruise have ended", func(context.Context) error {
		var stacks bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
			return err
		}
		for _, function := range []string{"crr.(*Availability)", "controllers.(*PodReconciler)", "cache/internal.(*Informers)", "cache.(*Reflector)"} {
			if strings.Contains(stacks.String(), function) {
				return fmt.Errorf("%s is running:\n%s", function, &stacks)
			}
		}
		return nil
	})
}
