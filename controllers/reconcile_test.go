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

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/plan"
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
	return newBenchAs(newFixture(t), asOperator(), options, withKruise)
}

// newBenchAs returns a bench with the permissions of the connection.
func newBenchAs(f *fixture, connection *rest.Config, options Options, withKruise *testenv.Kruise) *bench {
	t := f.T
	t.Helper()
	mgr := f.newManagerAs(connection)
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

// newTimedBench returns a bench and its clock, which stands still.
func newTimedBench(t *testing.T, withKruise *testenv.Kruise) (*bench, *clocktesting.FakePassiveClock) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second))
	options := testOptions()
	options.Clock = clock
	return newBench(t, options, withKruise), clock
}

// caughtUp waits until the caches have the current pod, policies and CRRs.
func (b *bench) caughtUp(pod *corev1.Pod) {
	b.Helper()
	b.reload(pod)
	testenv.Eventually(b.T, "the caches have caught up", func(ctx context.Context) error {
		cached, err := b.pods.reader.pod(ctx, keyOf(pod))
		if plan.HasTerminalPhase(pod) && apierrors.IsNotFound(err) {
			return nil
		}
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

// outcomeOf describes the phase and the marks of a pod, as in "Running proxy PodPhase Succeeded".
func outcomeOf(pod *corev1.Pod) string {
	own := func(annotation string) string {
		return strings.TrimSuffix(pod.Annotations[annotation], "/"+string(pod.UID))
	}
	words := []string{string(pod.Status.Phase)}
	for _, value := range []string{own(v1alpha1.AnnotationIgnoredExitCodes), own(v1alpha1.AnnotationEnd), own(v1alpha1.AnnotationMainContainers)} {
		if value != "" {
			words = append(words, value)
		}
	}
	if _, marked := pod.Labels[v1alpha1.LabelOutcome]; !marked {
		words = append(words, "unmarked")
	}
	return strings.Join(words, " ")
}

// is compares the pod's outcome.
func (b *bench) is(pod *corev1.Pod, want string) {
	b.Helper()
	if b.reload(pod); outcomeOf(pod) != want {
		b.Errorf("pod is %q, want %q", outcomeOf(pod), want)
	}
}

// mainExits ends the main container.
func mainExits(code int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0] = podtest.Ended("main", code) }
}

// sidecarExits ends the sidecar, and with it the pod in the kubelet's view.
func sidecarExits(code int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[1] = podtest.Ended("proxy", code)
		pod.Status.Phase = corev1.PodFailed
	}
}

