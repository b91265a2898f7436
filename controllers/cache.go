// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// CacheOptions are those of the manager's cache: unfinished pods that are not restarted for ever, selected by the API
// server, and of every object only the fields that are read. Cached objects are shared and must not be changed. Of a kind
// that is no longer served the cache says so in the log.
func CacheOptions(scheme *runtime.Scheme) cache.Options {
	shared := ptr.To(true)
	byObject := crr.CacheOptions()
	byObject[&corev1.Pod{}] = cache.ByObject{Field: unfinishedPods(), Transform: recovering(trimPod), UnsafeDisableDeepCopy: shared}
	byObject[&corev1.Node{}] = cache.ByObject{Transform: recovering(trimNode), UnsafeDisableDeepCopy: shared}
	return cache.Options{
		Scheme:                      scheme,
		ByObject:                    byObject,
		DefaultTransform:            cache.TransformStripManagedFields(),
		DefaultWatchErrorHandler:    (&unserved{}).watchFailed,
		ReaderFailOnMissingInformer: true,
	}
}

// unfinishedPods selects the pods on which the operator may have to act. The fields are selectable since Kubernetes 1.0
// (pkg/registry/core/pod/strategy.go, ToSelectableFields).
func unfinishedPods() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.restartPolicy", string(corev1.RestartPolicyAlways)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
}

// newTeardownCache adds a second cache of pods to the manager: those whose phase the operator has written. They have
// left the manager's cache by that very write, and are followed here to the end of their sidecars and not beyond it.
func newTeardownCache(ctx context.Context, mgr manager.Manager, clock clock.PassiveClock) (cache.Cache, error) {
	written, err := labels.NewRequirement(v1alpha1.LabelTerminatedBy, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select pods whose phase was written: %w", err)
	}
	teardown, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*written), Transform: recovering(trimPod), UnsafeDisableDeepCopy: ptr.To(true)},
		},
		ReaderFailOnMissingInformer: true,
		NewInformer: func(
			source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
		) toolscache.SharedIndexInformer {
			return newTeardownFilter(source, clock).informer(object, resync, indexers)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make cache of pods whose phase was written: %w", err)
	}
	if _, err := teardown.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watch pods whose phase was written: %w", err)
	}
	if err := mgr.Add(startedFirst{teardown}); err != nil {
		return nil, fmt.Errorf("add cache of pods whose phase was written: %w", err)
	}
	return teardown, nil
}

// startedFirst is a cache that the manager starts, and waits for, before any controller.
type startedFirst struct{ cache.Cache }

// GetCache is how the manager tells a cache.
func (c startedFirst) GetCache() cache.Cache { return c.Cache }

// startInformers has the cache filled with all that the reconcilers read before they run, on a replica that waits to lead
// as well. It fails when the cluster does not know the operator's kinds.
func startInformers(ctx context.Context, c cache.Cache) error {
	for _, object := range []client.Object{
		&corev1.Pod{}, &corev1.Node{}, namespaceMetadata(),
		&v1alpha1.SidecarTerminationPolicy{}, &v1alpha1.ClusterSidecarTerminationPolicy{},
	} {
		if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

// namespaceMetadata is a namespace of which only the metadata is watched.
func namespaceMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return object
}
