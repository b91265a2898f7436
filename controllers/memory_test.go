// SPDX-License-Identifier: Apache-2.0

// The operators of integration tests allocate memory in the background.
//go:build !integration

package controllers

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// maxBytesPerPod is the memory limit for an unfinished, marked pod of a Job with one sidecar, without the queues.
const maxBytesPerPod = 2000

// The test counts reachable memory, which depends neither on the machine's load nor on the collector.
func TestMemoryPerLivePod(t *testing.T) {
	const pods = 5000
	c := newPodCase(t, 1)
	states := newPodStates(newReporter(&recordedEvents{}, nil, func(resolve.PolicyRef) {}), clock.RealClock{})
	store := newTestInformers(&podcache.Pod{})[0].GetIndexer()
	raw, err := podtest.OfJob(func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			status := &pod.Status.ContainerStatuses[i]
			status.ContainerID = fmt.Sprintf("containerd://%064d", i)
			status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	before := podtest.ReachableBytes()
	for i := range pods {
		// A watch delivers each pod with strings of its own.
		pod := &corev1.Pod{}
		if err := pod.Unmarshal(raw); err != nil {
			t.Fatal(err)
		}
		pod.Name, pod.UID = fmt.Sprintf("import-%05d", i), types.UID(fmt.Sprintf("4b9c0a52-6b53-4f0e-9d2a-%012d", i))
		for _, label := range []string{"job-name", "batch.kubernetes.io/job-name"} {
			pod.Labels[label] = fmt.Sprintf("import-%05d", i)
		}
		pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
		pod.Annotations = map[string]string{
			v1alpha1.AnnotationIgnoredExitCodes: "proxy/" + string(pod.UID), v1alpha1.AnnotationEnd: v1alpha1.EndPodPhase + "/" + string(pod.UID),
			v1alpha1.AnnotationMainContainers: v1alpha1.MainsRunning + "/" + string(pod.UID),
		}
		cached := cachedPod(pod)
		if err := store.Add(cached); err != nil {
			t.Fatal(err)
		}
		decoded, err := cached.Decode()
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := c.reader.resolve(t.Context(), decoded)
		if err != nil {
			t.Fatal(err)
		}
		if len(resolved.Policies) != 1 {
			t.Fatalf("selected by %v", resolved.Policies)
		}
		marking := marking("")
		states.record(resolved, marking, executionOf(marking))
	}
	each := (podtest.ReachableBytes() - before) / pods
	t.Logf("%d bytes per pod", each)
	if each > maxBytesPerPod {
		t.Errorf("a pod takes %d bytes, want at most %d", each, maxBytesPerPod)
	}
	if len(store.List()) != pods || len(states.pods) != pods {
		t.Errorf("kept %d pods and %d states, want %d each", len(store.List()), len(states.pods), pods)
	}
}