// Every mode, from a running main container to the end of the pod. Nothing is written twice.
func TestOutcomeOfEachMode(t *testing.T) {
	const (
		auto, crr, image, podPhase = v1alpha1.ModeAuto, v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase
		respect                    = v1alpha1.ExitCodesRespect
		mark, swap, create         = "PATCH pods/status", "PATCH pods", "POST containerrecreaterequests"
	)
	rules := func(i int) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[i].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
			pod.Spec.Containers[i].RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleActionRestart,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}
	}
	onFailure := func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
	type life struct {
		mode      v1alpha1.Mode
		exitCodes v1alpha1.ExitCodes
		change    func(*corev1.Pod)
		drain     time.Duration
		late      bool     // the operator sees the pod after main has ended
		marked    string   // while main runs
		main      int32    // the exit code of main
		done      string   // when main has ended, before the operator has reconciled the pod
		writes    []string // after the first mark
		acted     string   // after these writes
		sidecar   int32    // the exit code of the sidecar
		ended     string
	}
	for withKruise, lives := range map[bool]map[string]life{
		false: {
			"PodPhase": {mode: podPhase, marked: "Running proxy PodPhase Running", done: "Succeeded proxy PodPhase Decided",
				acted: "Succeeded proxy PodPhase Decided", sidecar: 143, ended: "Succeeded proxy PodPhase Decided"},
			"Auto": {mode: auto, change: onFailure, marked: "Running proxy PodPhase Running", done: "Succeeded proxy PodPhase Decided",
				acted: "Succeeded proxy PodPhase Decided", sidecar: 143, ended: "Succeeded proxy PodPhase Decided"},
			"PodPhase, late": {mode: podPhase, late: true, done: "Running unmarked", writes: []string{mark, mark},
				acted: "Succeeded proxy PodPhase Decided", sidecar: 143, ended: "Succeeded proxy PodPhase Decided"},
			"PodPhase, drain": {mode: podPhase, drain: 40 * time.Second, marked: "Running proxy Running", done: "Running proxy Succeeded", writes: []string{mark},
				acted: "Succeeded proxy PodPhase Decided", sidecar: 143, ended: "Succeeded proxy PodPhase Decided"},
			"PodPhase, main fails": {mode: podPhase, marked: "Running proxy PodPhase Running", main: 3, done: "Running proxy PodPhase Running", writes: []string{mark},
				acted: "Failed proxy Failed Running", ended: "Failed proxy Failed Running"},
			"PodPhase, restart rules of main": {mode: podPhase, change: rules(0), marked: "Running proxy PodPhase Running", done: "Running proxy PodPhase Running", writes: []string{mark},
				acted: "Succeeded proxy PodPhase Decided", sidecar: 143, ended: "Succeeded proxy PodPhase Decided"},
			"Image": {mode: image, marked: "Running proxy Running", done: "Running proxy Succeeded", writes: []string{swap},
				acted: "Running proxy Succeeded", ended: "Succeeded proxy Decided"},
			"Image, late": {mode: image, late: true, done: "Running unmarked", writes: []string{mark, swap},
				acted: "Running proxy Succeeded", ended: "Succeeded proxy Decided"},
			"Auto, main fails": {mode: auto, marked: "Running proxy PodPhase Running", main: 3, done: "Running proxy PodPhase Running", writes: []string{swap},
				acted: "Running proxy PodPhase Running", ended: "Failed proxy PodPhase Running"},
		},
		true: {
			"CRR": {mode: crr, marked: "Running proxy Running", done: "Running proxy Succeeded", writes: []string{create},
				acted: "Running proxy Succeeded", sidecar: 143, ended: "Succeeded proxy Decided"},
			"Auto": {mode: auto, marked: "Running proxy Running", done: "Running proxy Succeeded", writes: []string{create},
				acted: "Running proxy Succeeded", sidecar: 7, ended: "Succeeded proxy Decided"},
			"CRR, late": {mode: crr, late: true, done: "Running unmarked", writes: []string{mark, create},
				acted: "Running proxy Succeeded", sidecar: 143, ended: "Succeeded proxy Decided"},
			"CRR, restart rules of the sidecar": {mode: crr, change: rules(1), marked: "Running proxy Running", done: "Running proxy Running", writes: []string{mark, create},
				acted: "Running proxy Succeeded", sidecar: 143, ended: "Succeeded proxy Decided"},
			"CRR, Respect": {mode: crr, exitCodes: respect, marked: "Running unmarked", done: "Running unmarked", writes: []string{create},
				acted: "Running unmarked", sidecar: 7, ended: "Failed unmarked"},
		},
	} {
		t.Run(fmt.Sprintf("OpenKruise %t", withKruise), func(t *testing.T) {
			var kruise *testenv.Kruise
			if withKruise {
				kruise = newKruise(t)
			}
			b, clock := newTimedBench(t, kruise)
			for name, tc := range lives {
				b.run(name, func() {
					b.newPolicy("mesh", mode(tc.mode, tc.exitCodes), func(spec *v1alpha1.PolicySpec) {
						spec.DrainSeconds = ptr.To(int32(tc.drain.Seconds()))
					})
					pod := b.newPod("job-1", tc.change)
					var writes []string
					if !tc.late {
						b.reconcile(pod)
						b.is(pod, tc.marked)
						writes = slices.Clone(b.writes.in(b.namespace))
						if marked := tc.exitCodes != respect; len(writes) > 0 != marked {
							b.Errorf("writes %q, want a mark: %t", writes, marked)
						}
					}
					b.change(pod, mainExits(tc.main))
					b.is(pod, tc.done)
					if tc.drain > 0 {
						if wait := b.reconcile(pod).RequeueAfter; wait != tc.drain {
							b.Errorf("requeued after %s, want %s", wait, tc.drain)
						}
						clock.SetTime(clock.Now().Add(tc.drain))
					}
					for range len(tc.writes) + 2 {
						b.reconcile(pod)
					}
					b.is(pod, tc.acted)
					b.change(pod, sidecarExits(tc.sidecar))
					b.is(pod, tc.ended)
					b.reconcile(pod)
					b.wrote(append(writes, tc.writes...)...)
				})
			}
		})
	}
}

