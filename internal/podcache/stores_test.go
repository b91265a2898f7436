// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/sidecar-termination/operator/hack/podtest"
)

func TestPodsPrefersNewerVersion(t *testing.T) {
	copyOf := func(version string, phase corev1.PodPhase, state corev1.ContainerState) *corev1.Pod {
		return podtest.OfJob(func(pod *corev1.Pod) {
			pod.Name, pod.ResourceVersion, pod.Status.Phase = "import", version, phase
			for i := range pod.Status.ContainerStatuses {
				pod.Status.ContainerStatuses[i].State = state
			}
		})
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	for _, test := range []struct {
		name                 string
		unfinished, teardown []*corev1.Pod
		want                 []string
	}{
		{name: "in neither cache"},
		{
			name:       "unfinished",
			unfinished: []*corev1.Pod{copyOf("1", corev1.PodRunning, running)}, want: []string{"1 Running"},
		},
		{
			name:     "in teardown, with a running container",
			teardown: []*corev1.Pod{copyOf("2", corev1.PodSucceeded, running)}, want: []string{"2 Succeeded"},
		},
		{
			name:     "in teardown, without a running container",
			teardown: []*corev1.Pod{copyOf("2", corev1.PodSucceeded, ended)},
		},
		{
			name:       "in both, the teardown cache is newer",
			unfinished: []*corev1.Pod{copyOf("9", corev1.PodRunning, running)},
			teardown:   []*corev1.Pod{copyOf("10", corev1.PodSucceeded, running)}, want: []string{"10 Succeeded"},
		},
		{
			name:       "in both, the teardown cache is newer and has the end",
			unfinished: []*corev1.Pod{copyOf("9", corev1.PodRunning, running)},
			teardown:   []*corev1.Pod{copyOf("10", corev1.PodSucceeded, ended)},
		},
		{
			name:       "a new pod with the name of one in teardown",
			unfinished: []*corev1.Pod{copyOf("10", corev1.PodRunning, running)},
			teardown:   []*corev1.Pod{copyOf("9", corev1.PodSucceeded, running)}, want: []string{"10 Running"},
		},
		{
			name:       "the same version in both",
			unfinished: []*corev1.Pod{copyOf("9", corev1.PodRunning, running)},
			teardown:   []*corev1.Pod{copyOf("9", corev1.PodRunning, running)}, want: []string{"9 Running"},
		},
	} {
		for _, namespace := range []string{"", podtest.OfJob().Namespace} {
			t.Run(strings.TrimSpace(test.name+" "+namespace), func(t *testing.T) {
				stores := newTestStores(t, test.unfinished, test.teardown)
				pods, err := stores.Pods(t.Context(), namespace)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, pod := range pods {
					got = append(got, pod.ResourceVersion+" "+string(pod.Status.Phase))
				}
				slices.Sort(got)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("pods (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// newTestStores returns stores with pods.
func newTestStores(t *testing.T, unfinished, teardown []*corev1.Pod) Stores {
	t.Helper()
	informers := func(pods []*corev1.Pod) []toolscache.SharedIndexInformer {
		informer := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.Pod{}, 0,
			toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
		for _, pod := range pods {
			if err := informer.GetIndexer().Add(pod); err != nil {
				t.Fatal(err)
			}
		}
		return []toolscache.SharedIndexInformer{informer}
	}
	stores, err := NewStores(informers(unfinished), informers(teardown))
	if err != nil {
		t.Fatal(err)
	}
	return stores
}

func TestPodsOnNodeReadsBothCaches(t *testing.T) {
	on := func(node, name string, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := podtest.New(change...)
		pod.Name, pod.Spec.NodeName = name, node
		return pod
	}
	stores := newTestStores(t,
		[]*corev1.Pod{on("node-1", "runs"), on("node-2", "elsewhere"), on("", "pending")},
		[]*corev1.Pod{on("node-1", "teardown", podtest.Succeeded), on("node-2", "teardown elsewhere", podtest.Succeeded), on("node-1", "over", podtest.Succeeded, podtest.MainDone, podtest.SidecarDone)},
	)
	pods, err := stores.PodsOnNode("node-1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, pod := range pods {
		got = append(got, pod.Name)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"runs", "teardown"}, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
