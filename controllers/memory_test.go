// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// maxBytesPerPod is what a live pod of a Job with one sidecar may take of the operator's memory, of which the budget is
// 3,500 bytes. The cache's index by node and the queues are left out.
const maxBytesPerPod = 3000

// What is counted is what is still reachable, so that neither a busy machine nor the collector changes anything.
func TestALivePodTakesLittleMemory(t *testing.T) {
	const pods = 5000
	c := newPodCase(t, 1)
	journal := newJournal(&recordedEvents{}, nil, func(resolve.PolicyRef) {})
	var seen sightings
	store := newPodIndexer()
	raw, err := jobPod(func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			status := &pod.Status.ContainerStatuses[i]
			status.ContainerID = fmt.Sprintf("containerd://%064d", i)
			status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	before := reachable()
	for i := range pods {
		// As the watch gives it: with strings of its own.
		pod := &corev1.Pod{}
		if err := pod.Unmarshal(raw); err != nil {
			t.Fatal(err)
		}
		pod.Name, pod.UID = fmt.Sprintf("import-%05d", i), types.UID(fmt.Sprintf("4b9c0a52-6b53-4f0e-9d2a-%012d", i))
		for _, label := range []string{"job-name", "batch.kubernetes.io/job-name"} {
			pod.Labels[label] = fmt.Sprintf("import-%05d", i)
		}
		trimmed := trimPod(pod)
		if err := store.Add(trimmed); err != nil {
			t.Fatal(err)
		}
		subject, err := c.world.subject(t.Context(), trimmed.(*corev1.Pod))
		if err != nil {
			t.Fatal(err)
		}
		if len(subject.policies) != 1 {
			t.Fatalf("selected by %v", subject.policies)
		}
		seen.see(subject.pod, noon)
		journal.record(subject, plan.Decision{Stage: plan.StageWaiting})
	}
	each := (reachable() - before) / pods
	t.Logf("%d bytes per pod", each)
	if each > maxBytesPerPod {
		t.Errorf("a pod takes %d bytes, want at most %d", each, maxBytesPerPod)
	}
	if len(store.List()) != pods || len(journal.pods) != pods {
		t.Errorf("kept %d pods and %d entries, want %d each", len(store.List()), len(journal.pods), pods)
	}
	runtime.KeepAlive(&seen)
}

// reachable is how many bytes of the heap are in use after a collection.
func reachable() int64 {
	// The second collection frees what the first has found to have finalizers.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
