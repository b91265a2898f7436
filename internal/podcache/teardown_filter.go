// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// teardownFilter lists and watches pods in teardown and drops those whose teardown is over, which the API server has no selector
// for. A Job's finished pod may stay for days and would only take memory. The filter passes a pod on until its last container
// has ended, and sends a deletion after the retention. That leaves time to count the pod and to notice a kubelet that undoes
// the phase. The filter writes nothing.
type teardownFilter struct {
	source    toolscache.ListerWatcherWithContext
	clock     clock.PassiveClock
	retention time.Duration
	poll      time.Duration // the interval of checks for expired retentions

	mu sync.Mutex
	// pods holds at least the pods that the cache behind the filter holds.
	pods map[types.NamespacedName]passedPod
	list uint64 // number of the current list
}

// passedPod is a pod that the filter has passed on.
type passedPod struct {
	over time.Time // when its teardown was first seen to be over; zero before
	list uint64    // the newest list that has the pod
}

func newTeardownFilter(source toolscache.ListerWatcher, clock clock.PassiveClock) *teardownFilter {
	return &teardownFilter{
		source: toolscache.ToListerWatcherWithContext(source), clock: clock, retention: TeardownLag, poll: TeardownPoll,
		pods: map[types.NamespacedName]passedPod{},
	}
}

// informer returns an informer of the pods that the filter passes on.
func (f *teardownFilter) informer(object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: f.listPods, WatchFuncWithContext: f.watchPods,
	}, object, resync, indexers)
}

func (f *teardownFilter) listPods(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		f.beginList()
	}
	list, err := f.source.ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	if pods, ok := list.(*corev1.PodList); ok {
		pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !f.pass(&pod, false) })
		if pods.Continue == "" {
			f.endList()
		}
	}
	return list, nil
}

func (f *teardownFilter) watchPods(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	source, err := f.source.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	w := &teardownWatch{filter: f, source: source, result: make(chan watch.Event), done: make(chan struct{})}
	if w.initial = ptr.Deref(options.SendInitialEvents, false); w.initial {
		f.beginList()
	} else {
		w.resourceVersion = options.ResourceVersion
	}
	go w.run()
	return w, nil
}

func (f *teardownFilter) beginList() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list++
}

// endList forgets the pods that the list lacks. The informer deletes them on its own.
func (f *teardownFilter) endList() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, pod := range f.pods {
		if pod.list != f.list {
			delete(f.pods, key)
		}
	}
}

// pass reports whether to pass the pod on, and remembers it if so. A pod whose teardown is over passes only if it passed before
// or if it is new to the watch, because its phase was written just now.
func (f *teardownFilter) pass(pod *corev1.Pod, isNew bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := client.ObjectKeyFromObject(pod)
	passed, known := f.pods[key]
	switch over := teardownIsOver(pod); {
	case !over:
		passed.over = time.Time{}
	case !known && !isNew:
		return false
	case passed.over.IsZero():
		passed.over = f.clock.Now()
	}
	passed.list = f.list
	f.pods[key] = passed
	return true
}

func (f *teardownFilter) hasPassed(key types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.pods[key]
	return known
}

func (f *teardownFilter) forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, key)
}

// expired returns the pods whose retention is over.
func (f *teardownFilter) expired() []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []types.NamespacedName
	for key, pod := range f.pods {
		if !pod.over.IsZero() && f.clock.Since(pod.over) >= f.retention {
			keys = append(keys, key)
		}
	}
	return keys
}

// teardownWatch is one watch of a teardownFilter.
type teardownWatch struct {
	filter *teardownFilter
	source watch.Interface
	result chan watch.Event
	done   chan struct{}
	stop   sync.Once

	initial bool // the watch still sends its initial list
	// resourceVersion is the newest version of the source, or empty while it is unknown. The filter's deletions carry it: after
	// an interruption the informer watches from the last version that it saw.
	resourceVersion string
}

// ResultChan is closed when the source ends or the watch is stopped.
func (w *teardownWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop ends the watch.
func (w *teardownWatch) Stop() {
	w.stop.Do(func() { close(w.done) })
	w.source.Stop()
}

func (w *teardownWatch) run() {
	defer close(w.result)
	ticker := time.NewTicker(w.filter.poll)
	defer ticker.Stop()
	for open := true; open; {
		select {
		case event, ok := <-w.source.ResultChan():
			open = ok && w.forward(event)
		case <-ticker.C:
			open = w.deleteExpired()
		case <-w.done:
			open = false
		}
	}
}

// forward passes the event on unless the filter drops it, and returns false once the watch is stopped. It forgets a pod only
// after the informer has received the deletion: the cache would keep the pod otherwise.
func (w *teardownWatch) forward(event watch.Event) bool {
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		return w.send(event)
	}
	if event.Type == watch.Bookmark && w.initial && pod.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		w.initial = false
		w.filter.endList()
	}
	if !w.initial {
		w.resourceVersion = pod.ResourceVersion
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		return !w.filter.pass(pod, event.Type == watch.Added && !w.initial) || w.send(event)
	case watch.Deleted:
		return !w.filter.hasPassed(client.ObjectKeyFromObject(pod)) || w.sendDeletion(event)
	default:
		return w.send(event)
	}
}

// deleteExpired sends a deletion for each pod whose retention is over. It returns false once the watch is stopped.
func (w *teardownWatch) deleteExpired() bool {
	if w.resourceVersion == "" {
		return true
	}
	for _, key := range w.filter.expired() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: w.resourceVersion}}
		if !w.sendDeletion(watch.Event{Type: watch.Deleted, Object: pod}) {
			return false
		}
	}
	return true
}

func (w *teardownWatch) sendDeletion(event watch.Event) bool {
	if !w.send(event) {
		return false
	}
	w.filter.forget(client.ObjectKeyFromObject(event.Object.(*corev1.Pod)))
	return true
}

func (w *teardownWatch) send(event watch.Event) bool {
	select {
	case w.result <- event:
		return true
	case <-w.done:
		return false
	}
}
