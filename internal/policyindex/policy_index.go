// SPDX-License-Identifier: Apache-2.0

// Package policyindex finds the policies that select a pod. The operator feeds an Index from its informers.
package policyindex

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// indexSelector is the index of policies by a label that their pods must have.
const indexSelector = "spec.podSelector"

// Index finds the policies that select a pod, at a cost that depends on the pod's labels and not on the number of policies. It
// keeps the policies' selectors parsed.
type Index struct {
	// indexers hold the policies of one kind each, of one namespace that the operator watches or of the whole cluster.
	indexers []toolscache.Indexer
	labels   *requiredLabels
	parsed   sync.Map // types.UID -> parsedPolicy
}

// parsedPolicy is the parsed form of one version of a policy.
type parsedPolicy struct {
	source any // the stored object, which is replaced and never changed
	policy resolve.Policy
	valid  bool
}

// New indexes the stores of the informers of both kinds, so that a policy is in the index before an event handler learns of it. The
// informers must not have been started.
func New(informers ...toolscache.SharedIndexInformer) (*Index, error) {
	index := &Index{labels: newRequiredLabels()}
	for _, informer := range informers {
		if err := informer.AddIndexers(toolscache.Indexers{indexSelector: index.labels.index}); err != nil {
			return nil, fmt.Errorf("index policies: %w", err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: index.forget}); err != nil {
			return nil, fmt.Errorf("watch deletions of policies: %w", err)
		}
		index.indexers = append(index.indexers, informer.GetIndexer())
	}
	return index, nil
}

// Policies returns the policies that select the pod, whose namespace has the labels: namespaced ones, then cluster ones, each sorted
// by name. A policy with an invalid selector selects nothing; its status says so. The result may share memory with the index and must
// not be changed.
func (x *Index) Policies(pod *corev1.Pod, namespaceLabels map[string]string) ([]resolve.Policy, error) {
	namespaced, err := x.mayMatch(pod.Namespace, pod.Labels)
	if err != nil {
		return nil, err
	}
	cluster, err := x.mayMatch("", pod.Labels)
	if err != nil {
		return nil, err
	}
	all := append(namespaced, cluster...)
	return slices.DeleteFunc(all, func(p resolve.Policy) bool { return !p.Selects(pod, namespaceLabels) }), nil
}

// mayMatch returns the policies of the namespace that require one of the labels, or no label, sorted by name. Cluster policies have an empty
// namespace.
func (x *Index) mayMatch(namespace string, labels map[string]string) ([]resolve.Policy, error) {
	keys := []string{namespace}
	for name, value := range labels {
		if x.labels.mayRequire(name) {
			keys = append(keys, selectorKey(namespace, name, value))
		}
	}
	var policies []resolve.Policy
	for _, key := range keys {
		for _, indexer := range x.indexers {
			objects, err := indexer.ByIndex(indexSelector, key)
			if err != nil {
				return nil, fmt.Errorf("find policies by label: %w", err)
			}
			for _, object := range objects {
				if policy, valid := x.parse(object); valid {
					policies = append(policies, policy)
				}
			}
		}
	}
	slices.SortFunc(policies, func(a, b resolve.Policy) int { return strings.Compare(a.Ref.Name, b.Ref.Name) })
	return policies, nil
}

// parse returns the policy of a stored object, and whether its selectors are valid.
func (x *Index) parse(object any) (resolve.Policy, bool) {
	uid := object.(client.Object).GetUID()
	if known, ok := x.parsed.Load(uid); ok && known.(parsedPolicy).source == object {
		return known.(parsedPolicy).policy, known.(parsedPolicy).valid
	}
	policy, err := resolve.Parse(object.(v1alpha1.Policy))
	x.parsed.Store(uid, parsedPolicy{object, policy, err == nil})
	return policy, err == nil
}

// forget drops the parsed form of a deleted policy.
func (x *Index) forget(object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if policy, ok := object.(client.Object); ok {
		x.parsed.Delete(policy.GetUID())
	}
}
