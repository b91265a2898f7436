// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// Stores reads the unfinished pods from the informers' own stores. A client cannot, because they hold a type of their own.
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

func nodeName(object any) ([]string, error) { return []string{object.(*Pod).node}, nil }

// Pod returns a copy of the unfinished pod with the fields that the cache keeps. The error is NotFound if the pod has finished or was deleted.
func (s Stores) Pod(key types.NamespacedName) (*corev1.Pod, error) {
	for _, store := range s.stores {
		object, found, err := store.GetByKey(key.String())
		if err != nil {
			return nil, fmt.Errorf("find pod: %w", err)
		}
		if found {
			return object.(*Pod).Decode()
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
}

// Pods returns the unfinished pods of the namespace, in no order. An empty namespace means all namespaces.
func (s Stores) Pods(namespace string) ([]*Pod, error) {
	return s.list(func(store toolscache.Indexer) ([]any, error) {
		if namespace == "" {
			return store.List(), nil
		}
		return store.ByIndex(toolscache.NamespaceIndex, namespace)
	})
}

// PodsOnNode returns the unfinished pods of the node, in no order.
func (s Stores) PodsOnNode(name string) ([]*Pod, error) {
	return s.list(func(store toolscache.Indexer) ([]any, error) { return store.ByIndex(indexNode, name) })
}

func (s Stores) list(list func(toolscache.Indexer) ([]any, error)) ([]*Pod, error) {
	var pods []*Pod
	for _, store := range s.stores {
		objects, err := list(store)
		if err != nil {
			return nil, fmt.Errorf("list unfinished pods: %w", err)
		}
		pods = slices.Grow(pods, len(objects))
		for _, object := range objects {
			pods = append(pods, object.(*Pod))
		}
	}
	return pods, nil
}
