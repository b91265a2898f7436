// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// bench has the reconcilers with running caches, but without controllers.
type bench struct {
	*fixture
	reconcilers
	events *recordedEvents
}

func newBench(t *testing.T, options Options, withKruise *testenv.Kruise) *bench {
	t.Helper()
	f := newFixture(t)
	mgr := f.newManager()
	caches, err := newCaches(t.Context(), mgr, options)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := followKruise(mgr, caches.pods, options, &queues{})
	if err != nil {
		t.Fatal(err)
	}
	if withKruise != nil {
		withKruise.Install(t)
	}
	b := &bench{fixture: f, events: &recordedEvents{}}
	reporter := newReporter(b.events, options.Clock, func(resolve.PolicyRef) {})
	b.reconcilers = newReconcilers(mgr.GetClient(), caches.readers(mgr), kinds, reporter, options)
	f.start(mgr)
	testenv.Eventually(t, "Kruise is known to be there, or not", func(context.Context) error {
		if there := withKruise != nil; kinds.crrs.Available() != there || kinds.pullJobs.Available() != there {
			return errors.New("not yet")
		}
		return nil
	})
	return b
}

// newTimedBench returns a bench without OpenKruise and its clock, which stands still.
func newTimedBench(t *testing.T) (*bench, *clocktesting.FakePassiveClock) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second))
	options := testOptions()
	options.Clock = clock
	return newBench(t, options, nil), clock
}

// caughtUp waits until the caches have the current pod, policies and CRRs.
func (b *bench) caughtUp(pod *corev1.Pod) {
	b.Helper()
	b.reload(pod)
	testenv.Eventually(b.T, "the caches have caught up", func(ctx context.Context) error {
		cached, err := b.pods.reader.pod(ctx, keyOf(pod))
		if err != nil {
			return err
		}
		if cached.ResourceVersion != pod.ResourceVersion {
			return fmt.Errorf("the pod is at version %s and not %s", cached.ResourceVersion, pod.ResourceVersion)
		}
		var known, live v1alpha1.SidecarTerminationPolicyList
		if err := errors.Join(b.pods.reader.cache.List(ctx, &known), b.List(ctx, &live)); err != nil {
			return err
		}
		if diff := cmp.Diff(generations(live), generations(known)); diff != "" {
			return fmt.Errorf("generations of policies (-live +known):\n%s", diff)
		}
		if _, err := observe.Node(ctx, b.pods.reader.cache, cached); err != nil {
			return err
		}
		if !b.pods.reader.crrServed() {
			return nil
		}
		attempts, err := b.pods.terminators[v1alpha1.ModeCRR].Observe(ctx, cached)
		if requests := b.crrs(); err != nil || len(attempts) != len(requests) {
			return fmt.Errorf("%d of %d requests are known: %w", len(attempts), len(requests), err)
		}
		return nil
	})
}

// generations returns the generations of the policies by name.
func generations(policies v1alpha1.SidecarTerminationPolicyList) map[string]int64 {
	all := make(map[string]int64, len(policies.Items))
	for i := range policies.Items {
		policy := &policies.Items[i]
		all[client.ObjectKeyFromObject(policy).String()] = policy.Generation
	}
	return all
}

// reconcile waits for current caches and reconciles the pod. An error ends the test.
func (b *bench) reconcile(pod *corev1.Pod) ctrl.Result {
	b.Helper()
	b.caughtUp(pod)
	return b.reconcileStale(pod)
}

// reconcileStale reconciles the pod with the caches as they are.
func (b *bench) reconcileStale(pod *corev1.Pod) ctrl.Result {
	b.Helper()
	result, err := b.pods.Reconcile(b.Context(), ctrl.Request{NamespacedName: keyOf(pod)})
	if err != nil {
		b.Fatalf("reconcile: %v", err)
	}
	return result
}

// wrote compares the writes so far.
func (b *bench) wrote(want ...string) {
	b.Helper()
	if diff := cmp.Diff(want, b.writes.in(b.namespace)); diff != "" {
		b.Errorf("writes (-want +got):\n%s", diff)
	}
}

func newKruise(t *testing.T) *testenv.Kruise {
	t.Helper()
	admin, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return testenv.NewKruise(t, admin)
}

