// SPDX-License-Identifier: Apache-2.0

package optionalkind

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	ctrl "sigs.k8s.io/controller-runtime"
)

const syncTimeout = 30 * time.Second

// Objects describes the operator's own objects of a kind.
type Objects struct {
	Cluster cluster.Cluster
	// Example is an object of the kind. Labels select the operator's own objects.
	Example client.Object
	Labels  labels.Set
	// Prepare adds indexes and event handlers to a cache before it starts.
	Prepare func(ctx context.Context, c cache.Cache) error
}

// objectCache caches objects while the cluster serves their kind. A cache cannot be created for a kind that is not
// served, and the watch of a kind that is gone can only fail.
type objectCache struct {
	Objects
	running atomic.Pointer[runningCache]
}

type runningCache struct {
	cache.Cache
	stop context.CancelFunc
}

func (c *objectCache) reader() client.Reader {
	if running := c.running.Load(); running != nil {
		return running
	}
	return nil
}

// follow opens the cache if the kind is served, and closes it if not. It returns when the cache has synced; an error
// leaves nothing behind. It must not be called concurrently. The cache is closed when the context ends.
func (c *objectCache) follow(ctx context.Context, served bool) error {
	isRunning := c.running.Load() != nil
	switch {
	case served && !isRunning:
		started, err := c.start(ctx)
		if err != nil {
			return fmt.Errorf("open cache of %T: %w", c.Example, err)
		}
		c.running.Store(started)
	case !served && isRunning:
		c.running.Swap(nil).stop()
	}
	return nil
}

func (c *objectCache) start(ctx context.Context) (*runningCache, error) {
	own, err := cache.New(c.Cluster.GetConfig(), cache.Options{
		Scheme:     c.Cluster.GetScheme(),
		Mapper:     c.Cluster.GetRESTMapper(),
		HTTPClient: c.Cluster.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			c.Example: {Label: labels.SelectorFromSet(c.Labels), Transform: cache.TransformStripManagedFields()},
		},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, err
	}
	if err := c.Prepare(ctx, own); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	go func() {
		if err := own.Start(running); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "A cache failed", "of", fmt.Sprintf("%T", c.Example))
		}
	}()
	synced, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !own.WaitForCacheSync(synced) {
		stop()
		return nil, fmt.Errorf("not synced after %s", syncTimeout)
	}
	return &runningCache{own, stop}, nil
}
