// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
)

// newNode returns the node to register, with the label and taint of virtual-kubelet's providers.
func newNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"type": "virtual-kubelet", corev1.LabelHostname: name}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "virtual-kubelet.io/provider", Value: "process", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("64"),
				corev1.ResourceMemory: resource.MustParse("256Gi"),
				corev1.ResourcePods:   resource.MustParse("500"),
			},
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.35.4-vk-v1.13.0"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
}

func newNodeController(client kubernetes.Interface, object *corev1.Node) (*node.NodeController, error) {
	nodes := client.CoreV1().Nodes()
	return node.NewNodeController(node.NewNaiveNodeProvider(), object, nodes,
		// A deleted node is registered again when its status is written next.
		node.WithNodePingInterval(2*time.Second),
		node.WithNodeStatusUpdateErrorHandler(func(ctx context.Context, err error) error {
			if !apierrors.IsNotFound(err) {
				return err
			}
			_, err = nodes.Create(ctx, object.DeepCopy(), metav1.CreateOptions{})
			return err
		}))
}

func newPodController(ctx context.Context, client kubernetes.Interface, name string, handler node.PodLifecycleHandler) (*node.PodController, error) {
	onNode := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", name).String()
	}))
	// The pod controller requires more informers than it uses here.
	unused := informers.NewSharedInformerFactory(client, 0).Core().V1()
	controller, err := node.NewPodController(node.PodControllerConfig{
		PodClient:                 client.CoreV1(),
		PodInformer:               onNode.Core().V1().Pods(),
		EventRecorder:             &record.FakeRecorder{},
		Provider:                  handler,
		ConfigMapInformer:         unused.ConfigMaps(),
		SecretInformer:            unused.Secrets(),
		ServiceInformer:           unused.Services(),
		SkipDownwardAPIResolution: true,
	})
	onNode.Start(ctx.Done())
	return controller, err
}
