// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func succeeded(pod *corev1.Pod) bool    { return pod.Status.Phase == corev1.PodSucceeded }
func imageSwapped(pod *corev1.Pod) bool { return slices.Contains(images(pod), quickExit) }

// untilStatus waits until the check passes for the policy's status, and returns the status.
func (f *fixture) untilStatus(policy v1alpha1.Policy, what string, check func(v1alpha1.PolicyStatus) bool) v1alpha1.PolicyStatus {
	f.Helper()
	_, status := policy.Parts()
	testenv.Eventually(f.T, policy.GetName()+": "+what, func(ctx context.Context) error {
		if err := f.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		if status.ObservedGeneration != policy.GetGeneration() || !check(*status) {
			return fmt.Errorf("status of generation %d: %+v", policy.GetGeneration(), *status)
		}
		return nil
	})
	return *status
}

// counts are the columns of a policy's status.
type counts struct{ matched, waiting, terminating, stuck, terminated int }

func (f *fixture) untilCounts(policy v1alpha1.Policy, want counts) v1alpha1.PolicyStatus {
	f.Helper()
	return f.untilStatus(policy, fmt.Sprintf("counts %+v", want), func(s v1alpha1.PolicyStatus) bool {
		return want == counts{int(s.MatchedPods), int(s.WaitingPods), int(s.TerminatingPods), int(s.StuckPods), int(s.TerminatedPods)}
	})
}

// untilOneCRR waits for one ContainerRecreateRequest.
func (f *fixture) untilOneCRR() {
	f.Helper()
	testenv.Eventually(f.T, "there is a request", func(context.Context) error {
		if got := len(f.crrs()); got != 1 {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// untilEvent waits for an event of the operator on the pod.
func (f *fixture) untilEvent(pod *corev1.Pod) {
	f.Helper()
	testenv.Eventually(f.T, pod.Name+": there is an event", func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := f.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(event eventsv1.Event) bool {
			return event.Regarding.UID == pod.UID && event.ReportingController == settings.Name
		}) {
			return errors.New("there is none")
		}
		return nil
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

// logged reports whether the operator has logged the text that many times.
func logged(text string, times int) error {
	operatorLog.mu.Lock()
	defer operatorLog.mu.Unlock()
	if got := strings.Count(operatorLog.text.String(), text); got != times {
		return fmt.Errorf("%s was logged %d times", text, got)
	}
	return nil
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
	f.until(taken, "its phase is Succeeded", succeeded)
	f.untouched(left)
}

// OpenKruise comes and goes while the operator runs. Caches of its kinds are opened each time, and closed when it goes.
func TestOperatorFollowsKruise(t *testing.T) {
	f := newFixture(t)
	k := newKruise(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyRespect), func(spec *v1alpha1.PolicySpec) {
		spec.Fallback = v1alpha1.FallbackDisabled
	})
	pulling := f.newPolicy("pulling", withPrePull, func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "none" })
	comeAndGo := func(round int) {
		f.wantPrePulled(pulling, "False PrePullUnavailable OpenKruise does not serve ImagePullJobs")
		pod := f.newPod(fmt.Sprintf("job-%d", round), podtest.MainDone)
		f.untilCounts(policy, counts{matched: 1, stuck: 1, terminated: round})
		k.Install(t)
		f.untilOneCRR()
		f.untilCounts(policy, counts{matched: 1, terminating: 1, terminated: round})
		f.wantPrePulled(pulling, "False PrePulling")
		f.pulled(1, 1)
		f.wantPrePulled(pulling, "True PrePulled")
		f.change(pod, podtest.SidecarDone, podtest.Succeeded)
		f.untilCounts(policy, counts{terminated: round + 1})
		k.Remove(t)
	}
	comeAndGo(0)
	f.wantPrePulled(pulling, "False PrePullUnavailable")
	open, before := f.watches.open.Load(), goleak.IgnoreCurrent()
	for round := range 2 {
		comeAndGo(round + 1)
	}
	testenv.Eventually(t, "there is no more than there was", func(context.Context) error {
		if now := f.watches.open.Load(); now > open {
			return fmt.Errorf("%d watches were open, and %d are now", open, now)
		}
		return goleak.Find(append(notOurs(), before)...)
	})
}

func TestFinishedCRREnqueuesPod(t *testing.T) {
	f := newFixture(t)
	newKruise(t).Install(t)
	f.startOperator(testOptions())
	f.newPolicy("mesh", mode(v1alpha1.ModeCRR, ""))
	pod := f.newPod("job-1", podtest.MainDone)
	f.untilOneCRR()
	// OpenKruise gives up because its daemon has not answered. The pod itself does not change. The operator waits some seconds for the pod's
	// status to follow, which have passed here.
	request := f.crrs()[0]
	request.Status.Phase, request.Status.Message = "Completed", "daemon has not responded for a long time"
	request.Status.CompletionTime = ptr.To(metav1.NewTime(time.Now().Add(-time.Minute)))
	if err := f.Status().Update(t.Context(), &request); err != nil {
		t.Fatal(err)
	}
	f.until(pod, "the next mode follows", succeeded)
}

func TestClusterPolicyFollowsNamespaceLabels(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newClusterPolicy(func(spec *v1alpha1.ClusterSidecarTerminationPolicySpec) {
		spec.NamespaceSelector.MatchLabels["mesh"] = "on"
	})
	first := f.newPod("first", podtest.MainDone)
	f.untilCounts(policy, counts{})
	f.labelNamespace("mesh", "on")
	f.until(first, "its phase is Succeeded", succeeded)
	second := f.newPod("second")
	f.untilStatus(policy, "second waits", func(s v1alpha1.PolicyStatus) bool { return s.WaitingPods == 1 })
	f.labelNamespace("mesh", "off")
	f.untilStatus(policy, "second is nobody's", func(s v1alpha1.PolicyStatus) bool { return s.MatchedPods == 0 })
	f.change(second, podtest.MainDone)
	third := f.newPod("third", podtest.MainDone)
	f.labelNamespace("mesh", "on")
	f.until(second, "its phase is Succeeded", succeeded)
	f.until(third, "its phase is Succeeded", succeeded)
}

func TestStatusCountsPods(t *testing.T) {
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	status := f.untilCounts(policy, counts{})
	if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue || ready.Reason != string(v1alpha1.ReasonIdle) {
		t.Errorf("Ready is %+v", ready)
	}
	pod := f.newPod("job-1", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1) })
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
	f.until(pod, "is marked", marked)
	f.change(pod, podtest.MainDone)
	f.change(pod, podtest.SidecarDone)
	status = f.untilCounts(policy, counts{matched: 1, stuck: 1, terminated: 1})
	if f.reload(policy); policy.Annotations["example.com/note"] != "kept" {
		t.Errorf("a write of the status took the annotations: %v", policy.Annotations)
	}
	if len(status.RecentTerminations) != 1 || status.RecentTerminations[0].Pod != "job-1" || status.RecentTerminations[0].Outcome != v1alpha1.OutcomeTerminated || status.LastTerminationTime == nil {
		t.Errorf("recent is %+v, last %v", status.RecentTerminations, status.LastTerminationTime)
	}
	f.nothingWentWrong()
}

func TestLiveCRRIsKnownWithoutWebhook(t *testing.T) {
	f := newFixture(t)
	k := newKruise(t)
	k.Install(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh")
	pod := f.newPod("job-1", podtest.MainDone)
	f.untilCounts(policy, counts{matched: 1, terminating: 1})
	f.untilOneCRR()
	f.reload(pod)
	k.RemoveWebhook(t)
	testenv.Eventually(t, "the operator misses the webhook", func(context.Context) error { return logged(`"available":false`, 1) })
	f.change(pod, func(p *corev1.Pod) { p.Status.Message = "changed" })
	f.until(f.newPod("job-2", podtest.MainDone), "it does without Kruise", succeeded)
	f.untouched(pod)
}

func TestPodIsRelabelled(t *testing.T) {
	newKruise(t).Install(t)
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyRespect), func(spec *v1alpha1.PolicySpec) {
		spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl"}}
	})
	pod := f.newPod("job-1", podtest.MainDone)
	f.untilCounts(policy, counts{matched: 1, terminating: 1})
	relabel := func(team string) {
		f.reload(pod)
		pod.Labels = map[string]string{"team": team}
		f.update(pod)
	}
	relabel("web")
	f.untilCounts(policy, counts{})
	relabel("etl")
	f.untilCounts(policy, counts{matched: 1, terminating: 1})
	f.untilOneCRR()
	f.untouched(pod)
	f.change(pod, podtest.SidecarDone, podtest.Succeeded)
	f.untilCounts(policy, counts{terminated: 1})
	f.nothingWentWrong()
}

