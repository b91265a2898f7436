// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

const (
	// TeardownLag is how far one of the two caches may be behind the other. The teardown cache retains a pod for this long after
	// its teardown, and callers wait this long for a pod that is in neither cache.
	TeardownLag = 10 * time.Second
	// TeardownPoll is the interval of checks whether TeardownLag is over.
	TeardownPoll = time.Second
)

// NewTeardown adds the teardown cache to the manager: a second cache of pods, with those whose phase the operator has written.
// It drops a pod soon after its containers have ended. Without namespaces it watches the whole cluster.
func NewTeardown(ctx context.Context, mgr manager.Manager, clock clock.PassiveClock, namespaces ...string) (cache.Cache, error) {
	labelled, err := labels.NewRequirement(v1alpha1.LabelTerminatedBy, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select pods in teardown: %w", err)
	}
	teardown, err := NewCache(mgr.GetConfig(), cache.Options{
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*labelled), Transform: recovering(TrimPod), UnsafeDisableDeepCopy: ptr.To(true)},
		},
		DefaultNamespaces:           onlyIn(namespaces),
		ReaderFailOnMissingInformer: true,
		NewInformer: func(
			source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
		) toolscache.SharedIndexInformer {
			return newTeardownFilter(source, clock).informer(object, resync, indexers)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the teardown cache: %w", err)
	}
	if _, err := teardown.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watch pods in teardown: %w", err)
	}
	if err := mgr.Add(startedFirst{teardown}); err != nil {
		return nil, fmt.Errorf("add the teardown cache: %w", err)
	}
	return teardown, nil
}

// startedFirst is a cache that the manager starts and syncs before any controller.
type startedFirst struct{ cache.Cache }

// GetCache makes the manager treat the runnable as a cache.
func (c startedFirst) GetCache() cache.Cache { return c.Cache }

// InTeardown passes events of the teardown cache until the pod's teardown is over, that last event included. It drops the
// events of pods whose teardown was over before.
func InTeardown() predicate.TypedPredicate[*corev1.Pod] {
	return predicate.TypedFuncs[*corev1.Pod]{
		CreateFunc: func(e event.TypedCreateEvent[*corev1.Pod]) bool {
			return !e.IsInInitialList || !teardownIsOver(e.Object)
		},
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Pod]) bool {
			return !teardownIsOver(e.ObjectOld) || !teardownIsOver(e.ObjectNew)
		},
	}
}

func teardownIsOver(pod *corev1.Pod) bool {
	return plan.HasTerminalPhase(pod) && !plan.AnyContainerRunning(pod)
}
