// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
)

var virtualKubelet = map[string]string{"type": "virtual-kubelet"}

// createNode creates a node with the name and the labels.
func (f *fixture) createNode(name string, labels map[string]string) {
	f.Helper()
	f.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// A pod is scheduled, and its node is seen after it.
func TestPodWaitsForItsNode(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		what   string
		ended  func(*corev1.Pod) bool
	}{
		"a real one":    {nil, "its phase is Succeeded", succeeded},
		"a virtual one": {virtualKubelet, "its image is swapped", imageSwapped},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.startOperator(testOptions())
			policy := f.newPolicy("mesh")
			pod := f.newPod("job-1", func(p *corev1.Pod) {
				p.Spec.NodeName = ""
				p.Status = corev1.PodStatus{Phase: corev1.PodPending}
			})
			f.untilCounts(policy, counts{matched: 1, waiting: 1})
			f.untouched(pod)

			late := f.namespace + "-late"
			binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: late}}
			if err := f.SubResource("binding").Create(t.Context(), pod, binding); err != nil {
				t.Fatal(err)
			}
			f.change(pod, func(p *corev1.Pod) { p.Status = podtest.New(podtest.MainDone).Status })
			f.until(pod, "is marked", marked)
			f.untilCounts(policy, counts{matched: 1, terminating: 1})
			if f.reload(pod); outcomeOf(pod) != "Running proxy Succeeded" || imageSwapped(pod) {
				t.Errorf("pod is %q with images %v", outcomeOf(pod), images(pod))
			}
			f.createNode(late, tc.labels)
			f.until(pod, tc.what, tc.ended)
			f.nothingWentWrong()
		})
	}
}

func TestPodsFollowNodeKind(t *testing.T) {
	f := newFixture(t)
	options := testOptions()
	options.NodeKindRules.Virtual.Taints = append(options.NodeKindRules.Virtual.Taints, "example.com/no-kubelet")
	f.startOperator(options)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.node}}
	taint := func(taints ...corev1.Taint) {
		f.reload(node)
		node.Spec.Taints = taints
		f.update(node)
	}
	virtual := corev1.Taint{Key: "example.com/no-kubelet", Effect: corev1.TaintEffectNoSchedule}
	taint(virtual)
	// Nothing tears a pod down on a virtual node, so this mode waits for a real one.
	policy := f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""), func(spec *v1alpha1.PolicySpec) { spec.Fallback = v1alpha1.FallbackDisabled })
	pod := f.newPod("job-1", podtest.MainDone)
	f.untilCounts(policy, counts{matched: 1, stuck: 1})
	if f.reload(pod); outcomeOf(pod) != "Running proxy Succeeded" {
		t.Errorf("pod is %q", outcomeOf(pod))
	}
	taint()
	f.until(pod, "its phase is Succeeded", succeeded)

	other := f.newPod("job-2")
	ends := func(pod *corev1.Pod) bool { return plan.MarkedToEnd(pod) }
	f.until(other, "is marked to end by its phase", ends)
	taint(virtual)
	before := policy.DeepCopy()
	policy.Spec.Fallback = v1alpha1.FallbackEnabled
	if err := f.Patch(t.Context(), policy, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	f.until(other, "is not marked to end by its phase", func(pod *corev1.Pod) bool { return !ends(pod) })
	f.change(other, podtest.MainDone)
	f.until(other, "its image is swapped", imageSwapped)
}
