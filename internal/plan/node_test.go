// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/internal/plan"
)

func TestClassify(t *testing.T) {
	labelled := func(labels ...string) *corev1.Node {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
		for i := 0; i < len(labels); i += 2 {
			node.Labels[labels[i]] = labels[i+1]
		}
		return node
	}
	tainted := func(key string) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}}}
	}
	own := plan.NodeKindRules{
		Virtual:    plan.NodeMatcher{Labels: []plan.LabelMatch{{Key: "example.com/serverless"}}, Taints: []string{"example.com/burst"}},
		Daemonless: plan.NodeMatcher{Labels: []plan.LabelMatch{{Key: "kubernetes.io/os", Value: "windows"}}, Taints: []string{"example.com/bare"}},
	}
	tests := map[string]struct {
		rules plan.NodeKindRules
		node  *corev1.Node
		want  plan.NodeKind
	}{
		"a node that is not known":                        {plan.DefaultNodeKindRules(), nil, plan.NodeUnknown},
		"a node without labels is real":                   {plan.DefaultNodeKindRules(), &corev1.Node{}, plan.NodeReal},
		"virtual-kubelet's label":                         {plan.DefaultNodeKindRules(), labelled("type", "virtual-kubelet"), plan.NodeVirtual},
		"the label's key with another value is real":      {plan.DefaultNodeKindRules(), labelled("type", "gpu"), plan.NodeReal},
		"Fargate's label":                                 {plan.DefaultNodeKindRules(), labelled("eks.amazonaws.com/compute-type", "fargate"), plan.NodeDaemonless},
		"virtual-kubelet's taint":                         {plan.DefaultNodeKindRules(), tainted("virtual-kubelet.io/provider"), plan.NodeVirtual},
		"another taint is real":                           {plan.DefaultNodeKindRules(), tainted("node.kubernetes.io/not-ready"), plan.NodeReal},
		"a rule without a value takes any value":          {own, labelled("example.com/serverless", ""), plan.NodeVirtual},
		"a taint of the user's":                           {own, tainted("example.com/burst"), plan.NodeVirtual},
		"a label of nodes without a daemon":               {own, labelled("kubernetes.io/os", "windows"), plan.NodeDaemonless},
		"that label with another value is real":           {own, labelled("kubernetes.io/os", "linux"), plan.NodeReal},
		"a taint of nodes without a daemon":               {own, tainted("example.com/bare"), plan.NodeDaemonless},
		"a virtual mark goes before a daemonless one":     {own, labelled("kubernetes.io/os", "windows", "example.com/serverless", "true"), plan.NodeVirtual},
		"own rules take the place of the default ones":    {own, labelled("type", "virtual-kubelet"), plan.NodeReal},
		"the kind of all nodes":                           {plan.NodeKindRules{All: plan.NodeReal}, labelled("type", "virtual-kubelet"), plan.NodeReal},
		"the kind of all nodes, which are not read":       {plan.NodeKindRules{All: plan.NodeNotRead}, nil, plan.NodeNotRead},
		"without any rule every known node is a real one": {plan.NodeKindRules{}, labelled("type", "virtual-kubelet"), plan.NodeReal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.rules.Classify(test.node)); diff != "" {
				t.Errorf("Classify() (-want +got):\n%s", diff)
			}
		})
	}
}
