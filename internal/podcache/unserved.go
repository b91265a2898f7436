// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
)

// servedPoll is the interval of checks whether the watch of an unserved kind works again.
const servedPoll = time.Second

// unservedKinds logs once when a kind is no longer served, as after its definition was deleted, and once when it is served
// again. The watches themselves retry until then.
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
	if !u.begin(watch) {
		return
	}
	log := ctrl.Log.WithName("watch").WithValues("kind", watch.TypeDescription())
	log.Error(err, "A kind is no longer served: the operator ignores its objects until it is. "+
		"If its CustomResourceDefinition was deleted, create it again, and then its objects, which were deleted with it")
	go func() {
		recovered := wait.PollUntilContextCancel(ctx, servedPoll, false, func(context.Context) (bool, error) { return u.end(watch), nil })
		if recovered == nil {
			log.Info("A kind is served again")
		}
	}()
}

// begin reports whether the watch has only now begun to fail.
func (u *unservedKinds) begin(watch *toolscache.Reflector) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.since[watch]; known {
		return false
	}
	if u.since == nil {
		u.since = map[*toolscache.Reflector]string{}
	}
	u.since[watch] = watch.LastSyncResourceVersion()
	return true
}

// end reports whether the API server serves the kind again: the watch has reached a later version.
func (u *unservedKinds) end(watch *toolscache.Reflector) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if watch.LastSyncResourceVersion() == u.since[watch] {
		return false
	}
	delete(u.since, watch)
	return true
}