func TestRespectedExitCodeCreatesOneCRR(t *testing.T) {
	b := newBench(t, testOptions(), newKruise(t))
	b.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect))
	pod := b.newPod("job-1", podtest.MainDone)
	result := b.reconcile(pod)
	b.wrote("POST containerrecreaterequests")
	if result.RequeueAfter != time.Minute {
		t.Errorf("requeued after %s, want the CRR's timeout of a minute", result.RequeueAfter)
	}
	for range 2 {
		b.reconcile(pod)
	}
	b.wrote("POST containerrecreaterequests")

	requests := b.crrs()
	if len(requests) != 1 {
		t.Fatalf("%d requests", len(requests))
	}
	want := kruise.ContainerRecreateRequestSpec{
		PodName: "job-1",
		Containers: []kruise.ContainerRecreateRequestContainer{{
			Name: "proxy", StatusContext: &kruise.ContainerRecreateRequestContainerContext{ContainerID: "containerd://proxy"},
		}},
		Strategy:                &kruise.ContainerRecreateRequestStrategy{FailurePolicy: "Ignore", ForceRecreate: true},
		ActiveDeadlineSeconds:   ptr.To[int64](60),
		TTLSecondsAfterFinished: ptr.To[int32](1800),
	}
	if diff := cmp.Diff(want, requests[0].Spec); diff != "" {
		t.Errorf("spec of the request (-want +got):\n%s", diff)
	}
	if owner := requests[0].OwnerReferences; len(owner) != 1 || owner[0].UID != pod.UID {
		t.Errorf("the request is owned by %v", owner)
	}
	if got := b.events.take(); len(got) != 1 {
		t.Errorf("events: %q", got)
	}
}

func TestSwapChangesSidecarImageOnly(t *testing.T) {
	b := newBench(t, testOptions(), nil)
	b.newPolicy("mesh", mode(v1alpha1.ModeImage, ""))
	pod := b.newPod("job-1", podtest.MainDone)
	b.reconcile(pod)
	b.wrote("PATCH pods")
	result := b.reconcile(pod)
	b.wrote("PATCH pods")
	if result.RequeueAfter <= 0 {
		t.Error("the pod is not requeued at the timeout")
	}
	if diff := cmp.Diff([]string{"main:v1", quickExit}, []string{pod.Spec.Containers[0].Image, pod.Spec.Containers[1].Image}); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	swaps, err := b.pods.terminators[v1alpha1.ModeImage].Observe(t.Context(), pod)
	if err != nil || len(swaps) != 1 {
		t.Errorf("the annotation is read as %v, error %v", swaps, err)
	}
}

func TestPhaseIsOneWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		code int32
		want corev1.PodPhase
	}{"succeeded": {0, corev1.PodSucceeded}, "failed": {3, corev1.PodFailed}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), nil)
			b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
			pod := b.newPod("job-1", func(p *corev1.Pod) {
				p.Status.ContainerStatuses[0] = podtest.Ended("main", tc.code)
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: p.Status.ContainerStatuses[0].State.Terminated.FinishedAt}}
			})
			before := pod.DeepCopy()
			b.reconcile(pod)
			b.wrote("PATCH pods/status")
			b.reconcile(pod)
			b.wrote("PATCH pods/status")
			if pod.Status.Phase != tc.want || pod.Labels[v1alpha1.LabelTerminatedBy] != "PodPhase" || pod.Annotations[v1alpha1.AnnotationPodPhase] == "" {
				t.Errorf("the pod has phase %s, labels %v, annotations %v", pod.Status.Phase, pod.Labels, pod.Annotations)
			}
			var conditions []string
			for _, condition := range pod.Status.Conditions {
				conditions = append(conditions, string(condition.Type)+"="+string(condition.Status))
			}
			if diff := cmp.Diff([]string{"Ready=False", "SidecarTerminated=True"}, conditions, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before.Status.ContainerStatuses, pod.Status.ContainerStatuses); diff != "" {
				t.Errorf("statuses of containers (-before +after):\n%s", diff)
			}
		})
	}
}

