// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/podtest"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// lateWatches delay watches of a resource for as long as a test wants.
type lateWatches struct {
	mu   sync.Mutex
	held map[string]*heldWatch
}

// heldWatch delays the watches of one resource.
type heldWatch struct {
	over chan struct{}
	lost bool // whether to close the connections then; read after over is closed
}

// hold delays the watches of the resources. The returned function delivers the delayed events, or closes the connections.
func (l *lateWatches) hold(resources ...string) (end func(lost bool)) {
	wait := &heldWatch{over: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*heldWatch{}
	}
	for _, resource := range resources {
		l.held[resource] = wait
	}
	return func(lost bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, resource := range resources {
			delete(l.held, resource)
		}
		wait.lost = lost
		close(wait.over)
	}
}

func (l *lateWatches) of(resource string) *heldWatch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[resource]
}

func (l *lateWatches) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && isWatch(r) {
			response.Body = lateBody{response.Body, r.Context(), l, callOf(r).Resource}
		}
		return response, err
	})
}

// lateBody is the body of a delayed watch.
type lateBody struct {
	io.ReadCloser
	ctx      context.Context
	late     *lateWatches
	resource string
}

func (b lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	wait := b.late.of(b.resource)
	if wait == nil {
		return n, err
	}
	select {
	case <-wait.over:
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
	if wait.lost {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// lately runs the test twice: with delayed events and with closed connections.
func lately(t *testing.T, test func(f *fixture, lost bool)) {
	t.Helper()
	newKruise(t).Install(t)
	for name, lost := range map[string]bool{"delivered late": false, "lost with the connection": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.startOperator(testOptions())
			test(f, lost)
			f.nothingWentWrong()
		})
	}
}

// untilWrites waits until the operator has tried the write at least that many times.
func (f *fixture) untilWrites(write string, times int) {
	f.Helper()
	testenv.Eventually(f.T, write, func(context.Context) error {
		all := f.writes.in(f.namespace)
		if got := len(slices.DeleteFunc(slices.Clone(all), func(w string) bool { return w != write })); got < times {
			return fmt.Errorf("%d times in %q", got, all)
		}
		return nil
	})
}

func TestStalePodIsNotTerminated(t *testing.T) {
	lately(t, func(f *fixture, lost bool) {
		seen := f.newPolicy("seen", mode(v1alpha1.ModePodPhase, ""), func(spec *v1alpha1.PolicySpec) { spec.Enforcement = v1alpha1.EnforcementDryRun })
		pod := f.newPod("job-1", podtest.MainDone)
		f.untilStatus(seen, "the pod is known", func(s v1alpha1.PolicyStatus) bool { return s.DryRunPods == 1 })
		end := f.late.hold("pods")
		f.change(pod, func(p *corev1.Pod) { p.Status.Message = "changed" })
		policy := f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
		f.untilWrites("PATCH pods/status", 1)
		f.untouched(pod)
		end(lost)
		f.until(pod, "its phase is written", phaseWritten)
		f.change(pod, podtest.SidecarDone)
		f.untilStatus(policy, "it is counted", func(s v1alpha1.PolicyStatus) bool { return s.TerminatedPods == 1 && s.MatchedPods == 0 })
	})
}

func TestPodThatReusesANameIsLeftAlone(t *testing.T) {
	lately(t, func(f *fixture, lost bool) {
		policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect))
		pod := f.newPod("job-1", podtest.MainDone)
		f.untilCRRs(1)
		f.untilCounts(policy, counts{matched: 1, terminating: 1})
		end := f.late.hold("pods")
		f.change(pod, podtest.SidecarDone, podtest.Succeeded)
		f.remove(pod)
		again := f.newPod("job-1")
		// The operator acts on the stale pod.
		policy.Spec.Priority = 1
		f.update(policy)
		f.untilCounts(policy, counts{matched: 1, terminating: 1})
		end(lost)
		f.untilCounts(policy, counts{matched: 1, waiting: 1, terminated: 1})
		f.untilCRRs(1)
		f.untouched(again)
		f.change(again, podtest.MainDone)
		f.untilCRRs(2)
	})
}

