// SPDX-License-Identifier: Apache-2.0

package controllers

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
)

// podSource lists and watches what a test says.
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

// sendInitial sends the events that stand in for a list.
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
	ft := &filterTest{T: t, clock: clocktesting.NewFakePassiveClock(noon), version: 10}
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

// watch watches anew, and returns what is passed on of the events that stand in for a list.
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

// see has the source say that something has happened to a pod, and returns what is passed on.
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

// retain lets the retention pass.
func (ft *filterTest) retain() { ft.clock.SetTime(ft.clock.Now().Add(teardownLag)) }

func (ft *filterTest) want(step string, got []string, want ...string) {
	ft.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		ft.Errorf("%s (-want +got):\n%s", step, diff)
	}
}

// follows compares how many pods the filter keeps in mind, of which it must delete none now, once the watch has done what was
// asked of it before.
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
	return *newPod(mainDone, succeeded, func(p *corev1.Pod) { p.Name = name })
}

func over(name string) corev1.Pod {
	return *newPod(mainDone, sidecarDone, succeeded, func(p *corev1.Pod) { p.Name = name })
}

func TestTeardownFilter(t *testing.T) {
	live := metav1.ListOptions{ResourceVersion: "10"}
	initial := metav1.ListOptions{SendInitialEvents: ptr.To(true)}
	for name, run := range map[string]func(ft *filterTest){
		"finished pods are left out of the first list": func(ft *filterTest) {
			ft.want("listed", ft.list(over("a"), tearing("b"), over("c")), "b")
			ft.follows("then", 1)
		},
		"and out of every page": func(ft *filterTest) {
			ft.source.pageSize = 2
			ft.want("listed", ft.list(tearing("a"), over("b"), over("c"), tearing("d"), over("e")), "a", "d")
			ft.follows("then", 2)
		},
		"and out of the events that stand in for a list": func(ft *filterTest) {
			ft.source.pods = []corev1.Pod{over("a"), tearing("b")}
			ft.want("watched", ft.watch(initial), "ADDED b 17")
			ft.follows("then", 1)
		},
		"a pod is passed on with its last container ended, and deleted after the retention": func(ft *filterTest) {
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
		"a pod that nothing runs in when its phase is written is passed on once": func(ft *filterTest) {
			ft.watch(live)
			ft.want("written", ft.see(watch.Added, over("a")), "ADDED a 11")
			ft.retain()
			ft.want("after", []string{describe(ft.next())}, "DELETED a 11")
			ft.follows("then", 0)
		},
		"a pod whose phase is undone stays": func(ft *filterTest) {
			ft.watch(live)
			ft.want("ended", ft.see(watch.Added, over("a")), "ADDED a 11")
			ft.want("undone", ft.see(watch.Modified, *newPod(func(p *corev1.Pod) { p.Name = "a" })), "MODIFIED a 12")
			ft.retain()
			ft.follows("then", 1)
		},
		"touching a finished pod does not keep it": func(ft *filterTest) {
			ft.watch(live)
			ft.want("ended", ft.see(watch.Added, over("a")), "ADDED a 11")
			ft.clock.SetTime(ft.clock.Now().Add(teardownLag / 2))
			ft.want("touched", ft.see(watch.Modified, over("a")), "MODIFIED a 12")
			ft.clock.SetTime(ft.clock.Now().Add(teardownLag / 2))
			ft.want("after", []string{describe(ft.next())}, "DELETED a 12")
		},
		"a pod that is deleted is forgotten": func(ft *filterTest) {
			ft.watch(live)
			ft.want("written", ft.see(watch.Added, tearing("a")), "ADDED a 11")
			ft.want("deleted", ft.see(watch.Deleted, tearing("a")), "DELETED a 12")
			ft.follows("then", 0)
		},
		"the next watch makes the deletion that an interruption has delayed": func(ft *filterTest) {
			ft.watch(live)
			ft.want("ended", ft.see(watch.Added, over("a")), "ADDED a 11")
			ft.result.Stop()
			ft.retain()
			ft.watch(metav1.ListOptions{ResourceVersion: "40"})
			ft.want("after", []string{describe(ft.next())}, "DELETED a 40")
			ft.follows("then", 0)
		},
		"a pod that has ended during an interruption is listed, and deleted after the retention": func(ft *filterTest) {
			ft.want("listed", ft.list(tearing("a")), "a")
			ft.want("listed again", ft.list(over("a"), over("b")), "a")
			ft.retain()
			ft.watch(metav1.ListOptions{ResourceVersion: "40"})
			ft.want("after", []string{describe(ft.next())}, "DELETED a 40")
		},
		"or is among the events that stand in for the list": func(ft *filterTest) {
			ft.source.pods = []corev1.Pod{tearing("a")}
			ft.want("watched", ft.watch(initial), "ADDED a 17")
			ft.source.pods = []corev1.Pod{over("a"), over("b")}
			ft.want("watched again", ft.watch(initial), "ADDED a 17")
			ft.retain()
			ft.want("after", []string{describe(ft.next())}, "DELETED a 1")
		},
		"a pod that is in no list any more is forgotten": func(ft *filterTest) {
			ft.want("listed", ft.list(tearing("a"), tearing("b")), "a", "b")
			ft.want("listed again", ft.list(tearing("b")), "b")
			ft.follows("then", 1)
			ft.source.pods = nil
			ft.watch(initial)
			ft.follows("at last", 0)
		},
		"what is no pod is passed on": func(ft *filterTest) {
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

// A deletion that nobody has taken is not lost.
func TestADeletionIsMadeAgainByTheNextWatch(t *testing.T) {
	ft := newFilterTest(t)
	ft.watch(metav1.ListOptions{ResourceVersion: "10"})
	ft.want("written", ft.see(watch.Added, tearing("a")), "ADDED a 11")
	stopped := &teardownWatch{filter: ft.filter, source: watch.NewFake(), result: make(chan watch.Event), done: make(chan struct{})}
	stopped.Stop()
	pod := tearing("a")
	if stopped.forward(watch.Event{Type: watch.Deleted, Object: &pod}) {
		t.Error("a watch that was stopped passes a deletion on")
	}
	ft.watch(metav1.ListOptions{ResourceVersion: "11"})
	ft.want("deleted", ft.see(watch.Deleted, tearing("a")), "DELETED a 12")
}

// maxBytesPerFinishedPod is what may be left of a pod whose teardown is over: the room of the cache's maps, which they keep
// from the most pods that were in them at once.
const maxBytesPerFinishedPod = 16

func TestAPodWhoseTeardownIsOverTakesNoMemory(t *testing.T) {
	const retained, ended, atOnce = 10_000, 10_000, 100
	finished := func(i int) corev1.Pod {
		pod := *jobPod(mainDone, sidecarDone, succeeded)
		pod.Name, pod.ResourceVersion = fmt.Sprintf("import-%05d", i), strconv.Itoa(i+2)
		return pod
	}
	clock := clocktesting.NewFakePassiveClock(noon)
	source := &podSource{}
	for i := range retained {
		source.pods = append(source.pods, finished(i))
	}
	filter := newTestFilter(source, clock)
	informer := filter.informer(&corev1.Pod{}, 0, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc, indexNode: nodeName,
	})
	if err := informer.SetTransform(recovering(trimPod)); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	deleted := make(chan struct{}, atOnce)
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { seen["added"]++ },
		UpdateFunc: func(_, object any) {
			if isTornDown(object.(*corev1.Pod)) {
				seen["ended"]++
			}
		},
		DeleteFunc: func(any) { seen["deleted"]++; deleted <- struct{}{} },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	before := reachable()
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
		running.Status.ContainerStatuses[1] = runs("proxy")
		w.Action(watch.Added, running)
		w.Action(watch.Modified, &pod)
		if (i+1)%atOnce > 0 {
			continue
		}
		// The retention begins when the pod is seen, and the clock is set until it is over for all.
		for range atOnce {
			untilDeleted(clock, deleted)
		}
	}
	// A pod is forgotten a moment after its deletion was taken.
	for followed(filter) > 0 {
		<-time.After(time.Millisecond)
	}
	kept := (reachable() - before) / (retained + ended)
	t.Logf("%d bytes per pod whose teardown is over", kept)
	if kept > maxBytesPerFinishedPod {
		t.Errorf("a pod whose teardown is over takes %d bytes, want at most %d", kept, maxBytesPerFinishedPod)
	}
	if pods := len(informer.GetIndexer().List()); pods != 0 {
		t.Errorf("%d pods are in the cache", pods)
	}
	cancel()
	<-stopped
	if diff := cmp.Diff(map[string]int{"added": ended, "ended": ended, "deleted": ended}, seen); diff != "" {
		t.Errorf("handlers saw (-want +got):\n%s", diff)
	}
}

// untilDeleted lets retentions pass until a pod is deleted.
func untilDeleted(clock *clocktesting.FakePassiveClock, deleted <-chan struct{}) {
	for {
		select {
		case <-deleted:
			return
		case <-time.After(time.Millisecond):
			clock.SetTime(clock.Now().Add(teardownLag))
		}
	}
}
