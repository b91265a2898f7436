// SPDX-License-Identifier: Apache-2.0

// Package optionalkind follows custom resources of other projects, which may be installed, upgraded or removed while the
// operator runs. An absent kind is a state, not an error.
package optionalkind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/sidecar-termination/operator/internal/settings"
)

const (
	retryInterval = 2 * time.Second
	syncTimeout   = 30 * time.Second
)

// IndexOwner is the field index of the operator's objects that Config.Owner computes.
const IndexOwner = "owner"

// LabelManagedBy has the operator's name on its own objects of every kind.
const LabelManagedBy = "app.kubernetes.io/managed-by"

// Config describes a kind and the operator's own objects of it.
type Config struct {
	Cluster cluster.Cluster
	// Example is an object of the kind, in the version that the operator uses. Definition names its CustomResourceDefinition.
	Example    client.Object
	Definition string
	// Webhook, unless empty, names a MutatingWebhookConfiguration. The operator may use the kind only while Guards is true for it.
	Webhook string
	Guards  func(configuration admissionv1.MutatingWebhookConfiguration) bool
	// Reader finds the operator's own objects by IndexOwner, and Handler gets their events.
	Owner   client.IndexerFunc
	Handler toolscache.ResourceEventHandler
	// OnChange is called, never concurrently, after Available has changed.
	OnChange func(ctx context.Context)
}

// Availability tells whether a kind is available: the cluster serves it and the operator may use it. It follows the kind
// being installed, upgraded and removed, and caches the operator's own objects while the kind is served.
//
// It is a Runnable and must be added to the manager. The zero value is not available and must not be started.
type Availability struct {
	config    Config
	objects   atomic.Pointer[objectCache] // nil while the kind is not served
	available atomic.Bool
	announced bool          // the value of available at the last OnChange
	signal    chan struct{} // asks for an update
	known     chan struct{} // closed after the first successful update
}

// objectCache holds the operator's own objects.
type objectCache struct {
	client.Reader
	stop context.CancelFunc
}

// NewAvailability returns an Availability that has not started.
func NewAvailability(config Config) *Availability {
	return &Availability{config: config, signal: make(chan struct{}, 1), known: make(chan struct{})}
}

// Available reports whether objects of the kind can be created and read now.
func (a *Availability) Available() bool { return a.available.Load() }

// Reader reads the operator's own objects from a cache; it is nil while the kind is not served.
func (a *Availability) Reader() client.Reader {
	if objects := a.objects.Load(); objects != nil {
		return objects
	}
	return nil
}

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
	kind, err := apiutil.GVKForObject(a.config.Example, a.config.Cluster.GetScheme())
	if err != nil {
		return fmt.Errorf("follow %T: %w", a.config.Example, err)
	}
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("availability").WithValues("kind", kind.Kind))
	definitions, err := a.newDefinitions(ctx)
	if err != nil {
		return fmt.Errorf("follow %s: %w", kind.Kind, err)
	}
	run(ctx, definitions)
	if definitions.WaitForCacheSync(ctx) {
		a.follow(ctx, definitions, kind.Version)
	}
	return nil
}

// newDefinitions returns a cache of the kind's definition and webhook. Each change of one asks for an update.
func (a *Availability) newDefinitions(ctx context.Context) (cache.Cache, error) {
	definition, webhook := &apiextensionsv1.CustomResourceDefinition{}, &admissionv1.MutatingWebhookConfiguration{}
	byObject := map[client.Object]cache.ByObject{definition: {Field: named(a.config.Definition), Transform: withoutSchemas}}
	watched := []client.Object{definition}
	if a.config.Webhook != "" {
		byObject[webhook] = cache.ByObject{Field: named(a.config.Webhook), Transform: cache.TransformStripManagedFields()}
		watched = append(watched, webhook)
	}
	definitions, err := a.newCache(byObject)
	if err != nil {
		return nil, err
	}
	for _, object := range watched {
		if err := addHandler(ctx, definitions, object, OnEachEvent(func(any) { a.askForUpdate() })); err != nil {
			return nil, err
		}
	}
	return definitions, nil
}

// OnEachEvent returns a handler that calls the function with the new object of each event. A deleted one may be a tombstone.
func OnEachEvent(do func(object any)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: func(_, object any) { do(object) }, DeleteFunc: do}
}

func named(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }

// withoutSchemas drops the large fields of a definition that nothing reads.
func withoutSchemas(object any) (any, error) {
	if definition, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
		definition.ManagedFields = nil
		definition.Annotations = nil
		for i := range definition.Spec.Versions {
			definition.Spec.Versions[i].Schema = nil
			definition.Spec.Versions[i].AdditionalPrinterColumns = nil
		}
	}
	return object, nil
}

