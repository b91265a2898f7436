// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/hack/podtest"
)

// podSource lists and watches the pods of a test.
type podSource struct {
	pods []corev1.Pod
	// pageSize splits a list, unless it is zero.
	pageSize int
	watches  chan *watch.FakeWatcher
}

func (s *podSource) listPods(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	begin, _ := strconv.Atoi(options.Continue)
	end := len(s.pods)
	if s.pageSize > 0 && begin+s.pageSize < end {
		end = begin + s.pageSize
		list.Continue = strconv.Itoa(end)
	}
	for i := range s.pods[begin:end] {
		list.Items = append(list.Items, *s.pods[begin+i].DeepCopy())
	}
	return list, nil
}

func (s *podSource) watchPods(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(2, false)
	if ptr.Deref(options.SendInitialEvents, false) {
		go sendInitial(w, s.pods)
	}
	s.watches <- w
	return w, nil
}

// sendInitial sends the events of an initial list.
func sendInitial(w *watch.FakeWatcher, pods []corev1.Pod) {
	for i := range pods {
		w.Add(pods[i].DeepCopy())
	}
	w.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
}

func newTestFilter(source *podSource, clock *clocktesting.FakePassiveClock) *teardownFilter {
	source.watches = make(chan *watch.FakeWatcher, 1)
	f := newTeardownFilter(&toolscache.ListWatch{ListWithContextFunc: source.listPods, WatchFuncWithContext: source.watchPods}, clock)
	f.poll = time.Millisecond
	return f
}

// filterTest is a teardownFilter between a source and a reader.
type filterTest struct {
	*testing.T
	clock   *clocktesting.FakePassiveClock
	source  podSource
	filter  *teardownFilter
	watched *watch.FakeWatcher // by the filter
	result  watch.Interface
	version int
}

func newFilterTest(t *testing.T) *filterTest {
	t.Helper()
	ft := &filterTest{T: t, clock: clocktesting.NewFakePassiveClock(podtest.Noon), version: 10}
	ft.filter = newTestFilter(&ft.source, ft.clock)
	t.Cleanup(func() {
		if ft.result != nil {
			ft.result.Stop()
		}
	})
	return ft
}

// list returns the names of the pods that the filter lists.
func (ft *filterTest) list(pods ...corev1.Pod) []string {
	ft.Helper()
	ft.source.pods = pods
	var names []string
	for options := (metav1.ListOptions{}); ; {
		object, err := ft.filter.listPods(ft.Context(), options)
		if err != nil {
			ft.Fatal(err)
		}
		list := object.(*corev1.PodList)
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return names
		}
	}
}

// watch starts a new watch, and returns the events of its initial list.
func (ft *filterTest) watch(options metav1.ListOptions) []string {
	ft.Helper()
	if ft.result != nil {
		ft.result.Stop()
	}
	result, err := ft.filter.watchPods(ft.Context(), options)
	if err != nil {
		ft.Fatal(err)
	}
	ft.result, ft.watched = result, <-ft.source.watches
	if ptr.Deref(options.SendInitialEvents, false) {
		return ft.untilBookmark()
	}
	return nil
}

// see sends an event of the source, and returns the events that pass the filter.
func (ft *filterTest) see(kind watch.EventType, pod corev1.Pod) []string {
	ft.Helper()
	ft.version++
	pod.ResourceVersion = strconv.Itoa(ft.version)
	ft.watched.Action(kind, &pod)
	ft.watched.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: pod.ResourceVersion}})
	return ft.untilBookmark()
}

func (ft *filterTest) untilBookmark() []string {
	ft.Helper()
	var all []string
	for {
		event := ft.next()
		if event.Type == watch.Bookmark {
			return all
		}
		all = append(all, describe(event))
	}
}

func (ft *filterTest) next() watch.Event {
	ft.Helper()
	event, ok := <-ft.result.ResultChan()
	if !ok {
		ft.Fatal("the watch has ended")
	}
	return event
}

func describe(event watch.Event) string {
	pod := event.Object.(*corev1.Pod)
	return fmt.Sprintf("%s %s %s", event.Type, pod.Name, pod.ResourceVersion)
}

// retain advances the clock by the retention.
func (ft *filterTest) retain() { ft.clock.SetTime(ft.clock.Now().Add(TeardownLag)) }

func (ft *filterTest) want(step string, got []string, want ...string) {
	ft.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		ft.Errorf("%s (-want +got):\n%s", step, diff)
	}
}

