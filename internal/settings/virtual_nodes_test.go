// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/internal/plan"
)

// The nodes of each provider, as in its public documentation, which docs/virtual-nodes.md cites.
func TestNodeKindOfEachProvider(t *testing.T) {
	node := func(labels map[string]string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	provider := func(value string) corev1.Taint {
		return corev1.Taint{Key: "virtual-kubelet.io/provider", Value: value, Effect: corev1.TaintEffectNoSchedule}
	}
	bursting := node(map[string]string{"topology.kubernetes.io/zone": "cn-north-4a", "kubernetes.io/hostname": "bursting-node"})
	for name, tc := range map[string]struct {
		node      *corev1.Node
		arguments []string
		want      plan.NodeKind
	}{
		"Alibaba Cloud ECI":             {node(map[string]string{"type": "virtual-kubelet"}, provider("alibabacloud")), nil, plan.NodeVirtual},
		"Alibaba Cloud ECI, label only": {node(map[string]string{"type": "virtual-kubelet"}), nil, plan.NodeVirtual},
		"Alibaba Cloud ECI, taint only": {node(nil, provider("alibabacloud")), nil, plan.NodeVirtual},
		"AWS Fargate": {node(map[string]string{"eks.amazonaws.com/compute-type": "fargate"},
			corev1.Taint{Key: "eks.amazonaws.com/compute-type", Value: "fargate", Effect: corev1.TaintEffectNoSchedule}), nil, plan.NodeDaemonless},
		"AWS EC2, managed by EKS": {node(map[string]string{"eks.amazonaws.com/compute-type": "ec2"}), nil, plan.NodeReal},
		"Azure Container Instances": {node(map[string]string{"type": "virtual-kubelet", "kubernetes.io/role": "agent", "beta.kubernetes.io/os": "linux"},
			provider("azure")), nil, plan.NodeVirtual},
		"Azure Container Instances, older taint": {node(map[string]string{"type": "virtual-kubelet"},
			corev1.Taint{Key: "azure.com/aci", Effect: corev1.TaintEffectNoSchedule}), nil, plan.NodeVirtual},
		"Huawei Cloud CCI": {node(map[string]string{"type": "virtual-kubelet"}, provider("huawei")), nil, plan.NodeVirtual},
		"Huawei Cloud CCI, by documented labels only": {bursting, nil, plan.NodeReal},
		"Huawei Cloud CCI, by node name":              {bursting, []string{"--virtual-node-label=kubernetes.io/hostname=bursting-node"}, plan.NodeVirtual},
		"taint of --virtual-node-taint": {
			node(nil, corev1.Taint{Key: "example.com/serverless", Effect: corev1.TaintEffectNoExecute}),
			[]string{"--virtual-node-taint=example.com/serverless"}, plan.NodeVirtual,
		},
		"ordinary node": {node(map[string]string{"type": "compute", "kubernetes.io/role": "agent"},
			corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule}), nil, plan.NodeReal},
		"unknown node": {nil, nil, plan.NodeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			operator, err := Parse(tc.arguments)
			if err != nil {
				t.Fatal(err)
			}
			if got := operator.NodeKindRules.Classify(tc.node); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
