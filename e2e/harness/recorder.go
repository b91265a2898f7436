//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// retryWatch is the backoff after a failed watch.
const retryWatch = 500 * time.Millisecond

// Recorder records every state of the pods, Jobs and CRRs of a namespace.
type Recorder struct {
	client    client.WithWatch
	namespace string
	started   time.Time

	mutex   sync.Mutex
	changed chan struct{}
	seen    Seen
}

// startRecorder records until the test ends.
func startRecorder(t *testing.T, from client.WithWatch, namespace string) *Recorder {
	t.Helper()
	recorder := &Recorder{
		client: from, namespace: namespace, started: time.Now(), changed: make(chan struct{}),
		seen: Seen{
			jobs: map[string]*batchv1.Job{},
			pods: map[types.UID]*PodRecord{},
			crrs: map[types.UID]*CRR{},
		},
	}
	ctx := t.Context()
	go recorder.follow(ctx, func() client.ObjectList { return &corev1.PodList{} }, func(event watch.EventType, object client.Object) {
		recorder.seen.observePod(event, object.(*corev1.Pod), time.Now())
	})
	go recorder.follow(ctx, func() client.ObjectList { return &batchv1.JobList{} }, func(_ watch.EventType, object client.Object) {
		recorder.seen.jobs[object.GetName()] = object.(*batchv1.Job)
	})
	go recorder.follow(ctx, func() client.ObjectList { return KruiseList("ContainerRecreateRequest") }, func(event watch.EventType, object client.Object) {
		recorder.seen.observeCRR(event, object.(*unstructured.Unstructured), time.Now())
	})
	return recorder
}

// follow watches one kind until the context ends. It retries kinds that the cluster does not serve.
func (r *Recorder) follow(ctx context.Context, newList func() client.ObjectList, observe func(watch.EventType, client.Object)) {
	for ctx.Err() == nil {
		if err := r.listAndWatch(ctx, newList(), observe); err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(retryWatch):
			}
		}
	}
}

func (r *Recorder) listAndWatch(ctx context.Context, list client.ObjectList, observe func(watch.EventType, client.Object)) error {
	// Without a resource version the watch starts with an event for each existing object.
	watcher, err := r.client.Watch(ctx, list, client.InNamespace(r.namespace))
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(client.Object)
		if event.Type == watch.Error || !ok {
			return fmt.Errorf("the watch of %T failed: %v", list, event.Object)
		}
		if event.Type == watch.Bookmark {
			continue
		}
		r.mutex.Lock()
		observe(event.Type, object)
		close(r.changed)
		r.changed = make(chan struct{})
		r.mutex.Unlock()
	}
	return nil
}

// NoteMissing marks pods that no longer exist as deleted. An interrupted watch does not report them.
func (r *Recorder) NoteMissing(ctx context.Context) error {
	r.mutex.Lock()
	known := slices.Collect(maps.Keys(r.seen.pods))
	r.mutex.Unlock()
	pods := &corev1.PodList{}
	if err := r.client.List(ctx, pods, client.InNamespace(r.namespace)); err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, uid := range known {
		if !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.UID == uid }) {
			r.seen.pods[uid].Deleted = true
		}
	}
	return nil
}

// wait runs the check after each change until it returns nil or the context ends, and returns its last error.
func (r *Recorder) wait(ctx context.Context, check func(Seen) error) error {
	for {
		r.mutex.Lock()
		err, changed := check(r.seen), r.changed
		r.mutex.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-changed:
		}
	}
}

// Look calls the function with what was recorded so far. The function must not retain it.
func (r *Recorder) Look(look func(Seen)) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	look(r.seen)
}
