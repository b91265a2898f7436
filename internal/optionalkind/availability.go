// SPDX-License-Identifier: Apache-2.0

package optionalkind

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ctrl "sigs.k8s.io/controller-runtime"
)

const retryInterval = 2 * time.Second

// Config says how to find out whether a kind is available.
type Config struct {
	// Kind is the name of the kind, for messages.
	Kind string
	// Source holds the objects that Look reads. Watched are their kinds: each change of one leads to a new Look.
	Source  cache.Cache
	Watched []client.Object
	// StartSource makes Start run the source as well, because the manager does not.
	StartSource bool
	// Look reports whether the cluster serves the kind, and whether the operator may use it.
	Look func(ctx context.Context) (served, usable bool, err error)
	// Objects describes the operator's own objects of the kind.
	Objects Objects
	// OnChange is called, never concurrently, after Available has changed.
	OnChange func(ctx context.Context, available bool)
}

// Availability tells whether a kind is available: the cluster serves it and the operator may use it. It follows the kind
// being installed, upgraded and removed, and caches the operator's own objects while the kind is served.
//
// It is a Runnable and must be added to the manager. The zero value is not available and must not be started.
type Availability struct {
	config    Config
	objects   objectCache
	available atomic.Bool
	announced bool          // the last value that OnChange got
	signal    chan struct{} // asks for a new Look
	known     chan struct{} // closed after the first successful Look
}

// NewAvailability returns an Availability that has not started.
func NewAvailability(config Config) *Availability {
	return &Availability{
		config: config, objects: objectCache{Objects: config.Objects}, signal: make(chan struct{}, 1), known: make(chan struct{}),
	}
}

// Available reports whether objects of the kind can be created and read now.
func (a *Availability) Available() bool { return a.available.Load() }

// Reader reads the operator's own objects from a cache; it is nil while the kind is not served.
func (a *Availability) Reader() client.Reader { return a.objects.reader() }

// WaitUntilKnown waits until Available is known to be right, and returns false when the context ends first.
func (a *Availability) WaitUntilKnown(ctx context.Context) bool {
	select {
	case <-a.known:
		return true
	case <-ctx.Done():
		return false
	}
}

// NeedLeaderElection is false: every replica follows the kind, so that a new leader need not wait.
func (a *Availability) NeedLeaderElection() bool { return false }

// Start follows the kind until the context ends.
func (a *Availability) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("availability").WithValues("kind", a.config.Kind))
	if a.config.StartSource && !a.startSource(ctx) {
		return nil
	}
	for _, watched := range a.config.Watched {
		if err := a.watch(ctx, watched); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch %T: %w", watched, err)
		}
	}
	a.run(ctx)
	return nil
}

// startSource returns when the source has synced; false means that the context ended first.
func (a *Availability) startSource(ctx context.Context) bool {
	go func() {
		if err := a.config.Source.Start(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "The cache of definitions failed")
		}
	}()
	return a.config.Source.WaitForCacheSync(ctx)
}

func (a *Availability) watch(ctx context.Context, watched client.Object) error {
	informer, err := a.config.Source.GetInformer(ctx, watched)
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { a.notify() },
		UpdateFunc: func(any, any) { a.notify() },
		DeleteFunc: func(any) { a.notify() },
	})
	return err
}

func (a *Availability) notify() {
	select {
	case a.signal <- struct{}{}:
	default:
	}
}

// run updates once at the beginning, at each signal, and after an error without one.
func (a *Availability) run(ctx context.Context) {
	a.notify()
	var retry <-chan time.Time
	isKnown := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.signal:
		case <-retry:
		}
		retry = nil
		if err := a.update(ctx); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Availability is unknown, retrying", "cause", err.Error())
			retry = time.After(retryInterval)
			continue
		}
		if !isKnown {
			isKnown = true
			close(a.known)
		}
	}
}

// update checks whether the kind is served, starts or stops the cache of its objects, and reports a change. It can be
// repeated after an error. The objects of a kind that is served but not usable stay readable, as during an upgrade of its
// controller.
func (a *Availability) update(ctx context.Context) error {
	served, usable, err := a.config.Look(ctx)
	if err != nil {
		return err
	}
	available := served && usable
	if !available {
		a.available.Store(false)
	}
	if err := a.objects.follow(ctx, served); err != nil {
		return err
	}
	a.available.Store(available)
	if available != a.announced {
		a.announced = available
		a.config.OnChange(ctx, available)
		ctrl.LoggerFrom(ctx).Info("Availability changed", "available", available)
	}
	return nil
}