// follows checks how many pods the filter remembers after it has handled all earlier events. None of them may have expired.
func (ft *filterTest) follows(step string, pods int) {
	ft.Helper()
	if ft.result != nil {
		ft.watched.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(ft.version)}})
		ft.want(step, ft.untilBookmark())
	}
	if got := followed(ft.filter); got != pods {
		ft.Errorf("%s: %d pods are followed, want %d", step, got, pods)
	}
	if got := ft.filter.expired(); len(got) > 0 {
		ft.Errorf("%s: the retention of %v is over", step, got)
	}
}

func followed(f *teardownFilter) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pods)
}

func tearing(name string) corev1.Pod {
	return *podtest.New(podtest.MainDone, podtest.Succeeded, func(p *corev1.Pod) { p.Name = name })
}

func over(name string) corev1.Pod {
	return *podtest.New(podtest.MainDone, podtest.SidecarDone, podtest.Succeeded, func(p *corev1.Pod) { p.Name = name })
}

func TestTeardownFilter(t *testing.T) {
	live := metav1.ListOptions{ResourceVersion: "10"}
	initial := metav1.ListOptions{SendInitialEvents: ptr.To(true)}
	for name, run := range map[string]func(ft *filterTest){
		"finished pods are left out of every page": func(ft *filterTest) {
			ft.source.pageSize = 2
			ft.want("listed", ft.list(tearing("a"), over("b"), over("c"), tearing("d"), over("e")), "a", "d")
			ft.follows("then", 2)
		},
		"finished pods are left out of initial events": func(ft *filterTest) {
			ft.source.pods = []corev1.Pod{over("a"), tearing("b")}
			ft.want("watched", ft.watch(initial), "ADDED b 17")
			ft.follows("then", 1)
		},
		"pass the end, delete after the retention": func(ft *filterTest) {
			ft.watch(live)
			ft.want("written", ft.see(watch.Added, tearing("a")), "ADDED a 11")
			ft.want("ended", ft.see(watch.Modified, over("a")), "MODIFIED a 12")
			ft.want("other", ft.see(watch.Added, tearing("b")), "ADDED b 13")
			ft.follows("before", 2)
			ft.retain()
			ft.want("after", []string{describe(ft.next())}, "DELETED a 13")
			ft.want("touched", ft.see(watch.Modified, over("a")))
			ft.want("deleted", ft.see(watch.Deleted, over("a")))
			ft.follows("then", 1)
		},
		"no running container at the write of the phase": func(ft *filterTest) {
			ft.watch(live)
			ft.want("written", ft.see(watch.Added, over("a")), "ADDED a 11")
			ft.retain()
			ft.want("after", []string{describe(ft.next())}, "DELETED a 11")
			ft.follows("then", 0)
		},
		"a pod whose phase is undone stays": func(ft *filterTest) {
			ft.watch(live)
			ft.want("ended", ft.see(watch.Added, over("a")), "ADDED a 11")
			ft.want("undone", ft.see(watch.Modified, *podtest.New(func(p *corev1.Pod) { p.Name = "a" })), "MODIFIED a 12")
			ft.retain()
			ft.follows("then", 1)
		},
		"touching a finished pod does not keep it": func(ft *filterTest) {
			ft.watch(live)
			ft.want("ended", ft.see(watch.Added, over("a")), "ADDED a 11")
			ft.clock.SetTime(ft.clock.Now().Add(TeardownLag / 2))
			ft.want("touched", ft.see(watch.Modified, over("a")), "MODIFIED a 12")
			ft.clock.SetTime(ft.clock.Now().Add(TeardownLag / 2))
			ft.want("after", []string{describe(ft.next())}, "DELETED a 12")
		},
		"a deleted pod is forgotten": func(ft *filterTest) {
			ft.watch(live)
			ft.want("written", ft.see(watch.Added, tearing("a")), "ADDED a 11")
			ft.want("deleted", ft.see(watch.Deleted, tearing("a")), "DELETED a 12")
			ft.follows("then", 0)
		},
		"the next watch sends a delayed deletion": func(ft *filterTest) {
			ft.watch(live)
			ft.want("ended", ft.see(watch.Added, over("a")), "ADDED a 11")
			ft.result.Stop()
			ft.retain()
			ft.watch(metav1.ListOptions{ResourceVersion: "40"})
			ft.want("after", []string{describe(ft.next())}, "DELETED a 40")
			ft.follows("then", 0)
		},
		"the next watch repeats a deletion that the informer has not received": func(ft *filterTest) {
			ft.watch(live)
			ft.want("written", ft.see(watch.Added, tearing("a")), "ADDED a 11")
			stopped := &teardownWatch{filter: ft.filter, source: watch.NewFake(), result: make(chan watch.Event), done: make(chan struct{})}
			stopped.Stop()
			pod := tearing("a")
			if stopped.forward(watch.Event{Type: watch.Deleted, Object: &pod}) {
				ft.Error("a stopped watch passes a deletion on")
			}
			ft.watch(metav1.ListOptions{ResourceVersion: "11"})
			ft.want("deleted", ft.see(watch.Deleted, tearing("a")), "DELETED a 12")
		},
		"end during an interruption, then list": func(ft *filterTest) {
			ft.want("listed", ft.list(tearing("a")), "a")
			ft.want("listed again", ft.list(over("a"), over("b")), "a")
			ft.retain()
			ft.watch(metav1.ListOptions{ResourceVersion: "40"})
			ft.want("after", []string{describe(ft.next())}, "DELETED a 40")
		},
		"end during an interruption, then initial events": func(ft *filterTest) {
			ft.source.pods = []corev1.Pod{tearing("a")}
			ft.want("watched", ft.watch(initial), "ADDED a 17")
			ft.source.pods = []corev1.Pod{over("a"), over("b")}
			ft.want("watched again", ft.watch(initial), "ADDED a 17")
			ft.retain()
			ft.want("after", []string{describe(ft.next())}, "DELETED a 1")
		},
		"a pod missing in the next list is forgotten": func(ft *filterTest) {
			ft.want("listed", ft.list(tearing("a"), tearing("b")), "a", "b")
			ft.want("listed again", ft.list(tearing("b")), "b")
			ft.follows("then", 1)
			ft.source.pods = nil
			ft.watch(initial)
			ft.follows("at last", 0)
		},
		"other objects pass": func(ft *filterTest) {
			ft.watch(live)
			ft.watched.Error(&metav1.Status{Code: 410})
			if event := ft.next(); event.Type != watch.Error {
				ft.Errorf("got %+v", event)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { run(newFilterTest(t)) })
	}
}

// maxBytesPerFinishedPod is the memory limit for a pod whose teardown is over. The cache's maps keep the size of their maximum.
const maxBytesPerFinishedPod = 16

func TestMemoryPerTornDownPod(t *testing.T) {
	const retained, ended, atOnce = 10_000, 10_000, 100
	finished := func(i int) corev1.Pod {
		pod := *podtest.OfJob(podtest.MainDone, podtest.SidecarDone, podtest.Succeeded)
		pod.Name, pod.ResourceVersion = fmt.Sprintf("import-%05d", i), strconv.Itoa(i+2)
		return pod
	}
	clock := clocktesting.NewFakePassiveClock(podtest.Noon)
	source := &podSource{}
	for i := range retained {
		source.pods = append(source.pods, finished(i))
	}
	filter := newTestFilter(source, clock)
	informer := filter.informer(&corev1.Pod{}, 0, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc, indexNode: nodeName,
	})
	if err := informer.SetTransform(recovering(TrimPod)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	before := podtest.ReachableBytes()
	go func() {
		defer close(stopped)
		informer.RunWithContext(ctx)
	}()
	w := <-source.watches
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	if kept := len(informer.GetIndexer().List()); kept != 0 {
		t.Errorf("%d of %d retained pods are kept", kept, retained)
	}
	for i := range ended {
		pod := finished(retained + i)
		running := pod.DeepCopy()
		running.Status.ContainerStatuses[1] = podtest.Running("proxy")
		w.Action(watch.Added, running)
		w.Action(watch.Modified, &pod)
		if (i+1)%atOnce > 0 {
			continue
		}
		// The retention begins when the filter sees the pod. Bookmarks have arrived when all earlier events have.
		w.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: pod.ResourceVersion}})
		for followed(filter) > 0 || len(informer.GetIndexer().List()) > 0 || informer.LastSyncResourceVersion() != pod.ResourceVersion {
			<-time.After(time.Millisecond)
			clock.SetTime(clock.Now().Add(TeardownLag))
		}
	}
	kept := (podtest.ReachableBytes() - before) / (retained + ended)
	t.Logf("%d bytes per pod whose teardown is over", kept)
	if kept > maxBytesPerFinishedPod {
		t.Errorf("a pod whose teardown is over takes %d bytes, want at most %d", kept, maxBytesPerFinishedPod)
	}
	cancel()
	<-stopped
}
