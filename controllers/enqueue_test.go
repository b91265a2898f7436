// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestPodsWithEndedContainersComeFirst(t *testing.T) {
	pod := func(name string, ended bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name}}
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		if ended {
			state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: state}}
		return p
	}
	running1, running2, ended, live := pod("running-1", false), pod("running-2", false), pod("ended", true), pod("live", false)
	update := func(queue podQueue) {
		h := &podHandler{}
		changed := live.DeepCopy()
		changed.ResourceVersion = "2"
		h.Update(t.Context(), event.TypedUpdateEvent[*corev1.Pod]{ObjectOld: live, ObjectNew: changed}, queue)
	}
	for name, enqueue := range map[string]func(queue podQueue){
		"initial list": func(queue podQueue) {
			for _, p := range []*corev1.Pod{running1, running2, ended} {
				(&podHandler{}).Create(t.Context(), event.TypedCreateEvent[*corev1.Pod]{Object: p, IsInInitialList: true}, queue)
			}
		},
		"many pods at once": func(queue podQueue) {
			enqueuePods(t.Context(), queue, []*corev1.Pod{running1, running2, ended}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			queue := priorityqueue.New[reconcile.Request](t.Name())
			t.Cleanup(queue.ShutDown)
			enqueue(queue)
			update(queue)
			var got []string
			for range 4 {
				request, _ := queue.Get()
				got = append(got, request.Name)
			}
			if diff := cmp.Diff([]string{"ended", "live", "running-1", "running-2"}, got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}