func TestNamespaceIsDeletedWhileOperatorRuns(t *testing.T) {
	newKruise(t).Install(t)
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, ""), withPrePull)
	pod := f.newPod("job-1")
	f.until(pod, "is marked", marked)
	f.remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}})
	f.change(pod, podtest.MainDone)
	f.until(pod, "the next mode follows, which creates nothing", succeeded)
	// The namespace's objects are deleted in any order. The operator continues with other namespaces.
	f.remove(policy)
	f.remove(pod)
	f.empty()
	elsewhere := newFixture(t)
	next := elsewhere.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	elsewhere.until(elsewhere.newPod("job-1", podtest.MainDone), "its phase is Succeeded", succeeded)
	elsewhere.untilCounts(next, counts{})
	for line := range strings.Lines(operatorLog.take()) {
		if strings.Contains(line, `"level":"error"`) {
			t.Error(line)
		}
	}
}

func TestReplicaLeadsAfterKruiseWasRemoved(t *testing.T) {
	f := newFixture(t)
	k := newKruise(t)
	k.Install(t)
	elect := func(o *manager.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, settings.LeaseName, systemNamespace
		// The next replica need not wait for the lease to expire.
		o.LeaderElectionReleaseOnCancel, o.LeaseDuration = true, ptr.To(time.Hour)
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
	f.until(f.newPod("job-1", podtest.MainDone), "its phase is Succeeded", succeeded)
}

// Rejected events are in the log of the manager, which escapes control characters.
func TestRejectedEventIsLogged(t *testing.T) {
	t.Parallel()
	logged := make(chan string, 100)
	mgr := newFixture(t).newManager(func(options *manager.Options) {
		options.Logger = funcr.New(func(_, text string) { logged <- text }, funcr.Options{})
	})
	recorder, err := newEventRecorder(mgr)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "missing", Name: "import"}
	recorder.Eventf(pod, nil, corev1.EventTypeNormal, string(v1alpha1.ReasonTerminating), "Terminate", "note")
	deadline := time.After(time.Minute)
	for {
		select {
		case text := <-logged:
			if strings.Contains(text, "Server rejected event") {
				return
			}
		case <-deadline:
			t.Fatal("the rejected event is not in the log")
		}
	}
}
