// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

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
	type pods = []*corev1.Pod
	elsewhere := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := podtest.New(change...)
		pod.Namespace, pod.Name, pod.Spec.NodeName, pod.ResourceVersion = "elsewhere", name, "elsewhere", "elsewhere"
		return pod
	}
	here := podtest.OfJob()
	reads := map[string]struct {
		from      func(Stores) ([]*corev1.Pod, error)
		elsewhere []string
	}{
		"of all namespaces": {func(s Stores) ([]*corev1.Pod, error) { return s.Pods(t.Context(), "") }, []string{"elsewhere Running", "elsewhere Succeeded"}},
		"of its namespace":  {func(s Stores) ([]*corev1.Pod, error) { return s.Pods(t.Context(), here.Namespace) }, nil},
		"of its node":       {func(s Stores) ([]*corev1.Pod, error) { return s.PodsOnNode(here.Spec.NodeName) }, nil},
	}
	for _, test := range []struct {
		name                 string
		unfinished, teardown pods
		want                 []string
	}{
		{"in neither cache", nil, nil, nil},
		{"unfinished", pods{copyOf("1", corev1.PodRunning, running)}, nil, []string{"1 Running"}},
		{"in teardown, with a running container", nil, pods{copyOf("2", corev1.PodSucceeded, running)}, []string{"2 Succeeded"}},
		{"in teardown, without a running container", nil, pods{copyOf("2", corev1.PodSucceeded, ended)}, nil},
		{"teardown cache newer", pods{copyOf("9", corev1.PodRunning, running)}, pods{copyOf("10", corev1.PodSucceeded, running)}, []string{"10 Succeeded"}},
		{"teardown cache newer and has the end", pods{copyOf("9", corev1.PodRunning, running)}, pods{copyOf("10", corev1.PodSucceeded, ended)}, nil},
		{"new pod with the name of one in teardown", pods{copyOf("10", corev1.PodRunning, running)}, pods{copyOf("9", corev1.PodSucceeded, running)}, []string{"10 Running"}},
		{"same version in both", pods{copyOf("9", corev1.PodRunning, running)}, pods{copyOf("9", corev1.PodRunning, running)}, []string{"9 Running"}},
	} {
		for name, read := range reads {
			t.Run(test.name+", "+name, func(t *testing.T) {
				pods, err := read.from(newTestStores(t, append(test.unfinished, elsewhere("runs")), append(test.teardown, elsewhere("tears", podtest.Succeeded))))
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, pod := range pods {
					got = append(got, pod.ResourceVersion+" "+string(pod.Status.Phase))
				}
				slices.Sort(got)
				if diff := cmp.Diff(append(test.want, read.elsewhere...), got); diff != "" {
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

func TestTeardownEventsEndWithTeardown(t *testing.T) {
	type object = *corev1.Pod
	tearing, torn, back := podtest.New(podtest.MainDone, podtest.Succeeded), podtest.New(podtest.MainDone, podtest.SidecarDone, podtest.Succeeded), podtest.New(podtest.MainDone)
	passes := InTeardown()
	for name, tc := range map[string]struct{ got, want bool }{
		"the phase was just written":               {passes.Create(event.TypedCreateEvent[object]{Object: tearing}), true},
		"the phase was written, no container runs": {passes.Create(event.TypedCreateEvent[object]{Object: torn}), true},
		"teardown was over before the start":       {passes.Create(event.TypedCreateEvent[object]{Object: torn, IsInInitialList: true}), false},
		"in teardown at the start":                 {passes.Create(event.TypedCreateEvent[object]{Object: tearing, IsInInitialList: true}), true},
		"its phase was undone before the start":    {passes.Create(event.TypedCreateEvent[object]{Object: back, IsInInitialList: true}), true},
		"its sidecar ends":                         {passes.Update(event.TypedUpdateEvent[object]{ObjectOld: tearing, ObjectNew: torn}), true},
		"its phase is undone":                      {passes.Update(event.TypedUpdateEvent[object]{ObjectOld: torn, ObjectNew: back}), true},
		"it is touched after teardown":             {passes.Update(event.TypedUpdateEvent[object]{ObjectOld: torn, ObjectNew: torn}), false},
		"it is deleted":                            {passes.Delete(event.TypedDeleteEvent[object]{Object: torn}), true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t, want %t", name, tc.got, tc.want)
		}
	}
}

func TestCacheDropsManagedFields(t *testing.T) {
	options := ManagerOptions(runtime.NewScheme())
	object := &metav1.PartialObjectMetadata{}
	object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	if _, err := options.DefaultTransform(object); err != nil || object.ManagedFields != nil {
		t.Errorf("kept %v, error %v", object.ManagedFields, err)
	}
	if !options.ReaderFailOnMissingInformer {
		t.Error("a read of an undeclared kind would start an informer")
	}
}