func TestCRRNamesSidecarAndPod(t *testing.T) {
	b := newBench(t, testOptions(), newKruise(t))
	b.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect))
	pod := b.newPod("job-1", podtest.MainDone)
	if result := b.reconcile(pod); result.RequeueAfter != time.Minute {
		t.Errorf("requeued after %s, want the CRR's timeout of a minute", result.RequeueAfter)
	}
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
	b.newPolicy("mesh", mode(v1alpha1.ModeImage, v1alpha1.ExitCodesRespect))
	pod := b.newPod("job-1", podtest.MainDone)
	b.reconcile(pod)
	if result := b.reconcile(pod); result.RequeueAfter <= 0 {
		t.Error("the pod is not requeued at the timeout")
	}
	b.wrote("PATCH pods")
	if diff := cmp.Diff([]string{"main:v1", quickExit}, images(pod)); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	swaps, err := b.pods.terminators[v1alpha1.ModeImage].Observe(t.Context(), pod)
	if err != nil || len(swaps) != 1 {
		t.Errorf("the annotation is read as %v, error %v", swaps, err)
	}
}

func TestReusedPodNameIsNotWritten(t *testing.T) {
	k := newKruise(t)
	k.Install(t)
	for name, tc := range map[string]struct {
		mode      v1alpha1.Mode
		exitCodes v1alpha1.ExitCodes
	}{
		"mark":       {v1alpha1.ModePodPhase, ""},
		"mode Image": {v1alpha1.ModeImage, v1alpha1.ExitCodesRespect},
		"mode CRR":   {v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect},
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
			b.newPolicy("mesh")
			pod := b.newPod("job-1", podtest.MainDone)
			b.reconcile(pod)
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
			b.wrote("PATCH pods/status", "POST containerrecreaterequests", "PATCH pods/status")
		})
	}
}

func TestInvalidAnnotationIsReported(t *testing.T) {
	byVariable := func(p *corev1.Pod) {
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
	}
	for name, tc := range map[string]struct {
		record  string
		declare func(*corev1.Pod)
		related string
	}{
		"sidecar of a policy":   {"null", nil, " [SidecarTerminationPolicy/mesh]"},
		"sidecar of a variable": {"x", byVariable, ""},
		"too long":              {"{}" + strings.Repeat(" ", 64<<10), byVariable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, testOptions(), nil)
			if tc.related != "" {
				b.newPolicy("mesh")
			}
			pod := b.newPod("job-1", podtest.MainDone, tc.declare, func(p *corev1.Pod) {
				p.Annotations = map[string]string{v1alpha1.AnnotationImageSwap: tc.record}
			})
			for range 3 {
				if result := b.reconcile(pod); !result.IsZero() {
					t.Errorf("requeued after %s, although only a change of the pod helps", result.RequeueAfter)
				}
			}
			got := b.events.take()
			if len(got) != 1 || !strings.HasPrefix(got[0], "Warning InvalidAnnotation "+b.namespace+"/job-1: ") ||
				!strings.Contains(got[0], v1alpha1.AnnotationImageSwap) || !strings.HasSuffix(got[0], "the operator leaves the pod alone until then"+tc.related) {
				t.Errorf("events: %q", got)
			}
			b.wrote("PATCH pods/status")
			delete(pod.Annotations, v1alpha1.AnnotationImageSwap)
			b.update(pod)
			b.reconcile(pod)
			b.wrote("PATCH pods/status", "PATCH pods/status")
		})
	}
}