func (a *Availability) newCache(byObject map[client.Object]cache.ByObject) (cache.Cache, error) {
	c := a.config.Cluster
	return cache.New(c.GetConfig(), cache.Options{
		Scheme: c.GetScheme(), Mapper: c.GetRESTMapper(), HTTPClient: c.GetHTTPClient(),
		ByObject: byObject, ReaderFailOnMissingInformer: true,
	})
}

func addHandler(ctx context.Context, to cache.Cache, object client.Object, handler toolscache.ResourceEventHandler) error {
	informer, err := to.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %T: %w", object, err)
	}
	_, err = informer.AddEventHandler(handler)
	return err
}

// run fills the cache in the background until the context ends.
func run(ctx context.Context, c cache.Cache) {
	go func() {
		if err := c.Start(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "A cache failed")
		}
	}()
}

func (a *Availability) askForUpdate() {
	select {
	case a.signal <- struct{}{}:
	default:
	}
}

// follow updates once at the beginning, at each signal, and after an error without one.
func (a *Availability) follow(ctx context.Context, definitions client.Reader, version string) {
	a.askForUpdate()
	var retry <-chan time.Time
	known := sync.OnceFunc(func() { close(a.known) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.signal:
		case <-retry:
		}
		retry = nil
		if err := a.update(ctx, definitions, version); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Availability is unknown, retrying", "cause", err.Error())
			retry = time.After(retryInterval)
			continue
		}
		known()
	}
}

// update checks whether the kind is served, starts or stops the cache of its objects, and reports a change. It can be
// repeated after an error. The objects of a kind that is served but not usable stay readable, as during an upgrade of its
// controller.
func (a *Availability) update(ctx context.Context, definitions client.Reader, version string) error {
	served, usable, err := a.look(ctx, definitions, version)
	if err != nil {
		return err
	}
	available := served && usable
	if !available {
		a.available.Store(false)
	}
	switch objects := a.objects.Load(); {
	case served && objects == nil:
		if objects, err = a.openObjects(ctx); err != nil {
			return fmt.Errorf("open cache: %w", err)
		}
		a.objects.Store(objects)
	case !served && objects != nil:
		a.objects.Store(nil)
		objects.stop()
	}
	a.available.Store(available)
	if available != a.announced {
		a.announced = available
		a.config.OnChange(ctx)
		ctrl.LoggerFrom(ctx).Info("Availability changed", "available", available)
	}
	return nil
}

// look returns whether the cluster serves the version of the kind, and whether the operator may use it.
func (a *Availability) look(ctx context.Context, definitions client.Reader, version string) (served, usable bool, err error) {
	var found apiextensionsv1.CustomResourceDefinitionList
	if err := definitions.List(ctx, &found); err != nil {
		return false, false, fmt.Errorf("list definitions: %w", err)
	}
	served = slices.ContainsFunc(found.Items, func(definition apiextensionsv1.CustomResourceDefinition) bool {
		return serves(definition, version)
	})
	if a.config.Webhook == "" {
		return served, true, nil
	}
	var webhooks admissionv1.MutatingWebhookConfigurationList
	if err := definitions.List(ctx, &webhooks); err != nil {
		return false, false, fmt.Errorf("list webhook configurations: %w", err)
	}
	return served, slices.ContainsFunc(webhooks.Items, a.config.Guards), nil
}

// openObjects returns a cache of the operator's objects that has synced. An error leaves nothing behind. A cache cannot be created for a kind
// that is not served, and the watch of a kind that is gone can only fail.
func (a *Availability) openObjects(ctx context.Context) (*objectCache, error) {
	objects, err := a.newCache(map[client.Object]cache.ByObject{
		a.config.Example: {Label: labels.SelectorFromSet(labels.Set{LabelManagedBy: settings.Name}), Transform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		return nil, err
	}
	if err := objects.IndexField(ctx, a.config.Example, IndexOwner, a.config.Owner); err != nil {
		return nil, fmt.Errorf("index by owner: %w", err)
	}
	if err := addHandler(ctx, objects, a.config.Example, a.config.Handler); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	run(running, objects)
	synced, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !objects.WaitForCacheSync(synced) {
		stop()
		return nil, errors.New("not synced in time")
	}
	return &objectCache{objects, stop}, nil
}

// IsEstablished reports whether the cluster serves the definition's kind and the definition is not being deleted.
func IsEstablished(definition apiextensionsv1.CustomResourceDefinition) bool {
	return definition.DeletionTimestamp == nil &&
		slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
}

// serves reports whether the cluster serves the version of the definition's kind.
func serves(definition apiextensionsv1.CustomResourceDefinition, version string) bool {
	return IsEstablished(definition) &&
		slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version && v.Served
		})
}
