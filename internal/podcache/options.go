// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// ManagerOptions returns the options of the manager's cache, which NewCache makes. Without namespaces it watches the whole cluster.
// Of pods it holds the unfinished ones that can finish, selected by the API server, as objects of type Pod, which are read through
// Stores. Callers share other cached objects and must not change them. The cache logs when a kind is no longer served.
func ManagerOptions(namespaces ...string) (cache.Options, error) {
	scheme, err := newScheme()
	return cache.Options{
		Scheme: scheme,
		ByObject: map[client.Object]cache.ByObject{
			&Pod{}:                               {Field: UnfinishedPods()},
			&corev1.Node{}:                       {Transform: trimNode, UnsafeDisableDeepCopy: ptr.To(true)},
			&v1alpha1.SidecarTerminationPolicy{}: {Transform: trimPolicy},
			&v1alpha1.ClusterSidecarTerminationPolicy{}: {Transform: trimPolicy},
		},
		DefaultNamespaces:           onlyIn(namespaces),
		DefaultTransform:            cache.TransformStripManagedFields(),
		DefaultWatchErrorHandler:    (&unservedKinds{since: map[*toolscache.Reflector]string{}}).watchFailed,
		ReaderFailOnMissingInformer: true,
	}, err
}

// trimPolicy drops the metadata of a policy that the operator does not read, and whose size its author chooses.
func trimPolicy(object any) (any, error) {
	if policy, ok := object.(v1alpha1.Policy); ok {
		policy.SetAnnotations(nil)
		policy.SetManagedFields(nil)
	}
	return object, nil
}

// UnfinishedPods selects the Job-type pods without a terminal phase. The fields are selectable since Kubernetes 1.0
// (pkg/registry/core/pod/strategy.go, ToSelectableFields).
func UnfinishedPods() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.restartPolicy", string(corev1.RestartPolicyAlways)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
}

// newScheme returns a scheme of the cached kinds, in which pods are of type Pod: the client decodes them to it.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	core := corev1.SchemeGroupVersion
	scheme.AddKnownTypes(core, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypeWithName(core.WithKind("Pod"), &Pod{})
	scheme.AddKnownTypeWithName(core.WithKind("PodList"), &PodList{})
	metav1.AddToGroupVersion(scheme, core)
	return scheme, v1alpha1.AddToScheme(scheme)
}

// onlyIn returns the option of caches of the namespaces, or of the whole cluster if there are none.
func onlyIn(namespaces []string) map[string]cache.Config {
	if len(namespaces) == 0 {
		return nil
	}
	configs := make(map[string]cache.Config, len(namespaces))
	for _, namespace := range namespaces {
		configs[namespace] = cache.Config{}
	}
	return configs
}

// unservedKinds logs once when a kind is not served: its definition was deleted, or is not installed yet. The watches themselves retry.
type unservedKinds struct {
	mu sync.Mutex
	// since holds the version that each failing watch had reached.
	since map[*toolscache.Reflector]string
}

// watchFailed is a WatchErrorHandlerWithContext.
func (u *unservedKinds) watchFailed(ctx context.Context, watch *toolscache.Reflector, err error) {
	if !apierrors.IsNotFound(err) {
		toolscache.DefaultWatchErrorHandler(ctx, watch, err)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	version := watch.LastSyncResourceVersion()
	if since, known := u.since[watch]; known && since == version {
		return
	}
	u.since[watch] = version
	message := "A kind is no longer served: the operator ignores its objects until it is. " +
		"If its CustomResourceDefinition was deleted, create it again, and then its objects, which were deleted with it"
	if version == "" {
		message = "A kind is not served yet: the operator starts when its CustomResourceDefinition is installed"
	}
	ctrl.Log.WithName("watch").Error(err, message, "kind", watch.TypeDescription())
}