func TestReusedPodNameIsNotWritten(t *testing.T) {
	k := newKruise(t)
	k.Install(t)
	for name, tc := range map[string]struct {
		mode      v1alpha1.Mode
		exitCodes v1alpha1.ExitCodes
	}{
		"mode Image":                  {v1alpha1.ModeImage, ""},
		"mode PodPhase":               {v1alpha1.ModePodPhase, ""},
		"mode CRR":                    {v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect},
		"mode CRR, exit code ignored": {v1alpha1.ModeCRR, v1alpha1.ExitCodesIgnore},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, testOptions(), k)
			b.newPolicy("mesh", mode(tc.mode, tc.exitCodes))
			old := b.newPod("job-1", podtest.MainDone)
			b.caughtUp(old)
			b.pods.reader.cache = pinned{b.pods.reader.cache, old.DeepCopy()}
			b.remove(old)
			pod := b.newPod("job-1")
			before := pod.ResourceVersion
			if result := b.reconcileStale(old); result.RequeueAfter == 0 {
				t.Error("the pod is not requeued")
			}
			if b.reload(pod); pod.ResourceVersion != before {
				t.Errorf("the new pod was written: %+v", pod)
			}
			if requests := b.crrs(); len(requests) > 0 {
				t.Errorf("a CRR for it is left: %+v", requests)
			}
		})
	}
}

// Any user who may create CRRs in a namespace knows the name of the operator's next one.
func TestFallbackWhenCRRNameIsTaken(t *testing.T) {
	k := newKruise(t)
	k.Install(t)
	for name, labels := range map[string]map[string]string{
		"without the operator's label": {"team": "etl"},
		"without the pod as its owner": {"app.kubernetes.io/managed-by": settings.Name},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), k)
			b.newPolicy("mesh", mode(v1alpha1.ModeAuto, v1alpha1.ExitCodesRespect))
			pod := b.newPod("job-1", podtest.MainDone)
			b.caughtUp(pod)
			b.create(&kruise.ContainerRecreateRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "sidecar-termination-" + string(pod.UID) + "-0", Labels: labels},
				Spec: kruise.ContainerRecreateRequestSpec{
					PodName: pod.Name, Containers: []kruise.ContainerRecreateRequestContainer{{Name: "proxy"}},
				},
			})
			if result := b.reconcileStale(pod); result.RequeueAfter <= 0 || result.RequeueAfter > denialRetry {
				b.Errorf("requeued after %s, want %s at most", result.RequeueAfter, denialRetry)
			}
			b.wrote("POST containerrecreaterequests", "PATCH pods")
		})
	}
}

func TestInvalidAnnotationIsReported(t *testing.T) {
	byVariable := func(p *corev1.Pod) {
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
	}
	for name, tc := range map[string]struct {
		annotation, record string
		declare            func(*corev1.Pod)
		related            string
	}{
		"a policy names the sidecar": {
			v1alpha1.AnnotationImageSwap, "null", func(*corev1.Pod) {}, " [SidecarTerminationPolicy/mesh]",
		},
		"a variable names it": {v1alpha1.AnnotationImageSwap, "x", byVariable, ""},
		"the record of the phase": {
			v1alpha1.AnnotationPodPhase, `{"mode":"Invented"}`, func(*corev1.Pod) {}, " [SidecarTerminationPolicy/mesh]",
		},
		"a record that is larger than any": {
			v1alpha1.AnnotationPodPhase, "{}" + strings.Repeat(" ", 64<<10), byVariable, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), nil)
			if tc.related != "" {
				b.newPolicy("mesh")
			}
			pod := b.newPod("job-1", podtest.MainDone, tc.declare, func(p *corev1.Pod) { p.Annotations = map[string]string{tc.annotation: tc.record} })
			for range 2 {
				if result := b.reconcile(pod); !result.IsZero() {
					t.Errorf("requeued after %s, although only a change of the pod helps", result.RequeueAfter)
				}
			}
			b.wrote()
			got := b.events.take()
			if len(got) != 1 || !strings.HasPrefix(got[0], "Warning InvalidAnnotation "+b.namespace+"/job-1: ") ||
				!strings.Contains(got[0], tc.annotation) || !strings.HasSuffix(got[0], "the operator leaves the pod alone until then"+tc.related) {
				t.Errorf("events: %q", got)
			}
			delete(pod.Annotations, tc.annotation)
			b.update(pod)
			b.reconcile(pod)
			b.wrote("PATCH pods/status")
		})
	}
}
