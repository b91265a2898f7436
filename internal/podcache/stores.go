// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// Stores lists the unfinished pods from the informers' own stores, because a client copies each pod that it lists. The pods are
// shared and must not be changed.
type Stores struct {
	// stores has one indexer for each namespace that the operator watches, or one for the whole cluster.
	stores []toolscache.Indexer
}

// indexNode is the index of pods by the name of their node.
const indexNode = "node"

// NewStores adds an index to the informers of pods. They must not have been started.
func NewStores(informers []toolscache.SharedIndexInformer) (Stores, error) {
	var s Stores
	for _, informer := range informers {
		if err := informer.AddIndexers(toolscache.Indexers{indexNode: nodeName}); err != nil {
			return Stores{}, fmt.Errorf("index pods by node: %w", err)
		}
		s.stores = append(s.stores, informer.GetIndexer())
	}
	return s, nil
}

func nodeName(object any) ([]string, error) {
	return []string{object.(*corev1.Pod).Spec.NodeName}, nil
}

// Pods returns the unfinished pods of the namespace, in no order. An empty namespace means all namespaces.
func (s Stores) Pods(_ context.Context, namespace string) ([]*corev1.Pod, error) {
	return s.list(func(store toolscache.Indexer) ([]any, error) {
		if namespace == "" {
			return store.List(), nil
		}
		return store.ByIndex(toolscache.NamespaceIndex, namespace)
	})
}

// PodsOnNode returns the unfinished pods of the node, in no order.
func (s Stores) PodsOnNode(name string) ([]*corev1.Pod, error) {
	return s.list(func(store toolscache.Indexer) ([]any, error) { return store.ByIndex(indexNode, name) })
}

func (s Stores) list(list func(toolscache.Indexer) ([]any, error)) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, store := range s.stores {
		objects, err := list(store)
		if err != nil {
			return nil, fmt.Errorf("list unfinished pods: %w", err)
		}
		pods = slices.Grow(pods, len(objects))
		for _, object := range objects {
			pods = append(pods, object.(*corev1.Pod))
		}
	}
	return pods, nil
}
