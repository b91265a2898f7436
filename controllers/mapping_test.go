// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/podinput"
)

func TestChangesEnqueuePods(t *testing.T) {
	node := func(labels map[string]string) client.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	}
	realNode, busy, virtualNode := node(nil), node(map[string]string{"load": "high"}), node(map[string]string{"type": "virtual-kubelet"})
	daemonless := node(map[string]string{"eks.amazonaws.com/compute-type": "fargate"})
	policy := func(generation int64, annotations map[string]string) client.Object {
		return &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Generation: generation, Annotations: annotations}}
	}
	again := policy(1, nil)
	again.SetUID("another")
	namespace := func(labels map[string]string, annotations map[string]string) client.Object {
		n := podinput.NamespaceMetadata()
		n.Labels, n.Annotations = labels, annotations
		return n
	}
	bare, noted, labelled := namespace(nil, nil), namespace(nil, map[string]string{"a": "b"}), namespace(map[string]string{"a": "b"}, nil)
	nodes, policies, namespaces := nodeKindChanged(plan.DefaultNodeKindRules()), declarationChanged(), namespaceLabelsChanged()
	for name, tc := range map[string]struct {
		changed     predicate.Predicate
		before, now client.Object // nil for none
		want        bool
	}{
		"new node":                      {nodes, nil, realNode, true},
		"node with another label":       {nodes, realNode, busy, false},
		"node that becomes virtual":     {nodes, realNode, virtualNode, true},
		"node that becomes real":        {nodes, virtualNode, busy, true},
		"node that becomes daemonless":  {nodes, realNode, daemonless, true},
		"node that goes":                {nodes, realNode, nil, false},
		"new policy":                    {policies, nil, policy(1, nil), true},
		"policy that goes":              {policies, policy(1, nil), nil, true},
		"policy with another spec":      {policies, policy(1, nil), policy(2, nil), true},
		"policy with another status":    {policies, policy(1, nil), policy(1, nil), false},
		"policy with other annotations": {policies, policy(1, nil), policy(1, map[string]string{"a": "b"}), false},
		// An interrupted watch reports the two policies as one update.
		"policy that reuses a name":        {policies, policy(1, nil), again, true},
		"new namespace":                    {namespaces, nil, bare, true},
		"namespace with other annotations": {namespaces, bare, noted, false},
		"namespace with another label":     {namespaces, bare, labelled, true},
		"namespace that goes, with pods":   {namespaces, bare, nil, false},
	} {
		var got bool
		switch {
		case tc.before == nil:
			got = tc.changed.Create(event.CreateEvent{Object: tc.now})
		case tc.now == nil:
			got = tc.changed.Delete(event.DeleteEvent{Object: tc.before})
		default:
			got = tc.changed.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.now})
		}
		if got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// The initial list of pods enqueues every pod.
func TestInitialListEnqueuesNoPodsOfOtherObjects(t *testing.T) {
	all := []*podcache.Pod{cachedPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job-1"}})}
	h := enqueuePodsOf(func(client.Object) ([]*podcache.Pod, error) { return all, nil })
	for inInitialList, want := range map[bool]int{true: 0, false: 1} {
		queue := newTestQueue(t)
		h.Create(t.Context(), event.CreateEvent{Object: &corev1.Node{}, IsInInitialList: inInitialList}, queue)
		if got := queue.Len(); got != want {
			t.Errorf("an object that is in the initial list (%t) enqueues %d pods, want %d", inInitialList, got, want)
		}
	}
}

func TestPodsWhoseMainsMayBeDoneComeFirst(t *testing.T) {
	pod := func(name string, ended ...string) *podcache.Pod {
		return cachedPod(podtest.New(func(p *corev1.Pod) {
			p.Name = name
			p.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
			p.Annotations = map[string]string{v1alpha1.AnnotationIgnoredExitCodes: "proxy/" + string(p.UID)}
			for i, container := range p.Spec.Containers {
				if slices.Contains(ended, container.Name) {
					p.Status.ContainerStatuses[i] = podtest.Ended(container.Name, 0)
				}
			}
		}))
	}
	running, sidecarEnded, done, live := pod("running"), pod("sidecar-ended", "proxy"), pod("done", "main"), pod("live")
	update := func(queue podQueue) {
		h := &podHandler{}
		changed := *live
		changed.ResourceVersion = "18"
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: live, ObjectNew: &changed}, queue)
	}
	for name, enqueue := range map[string]func(queue podQueue){
		"initial list": func(queue podQueue) {
			for _, p := range []*podcache.Pod{running, sidecarEnded, done} {
				(&podHandler{}).Create(t.Context(), event.CreateEvent{Object: p, IsInInitialList: true}, queue)
			}
		},
		"many pods at once": func(queue podQueue) {
			enqueuePods(t.Context(), queue, []*podcache.Pod{running, sidecarEnded, done}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			queue := newTestQueue(t)
			enqueue(queue)
			update(queue)
			want := []string{"batch/done", "batch/live", "batch/running low", "batch/sidecar-ended low"}
			if diff := cmp.Diff(want, drain(queue)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}
