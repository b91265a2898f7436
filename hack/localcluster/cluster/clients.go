// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// connect returns a client that acts as the administrator.
func (c *Cluster) connect() (client.Client, error) {
	configuration, err := clientcmd.BuildConfigFromFlags("", c.layout.AdminKubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return connectWith(configuration)
}

// connectWith returns a client of any API server.
func connectWith(configuration *rest.Config) (client.Client, error) {
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), apiextensionsv1.AddToScheme(types)); err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	configuration = rest.CopyConfig(configuration)
	configuration.QPS = -1
	api, err := client.New(configuration, client.Options{Scheme: types})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return api, nil
}

// nodeReady fails unless the node is Ready and without the taints of nodes that are not. A taint keeps pods away until some
// time after the node is Ready.
func nodeReady(ctx context.Context, api client.Client, name string) error {
	node := &corev1.Node{}
	if err := api.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return fmt.Errorf("get the node: %w", err)
	}
	ready := slices.IndexFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool { return condition.Type == corev1.NodeReady })
	if ready < 0 {
		return errors.New("it has not reported yet")
	}
	if condition := node.Status.Conditions[ready]; condition.Status != corev1.ConditionTrue {
		return fmt.Errorf("it is not: %s", condition.Message)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return fmt.Errorf("it still has the taint %s", taint.Key)
		}
	}
	return nil
}

func defaultAccountExists(ctx context.Context, api client.Client) error {
	if err := api.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}, &corev1.ServiceAccount{}); err != nil {
		return fmt.Errorf("get the default service account: %w", err)
	}
	return nil
}
