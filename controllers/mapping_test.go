// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

func TestTheCacheHasUnfinishedPodsThatAreNotRestartedForEver(t *testing.T) {
	selector := unfinishedPods()
	for name, tc := range map[string]struct {
		policy corev1.RestartPolicy
		phase  corev1.PodPhase
		want   bool
	}{
		"Always":                  {corev1.RestartPolicyAlways, corev1.PodRunning, false},
		"Never, just created":     {corev1.RestartPolicyNever, "", true},
		"Never, pending":          {corev1.RestartPolicyNever, corev1.PodPending, true},
		"OnFailure, running":      {corev1.RestartPolicyOnFailure, corev1.PodRunning, true},
		"OnFailure, node unknown": {corev1.RestartPolicyOnFailure, corev1.PodUnknown, true},
		"Never, succeeded":        {corev1.RestartPolicyNever, corev1.PodSucceeded, false},
		"Never, failed":           {corev1.RestartPolicyNever, corev1.PodFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := selector.Matches(fields.Set{"spec.restartPolicy": string(tc.policy), "status.phase": string(tc.phase)}); got != tc.want {
				t.Errorf("selected: %t", got)
			}
		})
	}
}

func TestTheCacheKeepsNoManagedFields(t *testing.T) {
	options := CacheOptions(runtime.NewScheme())
	object := namespaceMetadata()
	object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	if _, err := options.DefaultTransform(object); err != nil || object.ManagedFields != nil {
		t.Errorf("kept %v, error %v", object.ManagedFields, err)
	}
	if !options.ReaderFailOnMissingInformer {
		t.Error("a read that nobody has declared would start an informer of its own")
	}
}

func TestNodesAskForTheirPodsWhenTheirKindChanges(t *testing.T) {
	marks := plan.DefaultNodeMarks()
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	}
	realNode, busy, virtualNode := node(nil), node(map[string]string{"load": "high"}), node(map[string]string{"type": "virtual-kubelet"})
	daemonless := node(map[string]string{"eks.amazonaws.com/compute-type": "fargate"})
	changed := nodeKindChanged(marks)
	for name, tc := range map[string]struct{ got, want bool }{
		"a new node":                     {changed.Create(event.TypedCreateEvent[*corev1.Node]{Object: realNode}), true},
		"a node with another label":      {changed.Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: realNode, ObjectNew: busy}), false},
		"a node that becomes virtual":    {changed.Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: realNode, ObjectNew: virtualNode}), true},
		"a node that becomes real":       {changed.Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: virtualNode, ObjectNew: busy}), true},
		"a node that becomes daemonless": {changed.Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: realNode, ObjectNew: daemonless}), true},
		"a node that goes":               {changed.Delete(event.TypedDeleteEvent[*corev1.Node]{Object: realNode}), false},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t, want %t", name, tc.got, tc.want)
		}
	}
}

func TestPoliciesAskForTheirPodsWhenTheirDeclarationChanges(t *testing.T) {
	type object = *v1alpha1.SidecarTerminationPolicy
	policy := func(generation int64, annotations map[string]string) object {
		return &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Generation: generation, Annotations: annotations}}
	}
	again, without := policy(1, nil), policy(1, nil)
	again.UID, without.Spec.PrePull = "another", &v1alpha1.PrePull{}
	changed := declarationChanged[object]()
	update := func(before, after object) bool {
		return changed.Update(event.TypedUpdateEvent[object]{ObjectOld: before, ObjectNew: after})
	}
	for name, tc := range map[string]struct{ got, want bool }{
		"a new one":                   {changed.Create(event.TypedCreateEvent[object]{Object: policy(1, nil)}), true},
		"one that goes":               {changed.Delete(event.TypedDeleteEvent[object]{Object: policy(1, nil)}), true},
		"one with another spec":       {update(policy(1, nil), policy(2, nil)), true},
		"one with another status":     {update(policy(1, nil), policy(1, nil)), false},
		"one with another annotation": {update(policy(1, nil), policy(1, map[string]string{"a": "b"})), false},
		// A watch that was interrupted tells of the two as of one.
		"one that took the name of another": {update(policy(1, nil), again), true},
		// Its generation stays as it is.
		"one that an older definition has taken a field from": {update(without, policy(1, nil)), true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t, want %t", name, tc.got, tc.want)
		}
	}
}

func TestNamespacesAskForTheirPodsWhenTheirLabelsChange(t *testing.T) {
	type object = *metav1.PartialObjectMetadata
	namespace := func(labels map[string]string, annotations map[string]string) object {
		n := namespaceMetadata()
		n.Labels, n.Annotations = labels, annotations
		return n
	}
	bare, noted, labelled := namespace(nil, nil), namespace(nil, map[string]string{"a": "b"}), namespace(map[string]string{"a": "b"}, nil)
	changed := namespaceLabelsChanged()
	for name, tc := range map[string]struct{ got, want bool }{
		"one of the first list":        {changed.Create(event.TypedCreateEvent[object]{Object: bare, IsInInitialList: true}), false},
		"a new one":                    {changed.Create(event.TypedCreateEvent[object]{Object: bare}), true},
		"one with another annotation":  {changed.Update(event.TypedUpdateEvent[object]{ObjectOld: bare, ObjectNew: noted}), false},
		"one with another label":       {changed.Update(event.TypedUpdateEvent[object]{ObjectOld: bare, ObjectNew: labelled}), true},
		"one that goes, with its pods": {changed.Delete(event.TypedDeleteEvent[object]{Object: bare}), false},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t, want %t", name, tc.got, tc.want)
		}
	}
}

func TestPodsWhosePhaseWasWrittenAreLookedAtToTheEndOfTheirSidecars(t *testing.T) {
	type object = *corev1.Pod
	tearing, torn, back := newPod(mainDone, succeeded), newPod(mainDone, sidecarDone, succeeded), newPod(mainDone)
	passes := tearingDown()
	for name, tc := range map[string]struct{ got, want bool }{
		"the phase was written now":             {passes.Create(event.TypedCreateEvent[object]{Object: tearing}), true},
		"the phase was written, nothing ran":    {passes.Create(event.TypedCreateEvent[object]{Object: torn}), true},
		"it was torn down before the start":     {passes.Create(event.TypedCreateEvent[object]{Object: torn, IsInInitialList: true}), false},
		"it was being torn down at the start":   {passes.Create(event.TypedCreateEvent[object]{Object: tearing, IsInInitialList: true}), true},
		"its phase had come back at the start":  {passes.Create(event.TypedCreateEvent[object]{Object: back, IsInInitialList: true}), true},
		"its sidecar ends":                      {passes.Update(event.TypedUpdateEvent[object]{ObjectOld: tearing, ObjectNew: torn}), true},
		"its phase comes back":                  {passes.Update(event.TypedUpdateEvent[object]{ObjectOld: torn, ObjectNew: back}), true},
		"it is touched afterwards":              {passes.Update(event.TypedUpdateEvent[object]{ObjectOld: torn, ObjectNew: torn}), false},
		"it is deleted, and its record with it": {passes.Delete(event.TypedDeleteEvent[object]{Object: torn}), true},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %t, want %t", name, tc.got, tc.want)
		}
	}
}
