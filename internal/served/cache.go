// SPDX-License-Identifier: Apache-2.0

// Package served follows kinds that are not the operator's own and that the cluster may or may not serve: whoever defines
// them may be installed, upgraded or removed while the operator runs. That a kind is absent is a state and no error.
package served

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	ctrl "sigs.k8s.io/controller-runtime"
)

const openTimeout = 30 * time.Second

// Cache is a cache of the operator's own objects of one kind. It is open while the cluster serves the kind: a cache cannot
// be made for a kind that is not served, and the watch of one that is gone can only fail.
type Cache struct {
	Cluster cluster.Cluster
	// Object is an object of the kind, and Labels are those by which the operator tells its own.
	Object client.Object
	Labels labels.Set
	// Prepare adds indexes and event handlers to a cache that is about to be filled.
	Prepare func(ctx context.Context, c cache.Cache) error

	open atomic.Pointer[running]
}

type running struct {
	cache.Cache
	stop context.CancelFunc
}

// Reader reads the cache; it is nil while the kind is not served.
func (c *Cache) Reader() client.Reader {
	if open := c.open.Load(); open != nil {
		return open
	}
	return nil
}

// Follow opens or closes the cache as the kind is served or not. It returns when the cache is filled; a failure leaves
// nothing behind. It must not be called concurrently. The cache is closed when the context ends.
func (c *Cache) Follow(ctx context.Context, served bool) error {
	opened := c.open.Load() != nil
	switch {
	case served && !opened:
		started, err := c.start(ctx)
		if err != nil {
			return fmt.Errorf("open cache of %T: %w", c.Object, err)
		}
		c.open.Store(started)
	case !served && opened:
		c.open.Swap(nil).stop()
	}
	return nil
}

func (c *Cache) start(ctx context.Context) (*running, error) {
	own, err := cache.New(c.Cluster.GetConfig(), cache.Options{
		Scheme:     c.Cluster.GetScheme(),
		Mapper:     c.Cluster.GetRESTMapper(),
		HTTPClient: c.Cluster.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			c.Object: {Label: labels.SelectorFromSet(c.Labels), Transform: cache.TransformStripManagedFields()},
		},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, err
	}
	if err := c.Prepare(ctx, own); err != nil {
		return nil, err
	}
	open, stop := context.WithCancel(ctx)
	go func() {
		if err := own.Start(open); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "A cache failed", "of", fmt.Sprintf("%T", c.Object))
		}
	}()
	filled, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if !own.WaitForCacheSync(filled) {
		stop()
		return nil, fmt.Errorf("not filled after %s", openTimeout)
	}
	return &running{own, stop}, nil
}

// IsEstablished reports whether the definition is served and stays.
func IsEstablished(definition apiextensionsv1.CustomResourceDefinition) bool {
	return definition.DeletionTimestamp == nil &&
		slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
}
