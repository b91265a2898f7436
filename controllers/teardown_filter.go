// SPDX-License-Identifier: Apache-2.0

package controllers

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

// teardownFilter lists and watches pods whose phase was written, without those whose teardown is over, as a selector of the
// API server would that knew them. Such a pod may be retained for days, and nothing is to be done about it. A pod that is
// followed is passed on with its last container ended, and taken out by a deletion after the retention, so that there is
// time to count its end and to see a kubelet undo the phase. Nothing is written to the pod.
type teardownFilter struct {
	source    toolscache.ListerWatcherWithContext
	clock     clock.PassiveClock
	retention time.Duration
	poll      time.Duration // how often it is looked for pods whose retention is over

	mu sync.Mutex
	// pods has at least those that the cache behind the filter has.
	pods map[types.NamespacedName]followedPod
	list uint64 // number of the current list
}

// followedPod is what is known of a pod that was passed on.
type followedPod struct {
	over time.Time // since when its teardown is over; zero while it is not
	list uint64    // the newest list that has the pod
}

func newTeardownFilter(source toolscache.ListerWatcher, clock clock.PassiveClock) *teardownFilter {
	return &teardownFilter{
		source: toolscache.ToListerWatcherWithContext(source), clock: clock, retention: teardownLag, poll: teardownPoll,
		pods: map[types.NamespacedName]followedPod{},
	}
}

// informer makes an informer of what the filter passes on.
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

// endList forgets the pods that are not in the list that has ended: the informer takes them out by itself.
func (f *teardownFilter) endList() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, pod := range f.pods {
		if pod.list != f.list {
			delete(f.pods, key)
		}
	}
}

// pass reports whether the pod is passed on, and follows it then. One whose teardown is over is if it was followed until now,
// or if its phase has just been written.
func (f *teardownFilter) pass(pod *corev1.Pod, written bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := client.ObjectKeyFromObject(pod)
	followed, known := f.pods[key]
	switch over := isTornDown(pod); {
	case !over:
		followed.over = time.Time{}
	case !known && !written:
		return false
	case followed.over.IsZero():
		followed.over = f.clock.Now()
	}
	followed.list = f.list
	f.pods[key] = followed
	return true
}

func (f *teardownFilter) follows(key types.NamespacedName) bool {
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

	initial bool // whether the events are still those that stand in for a list
	// resourceVersion is the newest of the source, which deletions of the filter bear: an older one would have the informer
	// watch from there after an interruption. It is empty until it is known.
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
	for on := true; on; {
		select {
		case event, ok := <-w.source.ResultChan():
			on = ok && w.forward(event)
		case <-ticker.C:
			on = w.deleteExpired()
		case <-w.done:
			on = false
		}
	}
}

// forward passes the event on if it is to be, and returns false when the watch was stopped. A pod is forgotten only after its
// deletion was taken: the cache would keep it otherwise.
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
		return !w.filter.follows(client.ObjectKeyFromObject(pod)) || w.sendDeletion(event)
	default:
		return w.send(event)
	}
}

// deleteExpired passes a deletion on for each pod whose retention is over.
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
