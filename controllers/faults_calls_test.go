// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

const (
	// inARow is the maximum number of consecutive failures of one kind of call. A failed watch is retried after 0.8 s to 1.6 s, and the
	// delay doubles each time (k8s.io/client-go tools/cache/reflector.go). More failures would exceed the test's timeout.
	inARow = 4
	// A late watch delivers in bursts.
	burstEvery = 2 * time.Second
	burst      = 100 * time.Millisecond
)

// failingCalls makes a third of all calls of the operator fail, including watches, events and discovery. Of three consecutive seeds, the
// first fails the first call of each kind, the second makes watches late, and the third loses the first connection of each watch.
type failingCalls struct {
	mu     sync.Mutex
	seed   uint64
	random *rand.Rand // nil while every call succeeds
	calls  map[string]int
	failed map[string]int
	row    map[string]int // consecutive failures
	log    []string       // every failed call with its time
}

// begin starts failures by the seed.
func (f *failingCalls) begin(seed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seed, f.random = seed, rand.New(rand.NewPCG(seed, 0))
	f.calls, f.failed, f.row = map[string]int{}, map[string]int{}, map[string]int{}
}

// choose returns the fault of a call, and whether it is the first one of its kind.
func (f *failingCalls) choose(call string) (chosen fault, first bool) {
	first = f.calls[call] == 0
	f.calls[call]++
	if fails := f.random.IntN(10) < 3 || first && f.seed%3 == 0; !fails || f.row[call] == inARow {
		f.row[call] = 0
		return noFault, first
	}
	f.failed[call]++
	f.row[call]++
	chosen = answers[f.random.IntN(len(answers))]
	f.log = append(f.log, fmt.Sprintf("%s %s: %s", time.Now().Format(time.TimeOnly), call, chosen))
	return chosen, first
}

func (f *failingCalls) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		f.mu.Lock()
		if f.random == nil {
			f.mu.Unlock()
			return next.RoundTrip(request)
		}
		info, kind := callOf(request), f.seed%3
		chosen, first := f.choose(info.Verb + " " + target(info))
		f.mu.Unlock()
		response, err := chosen.apply(request, next)
		if err == nil && isWatch(request) && (kind == 1 || kind == 2 && first) {
			response.Body = &disturbedBody{response.Body, time.Now(), kind == 2}
		}
		return response, err
	})
}

// disturbedBody is the body of a watch that delivers in bursts, or that loses its connection along with an event.
type disturbedBody struct {
	io.ReadCloser
	opened time.Time
	loses  bool
}

func (b *disturbedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	open := time.Since(b.opened)
	if b.loses && open > burstEvery {
		return 0, io.ErrUnexpectedEOF
	}
	if now := open % burstEvery; !b.loses && now > burst {
		time.Sleep(burstEvery - now)
	}
	return n, err
}

// simulateNodes simulates kubelets and OpenKruise in the fixture's namespace. The returned function ends that, and returns how often
// containers were stopped.
func (f *fixture) simulateNodes() (stop func() map[string]int) {
	actors := node{server: f.Client, now: time.Now, mains: []int32{0}, stops: map[string]int{}}
	ctx, cancel := context.WithCancel(f.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := f.nextStep(ctx, &actors); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
				f.Errorf("simulate the nodes: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	stop = sync.OnceValue(func() map[string]int {
		cancel()
		<-done
		return actors.stops
	})
	f.Cleanup(func() { stop() })
	return stop
}

// nextStep makes the next write of the nodes.
func (f *fixture) nextStep(ctx context.Context, actors *node) error {
	var pods corev1.PodList
	if err := f.List(ctx, &pods, client.InNamespace(f.namespace)); err != nil {
		return err
	}
	// The test is about to write the status of a new pod.
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return len(pod.Status.ContainerStatuses) == 0 })
	var requests kruise.ContainerRecreateRequestList
	var jobs kruise.ImagePullJobList
	for _, list := range []client.ObjectList{&requests, &jobs} {
		if err := f.List(ctx, list, client.InNamespace(f.namespace)); err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return err
		}
	}
	if written, err := actors.step(ctx, version{pods: pods.Items, requests: requests.Items}); written != "" || err != nil {
		return err
	}
	for i := range jobs.Items {
		if job := &jobs.Items[i]; job.Status.StartTime == nil {
			now := metav1.Now()
			job.Status = kruise.ImagePullJobStatus{StartTime: &now, Desired: 1, Succeeded: 1}
			return f.Status().Update(ctx, job)
		}
	}
	return nil
}

