// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// clients talk to the API server as the administrator.
type clients struct {
	typed   kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func (c *Cluster) connect() (*clients, error) {
	configuration, err := clientcmd.BuildConfigFromFlags("", c.layout.AdminKubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return connectWith(configuration)
}

// connectWith returns clients of any API server.
func connectWith(configuration *rest.Config) (*clients, error) {
	configuration = rest.CopyConfig(configuration)
	configuration.QPS = -1
	typed, err := kubernetes.NewForConfig(configuration)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	generic, err := dynamic.NewForConfig(configuration)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &clients{
		typed:   typed,
		dynamic: generic,
		mapper:  restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(typed.Discovery())),
	}, nil
}

func (c *clients) nodeReady(ctx context.Context, name string) error {
	node, err := c.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the node: %w", err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return untainted(node)
		}
		if condition.Type == corev1.NodeReady {
			return fmt.Errorf("it is not: %s", condition.Message)
		}
	}
	return errors.New("it has not reported yet")
}

// untainted fails while the node still has the taint of nodes that are not ready, which
// keeps pods away until some time after it is.
func untainted(node *corev1.Node) error {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return fmt.Errorf("it still has the taint %s", taint.Key)
		}
	}
	return nil
}

func (c *clients) defaultAccountExists(ctx context.Context) error {
	if _, err := c.typed.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get the default service account: %w", err)
	}
	return nil
}
