// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
)

// servedPoll is how often a watch that found its kind no longer served is asked whether it goes on.
const servedPoll = time.Second

// unserved says once of each kind that it is no longer served, as it is after its definition was deleted, and once that
// it is back. The watches themselves try again for as long as it takes.
type unserved struct {
	mu sync.Mutex
	// since is the version up to which a watch had come when its kind had gone.
	since map[*toolscache.Reflector]string
}

// watchFailed is a WatchErrorHandlerWithContext.
func (u *unserved) watchFailed(ctx context.Context, watch *toolscache.Reflector, err error) {
	if !apierrors.IsNotFound(err) {
		toolscache.DefaultWatchErrorHandler(ctx, watch, err)
		return
	}
	if !u.begin(watch) {
		return
	}
	log := ctrl.Log.WithName("watch").WithValues("kind", watch.TypeDescription())
	log.Error(err, "A kind is no longer served, and no object of it counts until it is. "+
		"If its CustomResourceDefinition was deleted, create it again, and then its objects, which were deleted with it")
	go func() {
		wentOn := wait.PollUntilContextCancel(ctx, servedPoll, false, func(context.Context) (bool, error) { return u.end(watch), nil })
		if wentOn == nil {
			log.Info("A kind is served again, and its objects count")
		}
	}()
}

// begin reports whether that the kind has gone is new.
func (u *unserved) begin(watch *toolscache.Reflector) bool {
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

// end reports whether the kind is back: the watch has come further than it was.
func (u *unserved) end(watch *toolscache.Reflector) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if watch.LastSyncResourceVersion() == u.since[watch] {
		return false
	}
	delete(u.since, watch)
	return true
}
