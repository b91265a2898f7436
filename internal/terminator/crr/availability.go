// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	ctrl "sigs.k8s.io/controller-runtime"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=containerrecreaterequests.apps.kruise.io,verbs=get;list;watch,roleName=sidecar-termination-manager-crr-role
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=kruise-mutating-webhook-configuration,verbs=get;list;watch,roleName=sidecar-termination-manager-crr-role
// +kubebuilder:rbac:groups=apps.kruise.io,resources=containerrecreaterequests,verbs=get;list;watch;create;delete,roleName=sidecar-termination-manager-crr-role

const (
	// DefinitionName is the definition by which Kruise's presence is told.
	DefinitionName = "containerrecreaterequests.apps.kruise.io"
	// WebhookConfigurationName is the configuration of the webhook without which requests are not safe.
	WebhookConfigurationName = "kruise-mutating-webhook-configuration"

	resource = "containerrecreaterequests"

	// indexPodUID is the field index of requests by the uid of the pod that owns them.
	indexPodUID = "ownerPodUID"

	openRetryInterval = 2 * time.Second
	openTimeout       = 30 * time.Second
)

// AddToScheme registers Kruise's types.
func AddToScheme(scheme *runtime.Scheme) error {
	return kruise.AddToScheme(scheme)
}

// CacheOptions restrict the manager's cache to the two objects by which Kruise's presence is told. Requests are not in
// it: a cache cannot be made for a kind that the cluster does not serve.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&apiextensionsv1.CustomResourceDefinition{}: {
			Field:     fields.OneTermEqualSelector("metadata.name", DefinitionName),
			Transform: keepConditions,
		},
		&admissionv1.MutatingWebhookConfiguration{}: {
			Field:     fields.OneTermEqualSelector("metadata.name", WebhookConfigurationName),
			Transform: cache.TransformStripManagedFields(),
		},
	}
}

// keepConditions drops the schema of the definition, which is large and not read.
func keepConditions(object any) (any, error) {
	if definition, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
		definition.ManagedFields = nil
		definition.Spec = apiextensionsv1.CustomResourceDefinitionSpec{}
	}
	return object, nil
}

// Availability tells whether ContainerRecreateRequests can be used: Kruise serves them, and its mutating webhook, which
// binds a request to its pod, cannot be bypassed. It follows Kruise being installed, upgraded and removed, and keeps a
// cache of the operator's own requests while they are served.
type Availability struct {
	cluster   cluster.Cluster
	requests  atomic.Pointer[requestCache]
	available atomic.Bool
	signal    chan struct{}
	knownOnce sync.Once
	known     chan struct{} // closed once it is known whether Kruise is there
	announced bool          // what onChange was last told

	// onChange is called, never concurrently, after Kruise has become available or has gone.
	onChange func(ctx context.Context, available bool)
	// onFinished is called with the pod of a request when Kruise is through with the request.
	onFinished func(pod types.NamespacedName)
}

// requestCache is a running cache of requests.
type requestCache struct {
	cache.Cache
	stop context.CancelFunc
}

// NewAvailability returns an Availability that calls onChange at each change, and onFinished when Kruise is through with
// a request. It is a Runnable and must be added to the manager, whose cache must have been made with CacheOptions.
func NewAvailability(
	c cluster.Cluster, onChange func(ctx context.Context, available bool), onFinished func(pod types.NamespacedName),
) *Availability {
	return &Availability{
		cluster: c, onChange: onChange, onFinished: onFinished, signal: make(chan struct{}, 1), known: make(chan struct{}),
	}
}

// Available reports whether requests can be created and read now.
func (a *Availability) Available() bool {
	return a.available.Load()
}

// WaitUntilKnown waits until Available means what it says, and returns false when the context ended first. Before, an
// operator that has just started would take another mode than the one it was in the middle of.
func (a *Availability) WaitUntilKnown(ctx context.Context) bool {
	select {
	case <-a.known:
		return true
	case <-ctx.Done():
		return false
	}
}

// NeedLeaderElection is false: every replica knows, so that a new leader need not find out first.
func (a *Availability) NeedLeaderElection() bool { return false }

// Start follows Kruise until the context ends.
func (a *Availability) Start(ctx context.Context) error {
	for _, object := range []client.Object{&apiextensionsv1.CustomResourceDefinition{}, &admissionv1.MutatingWebhookConfiguration{}} {
		informer, err := a.cluster.GetCache().GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("watch for OpenKruise: %w", err)
		}
		if _, err := informer.AddEventHandler(a.signaller()); err != nil {
			return fmt.Errorf("watch for OpenKruise: %w", err)
		}
	}
	a.notify()
	log := ctrl.LoggerFrom(ctx).WithName("kruise")
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.signal:
		case <-retry:
		}
		retry = nil
		if err := a.update(ctx, log); err != nil {
			log.V(1).Info("OpenKruise is not usable yet", "cause", err.Error())
			retry = time.After(openRetryInterval)
		}
	}
}

