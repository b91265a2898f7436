// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
)

// Stores lists pods from the informers' own stores, because a client copies each pod that it lists. The pods are shared and
// must not be changed.
type Stores struct {
	// Each has one indexer for each namespace that the operator watches, or one for the whole cluster.
	unfinished, teardown []toolscache.Indexer
}

// indexNode is the index of pods by the name of their node.
const indexNode = "node"

// NewStores adds an index to the informers of both caches. They must not have been started.
func NewStores(unfinished, teardown []toolscache.SharedIndexInformer) (Stores, error) {
	var s Stores
	for _, source := range []struct {
		informers []toolscache.SharedIndexInformer
		store     *[]toolscache.Indexer
	}{{unfinished, &s.unfinished}, {teardown, &s.teardown}} {
		for _, informer := range source.informers {
			if err := informer.AddIndexers(toolscache.Indexers{indexNode: nodeName}); err != nil {
				return Stores{}, fmt.Errorf("index pods by node: %w", err)
			}
			*source.store = append(*source.store, informer.GetIndexer())
		}
	}
	return s, nil
}

func nodeName(object any) ([]string, error) {
	return []string{object.(*corev1.Pod).Spec.NodeName}, nil
}

// Pods returns the pods of the namespace from both caches, merged, in no order. An empty namespace means all namespaces.
func (s Stores) Pods(_ context.Context, namespace string) ([]*corev1.Pod, error) {
	return s.merged(func(store toolscache.Indexer) ([]any, error) {
		if namespace == "" {
			return store.List(), nil
		}
		return store.ByIndex(toolscache.NamespaceIndex, namespace)
	})
}

// PodsOnNode returns the pods of the node from both caches, merged, in no order.
func (s Stores) PodsOnNode(name string) ([]*corev1.Pod, error) {
	return s.merged(func(store toolscache.Indexer) ([]any, error) { return store.ByIndex(indexNode, name) })
}

func (s Stores) merged(list func(toolscache.Indexer) ([]any, error)) ([]*corev1.Pod, error) {
	unfinished, err := listAll(s.unfinished, list)
	if err != nil {
		return nil, fmt.Errorf("list unfinished pods: %w", err)
	}
	teardown, err := listAll(s.teardown, list)
	if err != nil {
		return nil, fmt.Errorf("list pods in teardown: %w", err)
	}
	return Merge(unfinished, teardown)
}

// listAll returns the pods of all stores.
func listAll(stores []toolscache.Indexer, list func(toolscache.Indexer) ([]any, error)) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, store := range stores {
		objects, err := list(store)
		if err != nil {
			return nil, err
		}
		pods = slices.Grow(pods, len(objects))
		for _, object := range objects {
			pods = append(pods, object.(*corev1.Pod))
		}
	}
	return pods, nil
}

// Merge merges the pods of both caches: the unfinished ones and those in teardown that still run a container, each once and in
// its newer version. It reuses the memory of the first list.
func Merge(unfinished, teardown []*corev1.Pod) ([]*corev1.Pod, error) {
	others := make(map[types.NamespacedName]*corev1.Pod, len(teardown))
	for _, pod := range teardown {
		others[client.ObjectKeyFromObject(pod)] = pod
	}
	pods := unfinished[:0]
	for _, pod := range unfinished {
		if other := others[client.ObjectKeyFromObject(pod)]; other != nil {
			latest, err := Newer(pod, other)
			if err != nil {
				return nil, err
			}
			if latest == other {
				continue
			}
			delete(others, client.ObjectKeyFromObject(pod))
		}
		pods = append(pods, pod)
	}
	for _, pod := range others {
		if plan.IsTearingDown(pod) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// Newer returns the pod of the later write, or the first one if both are of the same write.
func Newer(pod, other *corev1.Pod) (*corev1.Pod, error) {
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, other.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("compare the versions of a pod in both caches: %w", err)
	}
	if order < 0 {
		return other, nil
	}
	return pod, nil
}
