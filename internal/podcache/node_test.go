// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// A node keeps what plan.NodeKindRules read, and the version and features of its kubelet unless the node has written long ones.
func TestTrimNode(t *testing.T) {
	labels := map[string]string{"type": "virtual-kubelet", "other": "label"}
	taints := []corev1.Taint{{Key: "other"}, {Key: "virtual-kubelet.io/provider", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	for version, kept := range map[string]string{"v1.36.3": "v1.36.3", strings.Repeat("v", 300): ""} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n", ResourceVersion: "5", Labels: labels, Annotations: map[string]string{"a": "b"}},
			Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: taints},
			Status: corev1.NodeStatus{
				Images:           []corev1.ContainerImage{{SizeBytes: 1}},
				NodeInfo:         corev1.NodeSystemInfo{KubeletVersion: version, KernelVersion: "6.1"},
				DeclaredFeatures: append([]string{"A", strings.Repeat("f", 300)}, slices.Repeat([]string{"B"}, 300)...),
				Conditions:       []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}
		want := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n", ResourceVersion: "5", Labels: labels},
			Spec:       corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{
				NodeInfo:         corev1.NodeSystemInfo{KubeletVersion: kept},
				DeclaredFeatures: append([]string{"A"}, slices.Repeat([]string{"B"}, maxFeatures-2)...),
			},
		}
		got, err := trimNode(node)
		if diff := cmp.Diff(any(want), got); diff != "" || err != nil {
			t.Errorf("trimmed node: error %v (-want +got):\n%s", err, diff)
		}
	}
}

func TestTrimNodeLeavesOtherObjects(t *testing.T) {
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "node-1"}
	if got, err := trimNode(tombstone); got != any(tombstone) || err != nil {
		t.Errorf("got %v, error %v", got, err)
	}
}
