// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestLivePodsTakesThePodFromTheCacheThatHasSeenMoreOfIt(t *testing.T) {
	copyOf := func(version string, phase corev1.PodPhase, state corev1.ContainerState) *corev1.Pod {
		return jobPod(func(pod *corev1.Pod) {
			pod.Name, pod.ResourceVersion, pod.Status.Phase = "import", version, phase
			for i := range pod.Status.ContainerStatuses {
				pod.Status.ContainerStatuses[i].State = state
			}
		})
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	for _, test := range []struct {
		name                string
		unfinished, written []*corev1.Pod
		want                []string
	}{
		{name: "a pod that is in neither cache"},
		{
			name:       "a pod that is in the cache of unfinished pods",
			unfinished: []*corev1.Pod{copyOf("1", corev1.PodRunning, running)}, want: []string{"1 Running"},
		},
		{
			name:    "a pod that is in the cache of written pods, with a running container",
			written: []*corev1.Pod{copyOf("2", corev1.PodSucceeded, running)}, want: []string{"2 Succeeded"},
		},
		{
			name:    "a pod that is in the cache of written pods, without a running container",
			written: []*corev1.Pod{copyOf("2", corev1.PodSucceeded, ended)},
		},
		{
			name:       "a pod of which the cache of written pods was told first",
			unfinished: []*corev1.Pod{copyOf("9", corev1.PodRunning, running)},
			written:    []*corev1.Pod{copyOf("10", corev1.PodSucceeded, running)}, want: []string{"10 Succeeded"},
		},
		{
			name:       "a pod of which the cache of written pods was told first, and that all is over",
			unfinished: []*corev1.Pod{copyOf("9", corev1.PodRunning, running)},
			written:    []*corev1.Pod{copyOf("10", corev1.PodSucceeded, ended)},
		},
		{
			name:       "a pod of the name of one that was written and is gone",
			unfinished: []*corev1.Pod{copyOf("10", corev1.PodRunning, running)},
			written:    []*corev1.Pod{copyOf("9", corev1.PodSucceeded, running)}, want: []string{"10 Running"},
		},
		{
			name:       "a pod that is the same in both",
			unfinished: []*corev1.Pod{copyOf("9", corev1.PodRunning, running)},
			written:    []*corev1.Pod{copyOf("9", corev1.PodRunning, running)}, want: []string{"9 Running"},
		},
	} {
		for _, namespace := range []string{"", jobPod().Namespace} {
			t.Run(strings.TrimSpace(test.name+" "+namespace), func(t *testing.T) {
				stores := newTestPodStores(t, test.unfinished, test.written)
				pods, err := stores.LivePods(t.Context(), namespace)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, pod := range pods {
					got = append(got, pod.ResourceVersion+" "+string(pod.Status.Phase))
				}
				slices.Sort(got)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("live pods (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func newTestPodStores(t *testing.T, unfinished, written []*corev1.Pod) podStores {
	t.Helper()
	stores := podStores{unfinished: newPodIndexer(), written: newPodIndexer()}
	for store, pods := range map[toolscache.Indexer][]*corev1.Pod{stores.unfinished: unfinished, stores.written: written} {
		for _, pod := range pods {
			if err := store.Add(pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	return stores
}

func TestLivePodsOnANodeAreThoseOfBothCaches(t *testing.T) {
	on := func(node, name string, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := newPod(change...)
		pod.Name, pod.Spec.NodeName = name, node
		return pod
	}
	stores := newTestPodStores(t,
		[]*corev1.Pod{on("node-1", "runs"), on("node-2", "elsewhere"), on("", "pending")},
		[]*corev1.Pod{on("node-1", "written", succeeded), on("node-2", "written elsewhere", succeeded), on("node-1", "over", succeeded, mainDone, sidecarDone)},
	)
	pods, err := stores.LivePodsOnNode("node-1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, pod := range pods {
		got = append(got, pod.Name)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"runs", "written"}, got); diff != "" {
		t.Errorf("live pods (-want +got):\n%s", diff)
	}
}
