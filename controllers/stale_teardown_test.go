// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// withoutAnswers is a client whose status writes are applied and fail with a lost answer.
type withoutAnswers struct{ client.Client }

func (w withoutAnswers) Status() client.SubResourceWriter {
	return unansweredWriter{w.Client.Status()}
}

type unansweredWriter struct{ client.SubResourceWriter }

func (u unansweredWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return errors.Join(u.SubResourceWriter.Patch(ctx, object, patch, options...), lost{})
}

// The write of a phase moves the pod from one cache to the other, whose watch may be interrupted.
func TestPodIsCountedOnceDespiteStaleTeardownCache(t *testing.T) {
	for name, tc := range map[string]struct {
		answerLost bool
		late       []time.Duration // delays of reconciles after the write
	}{
		"a moment":                   {false, []time.Duration{0}},
		"a moment, lost answer":      {true, []time.Duration{0}},
		"forty seconds":              {false, []time.Duration{0, podcache.TeardownLag, 2 * podcache.TeardownLag, 4 * podcache.TeardownLag}},
		"forty seconds, lost answer": {true, []time.Duration{0, podcache.TeardownLag, 2 * podcache.TeardownLag, 4 * podcache.TeardownLag}},
		"too late for a reconcile":   {false, nil},
		"too late, lost answer":      {true, nil},
		"until the live read":        {false, []time.Duration{podcache.TeardownLag}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, clock := newTimedBench(t)
			begun := clock.Now()
			policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
			pod := b.newPod("job-1", podtest.MainDone)
			b.caughtUp(pod)
			if tc.answerLost {
				b.pods.terminators[v1alpha1.ModePodPhase] = &podphase.Terminator{Client: withoutAnswers{b.policies.client}, Clock: clock}
			}
			if _, err := b.pods.Reconcile(t.Context(), ctrl.Request{NamespacedName: keyOf(pod)}); (err != nil) != tc.answerLost {
				t.Fatalf("error %v", err)
			}
			b.wrote("PATCH pods/status")
			testenv.Eventually(t, "the pod has left the cache of unfinished pods", func(ctx context.Context) error {
				if err := b.pods.reader.cache.Get(ctx, keyOf(pod), &corev1.Pod{}); !apierrors.IsNotFound(err) {
					return errors.Join(errors.New("it is there"), err)
				}
				return nil
			})

			teardown := b.pods.reader.teardown
			b.pods.reader.teardown = pinned{teardown, nil}
			for _, late := range tc.late {
				clock.SetTime(begun.Add(late))
				if result := b.reconcileStale(pod); result.RequeueAfter == 0 {
					t.Errorf("after %s the pod is not requeued", late)
				}
			}
			b.pods.reader.teardown = teardown
			b.reconcile(pod)
			b.change(pod, podtest.SidecarDone)
			b.reconcile(pod)
			b.wrote("PATCH pods/status")
			b.counted(policy, 1)
		})
	}
}

func TestPodGoneBeforeTeardownCacheSawItIsCounted(t *testing.T) {
	b, clock := newTimedBench(t)
	policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	pod := b.newPod("job-1", podtest.MainDone)
	b.reconcile(pod)
	b.pods.reader.cache, b.pods.reader.teardown = pinned{b.pods.reader.cache, nil}, pinned{b.pods.reader.teardown, nil}
	b.remove(pod)
	clock.SetTime(clock.Now().Add(podcache.TeardownLag))
	if result := b.reconcileStale(pod); result.RequeueAfter != 0 {
		t.Errorf("it is requeued after %s", result.RequeueAfter)
	}
	b.counted(policy, 1)
}

// A Job's finished pod may be retained for days.
func TestRetainedPodIsForgottenAfterTeardown(t *testing.T) {
	b, clock := newTimedBench(t)
	policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	pod := b.newPod("job-1", podtest.MainDone)
	b.reconcile(pod)
	b.change(pod, podtest.SidecarDone)
	b.reconcile(pod)
	b.counted(policy, 1)

	clock.SetTime(clock.Now().Add(podcache.TeardownLag))
	testenv.Eventually(t, "the pod has left the caches", func(ctx context.Context) error {
		if _, err := b.pods.reader.pod(ctx, keyOf(pod)); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
	if result := b.reconcileStale(pod); result.RequeueAfter != 0 {
		t.Errorf("it is requeued after %s", result.RequeueAfter)
	}
	if states := len(b.pods.states.pods); states != 0 {
		t.Errorf("%d pod states are kept", states)
	}
	b.wrote("PATCH pods/status")
	// The cache sees the other pod after the touch.
	b.change(pod, func(p *corev1.Pod) { p.Status.Message = "touched" })
	other := b.newPod("job-2", podtest.MainDone)
	b.reconcile(other)
	b.caughtUp(other)
	if _, err := b.pods.reader.pod(t.Context(), keyOf(pod)); !apierrors.IsNotFound(err) {
		t.Errorf("a touch restored it: %v", err)
	}
	b.counted(policy, 0)
	b.wrote("PATCH pods/status", "PATCH pods/status")
	if b.reload(pod); pod.Labels[v1alpha1.LabelTerminatedBy] == "" {
		t.Error("the label was removed")
	}

	again := newBench(t, testOptions(), nil)
	var pods corev1.PodList
	if err := again.pods.reader.teardown.List(t.Context(), &pods, client.InNamespace(pod.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Name != other.Name {
		t.Errorf("a new operator keeps %d pods, want only %s", len(pods.Items), other.Name)
	}
}

// counted checks the number of terminated pods in the policy's tally.
func (b *bench) counted(policy *v1alpha1.SidecarTerminationPolicy, terminated int64) {
	b.Helper()
	tally := b.policies.reporter.take(refOf(policy))
	if tally.Terminated != terminated || tally.FailedAttempts != 0 {
		b.Errorf("counted: %+v, want %d", tally, terminated)
	}
}
