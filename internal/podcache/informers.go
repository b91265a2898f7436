// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Cache is a cache with access to its informers. controller-runtime hides those of a cache of several namespaces.
type Cache struct {
	cache.Cache
	scheme *runtime.Scheme

	mu        sync.Mutex
	informers map[schema.GroupVersionKind][]toolscache.SharedIndexInformer
}

// NewCache returns a *Cache. It is a cache.NewCacheFunc, and the options must have a scheme and no NewInformer.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	c := &Cache{scheme: options.Scheme, informers: map[schema.GroupVersionKind][]toolscache.SharedIndexInformer{}}
	options.NewInformer = func(
		source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		informer := toolscache.NewSharedIndexInformer(source, object, resync, indexers)
		c.record(object, informer)
		return informer
	}
	var err error
	if c.Cache, err = cache.New(config, options); err != nil {
		return nil, err
	}
	return c, nil
}

// record keeps the informer. The cache has found the kind of the object in the scheme before.
func (c *Cache) record(object runtime.Object, informer toolscache.SharedIndexInformer) {
	kind, err := apiutil.GVKForObject(object, c.scheme)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.informers[kind] = append(c.informers[kind], informer)
}

// Informers returns the cache's informers of the object's kind without waiting for their sync: one for each namespace that the cache
// watches, or one for the whole cluster. The cache must be one of NewCache.
func Informers(ctx context.Context, from cache.Cache, object client.Object) ([]toolscache.SharedIndexInformer, error) {
	c, ok := from.(*Cache)
	if !ok {
		return nil, fmt.Errorf("watch %T: the cache is a %T and hides its informers", object, from)
	}
	if _, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	kind, err := apiutil.GVKForObject(object, c.scheme)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", object, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.informers[kind], nil
}
