// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// version is the content of a namespace between two writes.
type version struct {
	pods            []corev1.Pod
	requests        []kruise.ContainerRecreateRequest
	policies        []v1alpha1.SidecarTerminationPolicy
	clusterPolicies []v1alpha1.ClusterSidecarTerminationPolicy
}

// history is every version of a namespace and of the cluster policy with the namespace's name.
type history struct {
	server    client.Client
	namespace string
	versions  []version
}

// record reads the objects that a write may have changed: those of one resource, or all if none is named.
func (h *history) record(ctx context.Context, resource string) error {
	var next version
	if len(h.versions) > 0 {
		next = h.now()
	}
	concerns := func(name string) bool { return resource == "" || resource == name }
	var err error
	if concerns("pods") {
		next.pods, err = readAll[corev1.Pod](ctx, h.server, h.namespace, podName)
	}
	if err == nil && concerns("sidecarterminationpolicies") {
		next.policies, err = readAll[v1alpha1.SidecarTerminationPolicy](ctx, h.server, h.namespace, policyName)
	}
	if err == nil && concerns("clustersidecarterminationpolicies") {
		next.clusterPolicies, err = readAll[v1alpha1.ClusterSidecarTerminationPolicy](ctx, h.server, "", h.namespace)
	}
	if err == nil && concerns("containerrecreaterequests") {
		var requests kruise.ContainerRecreateRequestList
		err = h.server.List(ctx, &requests, client.InNamespace(h.namespace))
		next.requests = requests.Items
	}
	if err != nil {
		return fmt.Errorf("record the history: %w", err)
	}
	h.versions = append(h.versions, next)
	return nil
}

// readAll reads the object if it exists. A list would be slower, because the API server's watch cache must catch up first.
func readAll[T any, P interface {
	*T
	client.Object
}](ctx context.Context, server client.Client, namespace, name string) ([]T, error) {
	var object T
	err := server.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, P(&object))
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []T{object}, nil
}

func (h *history) now() version { return h.versions[len(h.versions)-1] }

// lagging reads the history like stale caches do. Those of pods, CRRs and policies are independent, and none goes backward. Objects
// without a history come from the API server.
type lagging struct {
	client.Reader
	history *history
	// lag returns by how many writes the next read is stale, or the error of the read.
	lag func() (int, error)

	seen map[string]int
}

func (l *lagging) at(kind string) (version, error) {
	lag, err := l.lag()
	if err != nil {
		return version{}, err
	}
	if l.seen == nil {
		l.seen = map[string]int{}
	}
	l.seen[kind] = max(l.seen[kind], len(l.history.versions)-1-lag, 0)
	return l.history.versions[l.seen[kind]], nil
}

// Pods lists the unfinished pods, as the cache has them.
func (l *lagging) Pods(string) ([]*podcache.Pod, error) {
	v, err := l.at("pods")
	var list []*podcache.Pod
	for i := range v.pods {
		if pod := &v.pods[i]; !plan.HasTerminalPhase(pod) {
			list = append(list, cachedPod(pod))
		}
	}
	return list, err
}

// PodsOnNode is not called: nothing watches nodes.
func (l *lagging) PodsOnNode(string) ([]*podcache.Pod, error) { return nil, errors.ErrUnsupported }

// Pod returns an unfinished pod, as the cache has it.
func (l *lagging) Pod(key client.ObjectKey) (*corev1.Pod, error) {
	pods, err := l.Pods(key.Namespace)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		if pod.Name == key.Name {
			return pod.Decode()
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
}

// Policies finds the policies that select the pod.
func (l *lagging) Policies(pod *corev1.Pod, namespaceLabels map[string]string) ([]resolve.Policy, error) {
	namespaced, err := l.at("policies")
	cluster, clusterErr := l.at("cluster policies")
	err = errors.Join(err, clusterErr)
	var all []resolve.Policy
	add := func(policy resolve.Policy, parseErr error) {
		all, err = append(all, policy), errors.Join(err, parseErr)
	}
	for i := range namespaced.policies {
		add(resolve.Parse(&namespaced.policies[i]))
	}
	for i := range cluster.clusterPolicies {
		add(resolve.Parse(&cluster.clusterPolicies[i]))
	}
	return slices.DeleteFunc(all, func(policy resolve.Policy) bool { return !policy.Selects(pod, namespaceLabels) }), err
}

func (l *lagging) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	switch object.(type) {
	case *v1alpha1.SidecarTerminationPolicy:
		v, err := l.at("policies")
		return copyOf(v.policies, err, key, object)
	case *v1alpha1.ClusterSidecarTerminationPolicy:
		v, err := l.at("cluster policies")
		return copyOf(v.clusterPolicies, err, key, object)
	}
	return l.Reader.Get(ctx, key, object, options...)
}

// copyOf copies the object of the list with the key's name, unless the list could not be read.
func copyOf[T any, P interface {
	*T
	client.Object
}](list []T, err error, key client.ObjectKey, into client.Object) error {
	if err != nil {
		return err
	}
	for i := range list {
		if P(&list[i]).GetName() == key.Name {
			*into.(P) = *P(&list[i]).DeepCopyObject().(P)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List lists ContainerRecreateRequests.
func (l *lagging) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	selected := client.ListOptions{LabelSelector: labels.Everything()}
	selected.ApplyOptions(options)
	v, err := l.at("requests")
	for _, request := range v.requests {
		if selected.LabelSelector.Matches(labels.Set(request.Labels)) {
			requests := list.(*kruise.ContainerRecreateRequestList)
			requests.Items = append(requests.Items, request)
		}
	}
	return err
}

// unreliable reads the API server, and fails when a read of a cache would.
type unreliable struct {
	client.Reader
	fails func() (int, error)
}

func (u unreliable) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, err := u.fails(); err != nil {
		return err
	}
	return u.Reader.Get(ctx, key, object, options...)
}

// cached is a client that writes to the API server and reads a cache.
type cached struct {
	client.Client
	reader client.Reader
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.reader.Get(ctx, key, object, options...)
}

func (c cached) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.reader.List(ctx, list, options...)
}
