// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
)

// podLister lists the unfinished pods, and those whose phase was written while a container still runs, in no order and
// each once, as the cache has it that has seen more of it. An empty namespace means all. The pods are shared and must not be changed.
type podLister interface {
	LivePods(ctx context.Context, namespace string) ([]*corev1.Pod, error)
}

// podStores lists pods from the caches' own stores, without a copy of any pod: lists of a client copy each one.
type podStores struct {
	unfinished, written toolscache.Indexer
}

// newPodStores must be called before the caches are started.
func newPodStores(ctx context.Context, unfinished, written cache.Cache) (podStores, error) {
	own, err := indexedPods(ctx, unfinished)
	if err != nil {
		return podStores{}, err
	}
	teardown, err := indexedPods(ctx, written)
	if err != nil {
		return podStores{}, err
	}
	return podStores{unfinished: own, written: teardown}, nil
}

// indexNode is the index of pods by the name of their node.
const indexNode = "node"

// indexedPods returns the cache's store of pods, with the index.
func indexedPods(ctx context.Context, c cache.Cache) (toolscache.Indexer, error) {
	informer, err := sharedInformer(ctx, c, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	if err := informer.AddIndexers(toolscache.Indexers{indexNode: nodeName}); err != nil {
		return nil, fmt.Errorf("index pods by node: %w", err)
	}
	return informer.GetIndexer(), nil
}

func nodeName(object any) ([]string, error) {
	return []string{object.(*corev1.Pod).Spec.NodeName}, nil
}

// LivePods reads the stores.
func (s podStores) LivePods(_ context.Context, namespace string) ([]*corev1.Pod, error) {
	return s.live(func(store toolscache.Indexer) ([]any, error) {
		if namespace == "" {
			return store.List(), nil
		}
		return store.ByIndex(toolscache.NamespaceIndex, namespace)
	})
}

// LivePodsOnNode is LivePods for one node.
func (s podStores) LivePodsOnNode(name string) ([]*corev1.Pod, error) {
	return s.live(func(store toolscache.Indexer) ([]any, error) { return store.ByIndex(indexNode, name) })
}

func (s podStores) live(list func(toolscache.Indexer) ([]any, error)) ([]*corev1.Pod, error) {
	unfinished, err := list(s.unfinished)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	written, err := list(s.written)
	if err != nil {
		return nil, fmt.Errorf("list pods whose phase was written: %w", err)
	}
	return livePods(toPods(unfinished), toPods(written))
}

// livePods returns those of the pods of both caches that a podLister lists. It uses the memory of the first list.
func livePods(unfinished, written []*corev1.Pod) ([]*corev1.Pod, error) {
	others := make(map[types.NamespacedName]*corev1.Pod, len(written))
	for _, pod := range written {
		others[client.ObjectKeyFromObject(pod)] = pod
	}
	pods := unfinished[:0]
	for _, pod := range unfinished {
		if other := others[client.ObjectKeyFromObject(pod)]; other != nil {
			latest, err := newer(pod, other)
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

// newer returns which of two copies of a pod is of the later write, the first one when both are of the same.
func newer(pod, other *corev1.Pod) (*corev1.Pod, error) {
	order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, other.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("compare the pod in both caches: %w", err)
	}
	if order < 0 {
		return other, nil
	}
	return pod, nil
}

func toPods(objects []any) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

// sharedInformer returns the cache's informer of the object's kind without waiting for it.
func sharedInformer(ctx context.Context, c cache.Cache, object client.Object) (toolscache.SharedIndexInformer, error) {
	informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("watch %T: the cache has no store of it, but a %T", object, informer)
	}
	return shared, nil
}
