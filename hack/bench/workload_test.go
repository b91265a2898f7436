// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestWhatIsNotRemovedInTimeIsLeftToTheNextRequest(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		name      string
		failures  []error
		wantCalls int
		wantError bool
	}{
		{"the first request does it", nil, 1, false},
		{"two requests take too long", []error{apierrors.NewTimeoutError("it took too long", 0), apierrors.NewServerTimeout(pods, "delete", 0)}, 3, false},
		{"the API server resets the stream", []error{errors.New("stream error")}, 2, false},
		{"there is no such kind", []error{apierrors.NewNotFound(pods, "")}, 1, false},
		{"it is forbidden", []error{apierrors.NewForbidden(pods, "", nil)}, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			calls := 0
			c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				DeleteAllOf: func(context.Context, client.WithWatch, client.Object, ...client.DeleteAllOfOption) error {
					if calls++; calls <= len(test.failures) {
						return test.failures[calls-1]
					}
					return nil
				},
			}).Build()
			err := removeAll(t.Context(), c, &corev1.Pod{}, "bench")
			if calls != test.wantCalls || (err != nil) != test.wantError {
				t.Errorf("got %d requests and %v; want %d, and an error %t", calls, err, test.wantCalls, test.wantError)
			}
		})
	}
}

func TestFinishes(t *testing.T) {
	pod := newPod("bench", "import")
	finishes(pod)
	if pod.Status.Phase != corev1.PodSucceeded || len(pod.Status.ContainerStatuses) != len(pod.Spec.Containers) {
		t.Errorf("got phase %s and %d statuses, want Succeeded and %d", pod.Status.Phase, len(pod.Status.ContainerStatuses), len(pod.Spec.Containers))
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Terminated == nil || status.State.Running != nil || status.Ready {
			t.Errorf("container %s: got %+v, want it terminated", status.Name, status)
		}
	}
}

func TestCandidatesAreSpreadOverNamespacesAndNodes(t *testing.T) {
	w := &crowd{namespace: "burst", others: []string{"a", "b"}}
	got := map[[2]string]int{}
	for number := range 9 {
		pod := w.candidate("candidate", number)
		got[[2]string{pod.Namespace, pod.Spec.NodeName}]++
	}
	want := map[[2]string]int{{"burst", nodeName}: 3, {"a", "a"}: 3, {"b", "b"}: 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods by namespace and node (-want +got):\n%s", diff)
	}
}
