// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/rollup"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// policyCounts are the numbers of policies of one namespace at which the cost of a pod event is measured. One of them
// selects the pod.
var policyCounts = []int{1, 100, 10_000}

// knownNode answers each read of a node with one that has a kubelet.
type knownNode struct{ client.Reader }

// Get fills in a node's name.
func (knownNode) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetName(key.Name)
	return nil
}

// podCase is what a reconcile does between its read of the pod and its writes, with policies in the index.
type podCase struct {
	world *world
	pod   *corev1.Pod
}

func newPodCase(tb testing.TB, policies int) podCase {
	tb.Helper()
	index := newTestIndex(nil)
	for i := range policies {
		policy := indexedPolicy("batch", fmt.Sprintf("p%05d", i), metav1.LabelSelector{
			MatchLabels: map[string]string{"app": fmt.Sprintf("app-%05d", i), "enabled": "true"},
		})
		if err := index.namespaced.Add(policy); err != nil {
			tb.Fatal(err)
		}
	}
	trimmed := trimPod(jobPod(mainDone))
	return podCase{
		pod: trimmed.(*corev1.Pod),
		world: &world{
			cache: knownNode{}, policies: index, available: func() bool { return true },
			terminators: []Terminator{&podphase.Terminator{}, &image.Terminator{}},
			options:     Options{PodPhase: plan.PodPhaseEnabled, NodeMarks: plan.DefaultNodeMarks(), Resolve: resolve.Options{ExitCodes: v1alpha1.ExitCodesRespect}},
		},
	}
}

// handle returns the decision about the pod.
func (e podCase) handle(ctx context.Context, now time.Time) (plan.Decision, error) {
	subject, err := e.world.subject(ctx, e.pod)
	if err != nil {
		return plan.Decision{}, err
	}
	snapshot, err := e.world.snapshot(ctx, e.pod, subject.resolution.Enforced)
	if err != nil {
		return plan.Decision{}, err
	}
	snapshot.QuietSince = now
	return plan.Next(snapshot, now), nil
}

// jobPod is a pod of a Job as the API server sends it: with the labels that Kubernetes adds, managed fields, volumes,
// probes and variables.
func jobPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := newPod(change...)
	pod.Labels = map[string]string{
		"app": "app-00000", "enabled": "true", "team": "etl", "version": "v1", "batch.kubernetes.io/job-name": "import", "job-name": "import",
		"batch.kubernetes.io/controller-uid": "4b9c0a52-6b53-4f0e-9d2a-4c0f3a1d2e77", "controller-uid": "4b9c0a52-6b53-4f0e-9d2a-4c0f3a1d2e77",
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kube-controller-manager", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:spec":{}}`, 150))},
		{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:status":{}}`, 150))},
	}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		container.Command = []string{"/usr/local/bin/run"}
		container.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "token", MountPath: "/var/run/secrets"}}
		container.ReadinessProbe = &corev1.Probe{PeriodSeconds: 10}
		for n := range 20 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", n), Value: "value"})
		}
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "token"}}
	return pod
}

var decided plan.Decision

func BenchmarkPodEvent(b *testing.B) {
	for _, count := range policyCounts {
		b.Run(fmt.Sprintf("Policies%d", count), func(b *testing.B) {
			event, now := newPodCase(b, count), noon.Add(time.Second)
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if decided, err = event.handle(b.Context(), now); err != nil || len(decided.Actions) != 1 {
					b.Fatalf("decided %+v: %v", decided, err)
				}
			}
		})
	}
}

// Allocations are counted and not timed, so that a busy machine changes nothing.
func TestAllocationsOfAPodEventDoNotGrowWithTheNumberOfPolicies(t *testing.T) {
	now := noon.Add(time.Second)
	allocations := func(policies int) float64 {
		event := newPodCase(t, policies)
		return testing.AllocsPerRun(100, func() {
			decision, err := event.handle(t.Context(), now)
			if err != nil || len(decision.Actions) != 1 || decision.Actions[0].Mode != v1alpha1.ModeCRR {
				t.Fatalf("decided %+v: %v", decision, err)
			}
		})
	}
	few, many := allocations(1), allocations(10_000)
	// The race detector drops pooled memory at random; a look at every policy would cost thousands.
	if many > few+few/10 {
		t.Errorf("a pod event takes %.0f allocations with 10,000 policies, %.0f with one", many, few)
	}
}

var trimmedPod any

func BenchmarkTrimPod(b *testing.B) {
	pod := jobPod()
	b.ReportAllocs()
	for b.Loop() {
		trimmedPod = trimPod(pod)
	}
}

var gathered plan.Snapshot

func BenchmarkSnapshot(b *testing.B) {
	event := newPodCase(b, 1)
	subject, err := event.world.subject(b.Context(), event.pod)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if gathered, err = event.world.snapshot(b.Context(), event.pod, subject.resolution.Enforced); err != nil {
			b.Fatal(err)
		}
	}
}

var seenPods rollup.Census

// BenchmarkObservePolicy is a look at all pods of a policy whose main containers run.
func BenchmarkObservePolicy(b *testing.B) {
	for _, count := range []int{1_000, 50_000} {
		b.Run(fmt.Sprintf("Pods%d", count), func(b *testing.B) {
			c := newPodCase(b, 1)
			stores := podStores{unfinished: newPodIndexer(), written: newPodIndexer()}
			for i := range count {
				trimmed := trimPod(jobPod(func(pod *corev1.Pod) { pod.Name, pod.UID = fmt.Sprintf("job-%05d", i), types.UID(fmt.Sprint(i)) }))
				if err := stores.unfinished.Add(trimmed); err != nil {
					b.Fatal(err)
				}
			}
			policies, err := c.world.policies.Policies(b.Context(), c.pod)
			if err != nil || len(policies) != 1 {
				b.Fatalf("selected by %v: %v", policies, err)
			}
			nothing := newJournal(&recordedEvents{}, nil, func(resolve.PolicyRef) {})
			r := &PolicyReconciler{world: c.world, pods: stores, journal: nothing, options: c.world.options}
			r.options.Clock = clock.RealClock{}
			b.ReportAllocs()
			for b.Loop() {
				if seenPods, err = r.observe(b.Context(), policies[0], nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func newPodIndexer() toolscache.Indexer {
	return toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc, indexNode: nodeName,
	})
}
