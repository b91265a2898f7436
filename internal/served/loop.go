// SPDX-License-Identifier: Apache-2.0

package served

import (
	"context"
	"fmt"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ctrl "sigs.k8s.io/controller-runtime"
)

const retryInterval = 2 * time.Second

// Loop looks at the world again whenever a watched object changes, and soon after a look that failed.
type Loop struct {
	signal    chan struct{}
	knownOnce sync.Once
	known     chan struct{} // closed after the first look that did not fail
}

// NewLoop returns a loop that runs with Run.
func NewLoop() *Loop {
	return &Loop{signal: make(chan struct{}, 1), known: make(chan struct{})}
}

// WaitUntilKnown waits for the first look that did not fail, and returns false when the context ended first.
func (l *Loop) WaitUntilKnown(ctx context.Context) bool {
	select {
	case <-l.known:
		return true
	case <-ctx.Done():
		return false
	}
}

// Run calls look until the context ends: once at the beginning, and at each change of an object that the cache has of the
// kinds. Calls do not overlap. After an error it calls again without a change.
func (l *Loop) Run(ctx context.Context, c cache.Cache, look func(ctx context.Context) error, kinds ...client.Object) error {
	for _, kind := range kinds {
		informer, err := c.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(l.handler()); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	l.notify()
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.signal:
		case <-retry:
		}
		retry = nil
		if err := look(ctx); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("What is served could not be followed, and is looked at again", "cause", err.Error())
			retry = time.After(retryInterval)
			continue
		}
		l.knownOnce.Do(func() { close(l.known) })
	}
}

func (l *Loop) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { l.notify() },
		UpdateFunc: func(any, any) { l.notify() },
		DeleteFunc: func(any) { l.notify() },
	}
}

func (l *Loop) notify() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}