func TestPolicyWatchIsLate(t *testing.T) {
	lately(t, func(f *fixture, lost bool) {
		old := f.newPolicy("old", mode(v1alpha1.ModePodPhase, ""))
		f.untilCounts(old, counts{})
		end := f.late.hold("sidecarterminationpolicies")
		f.newPolicy("new", mode(v1alpha1.ModeImage, ""), func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "logger" })
		f.remove(old)
		logger := func(p *corev1.Pod) {
			p.Spec.Containers[1].Name, p.Status.ContainerStatuses[1] = "logger", podtest.Running("logger")
		}
		byNew := f.newPod("by-new", logger, podtest.MainDone)
		// The operator uses the policies of its stale cache.
		byOld := f.newPod("by-old", podtest.MainDone)
		f.until(byOld, "its phase is written", phaseWritten)
		f.untouched(byNew)
		end(lost)
		f.until(byNew, "its image is swapped", imageSwapped)
		later := f.newPod("later", podtest.MainDone)
		f.until(f.newPod("after", logger, podtest.MainDone), "its image is swapped", imageSwapped)
		f.untouched(later)
		f.untouched(byOld)
	})
}

func TestCRRWatchIsLate(t *testing.T) {
	lately(t, func(f *fixture, lost bool) {
		f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect))
		// The cache of CRRs is synced.
		f.newPod("first", podtest.MainDone)
		f.untilCRRs(1)
		end := f.late.hold("containerrecreaterequests")
		pod := f.newPod("job-1", podtest.MainDone)
		f.untilCRRs(2)
		f.change(pod, func(p *corev1.Pod) { p.Status.Message = "changed" })
		// The operator does not see its own CRR and creates the same one again.
		f.untilWrites("POST containerrecreaterequests", 3)
		f.untilCRRs(2)
		i := slices.IndexFunc(f.crrs(), func(r kruise.ContainerRecreateRequest) bool { return r.Spec.PodName == pod.Name })
		request := f.crrs()[i]
		request.Status.Phase, request.Status.Message = "Completed", "daemon has not responded for a long time"
		request.Status.CompletionTime = ptr.To(metav1.NewTime(time.Now().Add(-time.Minute)))
		if err := f.Status().Update(f.Context(), &request); err != nil {
			f.Fatal(err)
		}
		f.untouched(pod)
		end(lost)
		f.until(pod, "the next mode follows", imageSwapped)
		f.untilCRRs(2)
	})
}

func TestPodIsRelabelled(t *testing.T) {
	newKruise(t).Install(t)
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect), func(spec *v1alpha1.PolicySpec) {
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
	f.untilCRRs(1)
	f.untouched(pod)
	f.change(pod, podtest.SidecarDone, podtest.Succeeded)
	f.untilCounts(policy, counts{terminated: 1})
	f.nothingWentWrong()
}

func TestNamespaceIsDeletedWhileOperatorRuns(t *testing.T) {
	newKruise(t).Install(t)
	f := newFixture(t)
	f.startOperator(testOptions())
	policy := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect), withPrePull)
	pod := f.newPod("job-1")
	f.untilCounts(policy, counts{matched: 1, waiting: 1})
	f.remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}})
	f.change(pod, podtest.MainDone)
	f.until(pod, "the next mode follows, which creates nothing", imageSwapped)
	// The namespace's objects are deleted in any order. The operator continues with other namespaces.
	f.remove(policy)
	f.remove(pod)
	f.empty()
	elsewhere := newFixture(t)
	next := elsewhere.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	elsewhere.until(elsewhere.newPod("job-1", podtest.MainDone), "its phase is written", phaseWritten)
	elsewhere.untilCounts(next, counts{matched: 1, terminating: 1})
	for line := range strings.Lines(operatorLog.take()) {
		if strings.Contains(line, `"level":"error"`) {
			t.Error(line)
		}
	}
}