func (a *Availability) signaller() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { a.notify() },
		UpdateFunc: func(any, any) { a.notify() },
		DeleteFunc: func(any) { a.notify() },
	}
}

func (a *Availability) notify() {
	select {
	case a.signal <- struct{}{}:
	default:
	}
}

// update compares what is with what was announced and carries the change out. After an error it may be called again.
func (a *Availability) update(ctx context.Context, log logr.Logger) error {
	served, guarded, err := a.look(ctx)
	if err != nil {
		return err
	}
	available := served && guarded
	if !available {
		a.available.Store(false)
	}
	if err := a.follow(ctx, served); err != nil {
		return err
	}
	a.available.Store(available)
	if available != a.announced {
		a.announced = available
		a.onChange(ctx, available)
		log.Info("OpenKruise was looked for", "available", available)
	}
	a.knownOnce.Do(func() { close(a.known) })
	return nil
}

// follow opens or closes the cache of requests as they are served or not. Requests that were made remain readable while
// the webhook is missing for a moment, as it is when Kruise is upgraded.
func (a *Availability) follow(ctx context.Context, served bool) error {
	opened := a.requests.Load() != nil
	switch {
	case served && !opened:
		return a.open(ctx)
	case !served && opened:
		a.close()
	}
	return nil
}

// open starts a cache of requests and waits until it is filled. A failure leaves nothing behind.
func (a *Availability) open(ctx context.Context) error {
	requests, err := a.startCache(ctx)
	if err != nil {
		return err
	}
	a.requests.Store(requests)
	return nil
}

// close stops the cache, whose watch could only fail from now on.
func (a *Availability) close() {
	if requests := a.requests.Swap(nil); requests != nil {
		requests.stop()
	}
}

func (a *Availability) startCache(ctx context.Context) (*requestCache, error) {
	requests, err := cache.New(a.cluster.GetConfig(), cache.Options{
		Scheme:     a.cluster.GetScheme(),
		Mapper:     a.cluster.GetRESTMapper(),
		HTTPClient: a.cluster.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			&kruise.ContainerRecreateRequest{}: {
				Label:     labels.SelectorFromSet(labels.Set{labelManagedBy: managedBy}),
				Transform: cache.TransformStripManagedFields(),
			},
		},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make cache of ContainerRecreateRequests: %w", err)
	}
	if err := requests.IndexField(ctx, &kruise.ContainerRecreateRequest{}, indexPodUID, ownerPodUID); err != nil {
		return nil, fmt.Errorf("index ContainerRecreateRequests: %w", err)
	}
	informer, err := requests.GetInformer(ctx, &kruise.ContainerRecreateRequest{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch ContainerRecreateRequests: %w", err)
	}
	if _, err := informer.AddEventHandler(whenFinished(a.onFinished)); err != nil {
		return nil, fmt.Errorf("watch ContainerRecreateRequests: %w", err)
	}
	running, stop := context.WithCancel(ctx)
	go func() {
		if err := requests.Start(running); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cache of ContainerRecreateRequests failed")
		}
	}()
	filled, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if !requests.WaitForCacheSync(filled) {
		stop()
		return nil, errors.New("fill cache of ContainerRecreateRequests: timed out")
	}
	return &requestCache{requests, stop}, nil
}

func ownerPodUID(object client.Object) []string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "Pod" {
			return []string{string(owner.UID)}
		}
	}
	return nil
}

// look reads the two objects from the cache: whether requests are served, and whether the webhook guards them.
func (a *Availability) look(ctx context.Context) (served, guarded bool, err error) {
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := a.cluster.GetCache().List(ctx, &definitions); err != nil {
		return false, false, fmt.Errorf("list definitions: %w", err)
	}
	var configurations admissionv1.MutatingWebhookConfigurationList
	if err := a.cluster.GetCache().List(ctx, &configurations); err != nil {
		return false, false, fmt.Errorf("list webhook configurations: %w", err)
	}
	return slices.ContainsFunc(definitions.Items, IsEstablished), slices.ContainsFunc(configurations.Items, GuardsRequests), nil
}

// IsEstablished reports whether the definition is served and stays.
func IsEstablished(definition apiextensionsv1.CustomResourceDefinition) bool {
	return definition.DeletionTimestamp == nil &&
		slices.ContainsFunc(definition.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
}

// GuardsRequests reports whether the configuration sends requests to Kruise's webhook and fails without it. A request
// that has not passed the webhook can name containers of any pod of the node and run commands in them.
func GuardsRequests(configuration admissionv1.MutatingWebhookConfiguration) bool {
	return slices.ContainsFunc(configuration.Webhooks, func(webhook admissionv1.MutatingWebhook) bool {
		return webhook.FailurePolicy != nil && *webhook.FailurePolicy == admissionv1.Fail &&
			slices.ContainsFunc(webhook.Rules, func(rule admissionv1.RuleWithOperations) bool {
				return slices.Contains(rule.APIGroups, kruise.GroupVersion.Group) && slices.Contains(rule.Resources, resource) &&
					slices.Contains(rule.Operations, admissionv1.Create)
			})
	})
}
