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
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// withoutPods is a cache whose watch of pods is behind: it has none.
type withoutPods struct{ client.Reader }

func (w withoutPods) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, ok := object.(*corev1.Pod); ok {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	return w.Reader.Get(ctx, key, object, options...)
}

// withoutAnswers is a client that writes statuses and gets no answer.
type withoutAnswers struct{ client.Client }

func (w withoutAnswers) Status() client.SubResourceWriter {
	return unansweredWriter{w.Client.Status()}
}

type unansweredWriter struct{ client.SubResourceWriter }

func (u unansweredWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	return errors.Join(u.SubResourceWriter.Patch(ctx, object, patch, options...), lost{})
}

// The write of a phase takes the pod out of one cache at once, and the watch that brings it to the other may be interrupted.
func TestAPodIsCountedOnceHoweverLateTheOtherCacheHasIt(t *testing.T) {
	for name, tc := range map[string]struct {
		answerLost bool
		late       []time.Duration // when the pod is looked for, after the write
	}{
		"a moment":                               {false, []time.Duration{0}},
		"a moment, and the answer was lost":      {true, []time.Duration{0}},
		"forty seconds":                          {false, []time.Duration{0, teardownLag, 2 * teardownLag, 4 * teardownLag}},
		"forty seconds, and the answer was lost": {true, []time.Duration{0, teardownLag, 2 * teardownLag, 4 * teardownLag}},
		"so late that it was not looked for":     {false, nil},
		"so late, and the answer was lost":       {true, nil},
		"as late as the server is asked":         {false, []time.Duration{teardownLag}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, clock := newTimedBench(t, nil)
			begun := clock.Now()
			policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
			pod := b.newPod("job-1", mainDone)
			b.caughtUp(pod)
			if tc.answerLost {
				b.pods.terminators[v1alpha1.ModePodPhase] = &podphase.Terminator{Client: withoutAnswers{b.policies.client}, Clock: clock}
			}
			if _, err := b.pods.Reconcile(t.Context(), ctrl.Request{NamespacedName: keyOf(pod)}); (err != nil) != tc.answerLost {
				t.Fatalf("error %v", err)
			}
			b.wrote("PATCH pods/status")
			testenv.Eventually(t, "the pod has left the cache of unfinished pods", func(ctx context.Context) error {
				if err := b.pods.world.cache.Get(ctx, keyOf(pod), &corev1.Pod{}); !apierrors.IsNotFound(err) {
					return errors.Join(errors.New("it is there"), err)
				}
				return nil
			})

			teardown := b.pods.world.teardown
			b.pods.world.teardown = withoutPods{teardown}
			for _, late := range tc.late {
				clock.SetTime(begun.Add(late))
				if result := b.reconcileStale(pod); result.RequeueAfter == 0 {
					t.Errorf("after %s the pod is looked for no more", late)
				}
			}
			b.pods.world.teardown = teardown
			b.reconcile(pod)
			b.change(pod, sidecarDone)
			b.reconcile(pod)
			b.wrote("PATCH pods/status")
			b.counted(policy, 1)
		})
	}
}

func TestAPodThatIsGoneBeforeTheOtherCacheHadItIsCounted(t *testing.T) {
	b, clock := newTimedBench(t, nil)
	policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	pod := b.newPod("job-1", mainDone)
	b.reconcile(pod)
	b.pods.world.cache, b.pods.world.teardown = withoutPods{b.pods.world.cache}, withoutPods{b.pods.world.teardown}
	b.remove(pod)
	clock.SetTime(clock.Now().Add(teardownLag))
	if result := b.reconcileStale(pod); result.RequeueAfter != 0 {
		t.Errorf("it is looked for again after %s", result.RequeueAfter)
	}
	b.counted(policy, 1)
}

// A Job's pod may be retained for days after its end.
func TestAPodWhoseTeardownIsOverIsForgottenThoughItIsRetained(t *testing.T) {
	b, clock := newTimedBench(t, nil)
	policy := b.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	pod := b.newPod("job-1", mainDone)
	b.reconcile(pod)
	b.change(pod, sidecarDone)
	b.reconcile(pod)
	b.counted(policy, 1)

	clock.SetTime(clock.Now().Add(teardownLag))
	testenv.Eventually(t, "the pod has left the caches", func(ctx context.Context) error {
		if _, err := b.pods.world.pod(ctx, keyOf(pod)); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
	if result := b.reconcileStale(pod); result.RequeueAfter != 0 {
		t.Errorf("it is looked for again after %s", result.RequeueAfter)
	}
	if entries, seen := len(b.pods.journal.pods), len(b.pods.sightings.pods); entries != 0 || seen != 0 {
		t.Errorf("%d entries of the journal and %d sightings are kept", entries, seen)
	}
	b.wrote("PATCH pods/status")
	// The cache has the other pod after it was told of the touch.
	b.change(pod, func(p *corev1.Pod) { p.Status.Message = "touched" })
	other := b.newPod("job-2", mainDone)
	b.reconcile(other)
	b.caughtUp(other)
	if _, err := b.pods.world.pod(t.Context(), keyOf(pod)); !apierrors.IsNotFound(err) {
		t.Errorf("a touch has brought it back: %v", err)
	}
	b.counted(policy, 0)
	b.wrote("PATCH pods/status", "PATCH pods/status")
	if b.reload(pod); pod.Labels[v1alpha1.LabelTerminatedBy] == "" {
		t.Error("the label was taken away")
	}

	again := newBench(t, testOptions(), nil)
	var pods corev1.PodList
	if err := again.pods.world.teardown.List(t.Context(), &pods, client.InNamespace(pod.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Name != other.Name {
		t.Errorf("an operator that is started later keeps %d pods, want %s alone", len(pods.Items), other.Name)
	}
}

// counted compares how many pods were counted for the policy and not yet reported.
func (b *bench) counted(policy *v1alpha1.SidecarTerminationPolicy, terminated int64) {
	b.Helper()
	tally := b.pods.journal.take(refOf(policy))
	if tally.Terminated != terminated || tally.Failed != 0 {
		b.Errorf("counted: %+v, want %d", tally, terminated)
	}
}
