// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// indexSelector is the index of policies by a label that their pods must have.
const indexSelector = "spec.podSelector"

// policyIndex finds the policies that select a pod at a cost that depends on the pod's labels and not on the number of
// policies. It keeps the policies' selectors parsed.
type policyIndex struct {
	namespaces          client.Reader
	namespaced, cluster policyStore
	parsed              sync.Map // types.UID -> parsedPolicy
}

// policyStore holds the policies of one kind, each found by a label that it requires.
type policyStore struct {
	toolscache.Indexer
	labels *requiredLabels
}

// parsedPolicy is what was made of one version of a policy.
type parsedPolicy struct {
	source any // the cached object, which is replaced and never changed
	policy resolve.Policy
	valid  bool
}

// newPolicyIndex indexes the cache's own store of policies, so that whoever is told of a policy by the cache finds it.
func newPolicyIndex(ctx context.Context, c cache.Cache) (*policyIndex, error) {
	index := &policyIndex{namespaces: c}
	for _, kind := range []struct {
		object client.Object
		store  *policyStore
	}{
		{&v1alpha1.SidecarTerminationPolicy{}, &index.namespaced},
		{&v1alpha1.ClusterSidecarTerminationPolicy{}, &index.cluster},
	} {
		shared, err := sharedInformer(ctx, c, kind.object)
		if err != nil {
			return nil, err
		}
		labels := newRequiredLabels()
		if err := shared.AddIndexers(toolscache.Indexers{indexSelector: labels.index}); err != nil {
			return nil, fmt.Errorf("index %T: %w", kind.object, err)
		}
		if _, err := shared.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: index.forget}); err != nil {
			return nil, fmt.Errorf("watch deletions of %T: %w", kind.object, err)
		}
		*kind.store = policyStore{shared.GetIndexer(), labels}
	}
	return index, nil
}

// Policies returns the policies that select the pod, in no order. A policy whose selector cannot be parsed selects
// nothing. The result may share memory with the cache and must not be changed.
func (x *policyIndex) Policies(ctx context.Context, pod *corev1.Pod) ([]resolve.Policy, error) {
	namespaced, err := x.candidates(x.namespaced, pod.Namespace, pod.Labels)
	if err != nil {
		return nil, err
	}
	selecting := slices.DeleteFunc(namespaced, func(p resolve.Policy) bool { return !p.Selects(pod, nil) })
	cluster, err := x.candidates(x.cluster, "", pod.Labels)
	if err != nil || len(cluster) == 0 {
		return selecting, err
	}
	namespace := observe.NamespaceMetadata()
	if err := x.namespaces.Get(ctx, types.NamespacedName{Name: pod.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get namespace of pod: %w", err)
	}
	return append(selecting, slices.DeleteFunc(cluster, func(p resolve.Policy) bool { return !p.Selects(pod, namespace.Labels) })...), nil
}

// candidates returns the policies of the store that require one of the labels, or none.
func (x *policyIndex) candidates(store policyStore, home string, labels map[string]string) ([]resolve.Policy, error) {
	objects, err := store.ByIndex(indexSelector, home)
	for name, value := range labels {
		if err != nil {
			break
		}
		if !store.labels.mayRequire(name) {
			continue
		}
		var found []any
		found, err = store.ByIndex(indexSelector, selectorKey(home, name, value))
		objects = append(objects, found...)
	}
	if err != nil {
		return nil, fmt.Errorf("look up policies: %w", err)
	}
	var policies []resolve.Policy
	for _, object := range objects {
		if policy, valid := x.parse(object); valid {
			policies = append(policies, policy)
		}
	}
	return policies, nil
}

// parse returns the policy of a cached object, and whether its selectors can be parsed.
func (x *policyIndex) parse(object any) (resolve.Policy, bool) {
	uid := object.(client.Object).GetUID()
	if known, ok := x.parsed.Load(uid); ok && known.(parsedPolicy).source == object {
		return known.(parsedPolicy).policy, known.(parsedPolicy).valid
	}
	var policy resolve.Policy
	var err error
	switch object := object.(type) {
	case *v1alpha1.SidecarTerminationPolicy:
		policy, err = resolve.FromNamespaced(object)
	case *v1alpha1.ClusterSidecarTerminationPolicy:
		policy, err = resolve.FromCluster(object)
	}
	x.parsed.Store(uid, parsedPolicy{object, policy, err == nil})
	return policy, err == nil
}

// forget drops what was made of a deleted policy.
func (x *policyIndex) forget(object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if policy, ok := object.(client.Object); ok {
		x.parsed.Delete(policy.GetUID())
	}
}
