// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
)

// ManagerOptions returns the options of the manager's cache, which NewCache makes. Without namespaces it watches the whole cluster. Of
// pods it holds the unfinished ones that can finish, selected by
// the API server, and of every object only the fields that the operator reads. Callers share cached objects and must not
// change them. The cache logs when a kind is no longer served.
func ManagerOptions(scheme *runtime.Scheme, namespaces ...string) cache.Options {
	shared := ptr.To(true)
	byObject := crr.CacheOptions()
	byObject[&corev1.Pod{}] = cache.ByObject{Field: observe.UnfinishedPods(), Transform: recovering(TrimPod), UnsafeDisableDeepCopy: shared}
	byObject[&corev1.Node{}] = cache.ByObject{Transform: recovering(trimNode), UnsafeDisableDeepCopy: shared}
	return cache.Options{
		Scheme:                      scheme,
		ByObject:                    byObject,
		DefaultNamespaces:           onlyIn(namespaces),
		DefaultTransform:            cache.TransformStripManagedFields(),
		DefaultWatchErrorHandler:    (&unservedKinds{}).watchFailed,
		ReaderFailOnMissingInformer: true,
	}
}
