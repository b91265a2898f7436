// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func TestFollowEndsActsOncePerEndedPod(t *testing.T) {
	event := func(kind watch.EventType, name string, ended bool) watch.Event {
		pod := newPod("bench", name)
		pod.UID = types.UID(name)
		runs(pod)
		if ended {
			mainEnds(pod)
		}
		return watch.Event{Type: kind, Object: pod}
	}
	all := []watch.Event{
		event(watch.Modified, "running", false),
		event(watch.Deleted, "gone", true),
		{Type: watch.Bookmark, Object: &corev1.Pod{}},
		{Type: watch.Error, Object: &metav1.Status{}},
		event(watch.Modified, "ended", false),
		event(watch.Modified, "ended", true),
		event(watch.Modified, "ended", true), // by the write itself
	}
	for i := range 2 * operatorWorkers {
		all = append(all, event(watch.Modified, fmt.Sprintf("burst-%05d", i), true))
	}
	synctest.Test(t, func(t *testing.T) {
		events, acted, release := make(chan watch.Event), map[string]int{}, make(chan struct{})
		var mu sync.Mutex
		go followEnds(events, func(pod *corev1.Pod) {
			mu.Lock()
			acted[pod.Name]++
			mu.Unlock()
			<-release
		})
		for _, event := range all {
			events <- event // without waiting for the writes
		}
		close(events)
		synctest.Wait()
		if len(acted) != operatorWorkers {
			t.Errorf("acted on %d pods at a time, want %d", len(acted), operatorWorkers)
		}
		close(release)
		synctest.Wait()
		want := map[string]int{"ended": 1}
		for _, name := range numbered("burst", 2*operatorWorkers) {
			want[name] = 1
		}
		if diff := cmp.Diff(want, acted); diff != "" {
			t.Errorf("writes by pod (-want +got):\n%s", diff)
		}
	})
}