// tellStory creates and changes objects of every kind that the operator watches: a pod that waits for OpenKruise, one that waits for
// its node, and one that waits for a label of its namespace. The operator must end each sidecar once.
func (f *fixture) tellStory(k *testenv.Kruise) {
	f.Helper()
	stop := f.simulateNodes()
	mesh := f.newPolicy("mesh", mode(v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyRespect), func(spec *v1alpha1.PolicySpec) {
		spec.Fallback = v1alpha1.FallbackDisabled
	})
	edge := f.newPolicy("edge", withPrePull, func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "agent" })
	clusterPolicy := f.newClusterPolicy(func(spec *v1alpha1.ClusterSidecarTerminationPolicySpec) {
		spec.Sidecars[0].Name, spec.Mode = "logger", v1alpha1.ModePodPhase
		spec.NamespaceSelector.MatchLabels["batch"] = "on"
	})
	for _, policy := range []v1alpha1.Policy{mesh, edge, clusterPolicy} {
		f.untilCounts(policy, counts{})
	}
	named := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[1].Name, p.Status.ContainerStatuses[1] = name, podtest.Running(name)
			p.Spec.TerminationGracePeriodSeconds = new(int64(1))
		}
	}
	f.newPod("by-mesh")
	f.untilCounts(mesh, counts{matched: 1, stuck: 1})
	late := f.namespace + "-late"
	f.newPod("by-edge", named("agent"), func(p *corev1.Pod) { p.Spec.NodeName = late })
	f.untilCounts(edge, counts{matched: 1, terminating: 1})
	f.createNode(late, virtualKubelet)
	f.untilCounts(edge, counts{terminated: 1})
	f.newPod("by-cluster-policy", named("logger"))
	f.labelNamespace("batch", "on")
	f.untilCounts(clusterPolicy, counts{terminated: 1})
	k.Install(f.T)
	f.untilCounts(mesh, counts{terminated: 1})
	f.wantPrePulled(edge, "True PrePulled")
	if diff := cmp.Diff(map[string]int{"proxy": 1, "agent": 1, "logger": 1}, stop()); diff != "" {
		f.Errorf("how often containers were stopped (-want +got):\n%s", diff)
	}
	if got := len(f.crrs()); got != 1 {
		f.Errorf("%d requests", got)
	}
	if diff := cmp.Diff([]string{quickExit}, f.images()); diff != "" {
		f.Errorf("images that are pulled (-want +got):\n%s", diff)
	}
}

func TestFaultThirdOfOperatorCallsFails(t *testing.T) {
	testenv.SkipUnlessLong(t)
	k := newKruise(t)
	failed := map[string]int{}
	for seed := range 21 {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			f := newFixture(t)
			mgr := f.newManager()
			if err := Setup(t.Context(), mgr, testOptions()); err != nil {
				t.Fatal(err)
			}
			f.failing.begin(uint64(seed))
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("calls that failed:\n%s", strings.Join(f.failing.log, "\n"))
				}
			})
			stop := f.start(mgr)
			f.tellStory(k)
			stop()
			// The sender of events may still run.
			f.failing.mu.Lock()
			defer f.failing.mu.Unlock()
			for call, times := range f.failing.failed {
				failed[call] += times
			}
		})
	}
	t.Logf("calls that failed: %v", failed)
	for _, often := range []string{"get discovery", "watch pods", "watch sidecarterminationpolicies", "update sidecarterminationpolicies/status"} {
		if failed[often] == 0 {
			t.Errorf("no call %q failed", often)
		}
	}
}
