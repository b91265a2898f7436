// SPDX-License-Identifier: Apache-2.0

package crr

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/internal/served"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=containerrecreaterequests.apps.kruise.io,verbs=list;watch,roleName=sidecar-termination-manager-crr-role
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=kruise-mutating-webhook-configuration,verbs=list;watch,roleName=sidecar-termination-manager-crr-role
// +kubebuilder:rbac:groups=apps.kruise.io,resources=containerrecreaterequests,verbs=list;watch;create;delete,roleName=sidecar-termination-manager-crr-role

const (
	// DefinitionName is the definition by which Kruise's presence is told.
	DefinitionName = "containerrecreaterequests.apps.kruise.io"
	// WebhookConfigurationName is the configuration of the webhook without which requests are not safe.
	WebhookConfigurationName = "kruise-mutating-webhook-configuration"

	resource = "containerrecreaterequests"

	// indexPodUID is the field index of requests by the uid of the pod that owns them.
	indexPodUID = "ownerPodUID"
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
	*served.Loop

	cluster   cluster.Cluster
	requests  served.Cache
	available atomic.Bool
	announced bool // what onChange was last told

	// onChange is called, never concurrently, after Kruise has become available or has gone.
	onChange func(ctx context.Context, available bool)
	// onFinished is called with the pod of a request when Kruise is through with the request.
	onFinished func(pod types.NamespacedName)
}

// NewAvailability returns an Availability that calls onChange at each change, and onFinished when Kruise is through with
// a request. It is a Runnable and must be added to the manager, whose cache must have been made with CacheOptions.
// Before WaitUntilKnown has returned, an operator that has just started would take another mode than the one it was in the
// middle of.
func NewAvailability(
	c cluster.Cluster, onChange func(ctx context.Context, available bool), onFinished func(pod types.NamespacedName),
) *Availability {
	a := &Availability{Loop: served.NewLoop(), cluster: c, onChange: onChange, onFinished: onFinished}
	a.requests = served.Cache{
		Cluster: c, Object: &kruise.ContainerRecreateRequest{}, Labels: labels.Set{labelManagedBy: managedBy}, Prepare: a.prepare,
	}
	return a
}

// Available reports whether requests can be created and read now.
func (a *Availability) Available() bool {
	return a.available.Load()
}

// NeedLeaderElection is false: every replica knows, so that a new leader need not find out first.
func (a *Availability) NeedLeaderElection() bool { return false }

// Start follows Kruise until the context ends.
func (a *Availability) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("kruise"))
	err := a.Run(ctx, a.cluster.GetCache(), a.update, &apiextensionsv1.CustomResourceDefinition{}, &admissionv1.MutatingWebhookConfiguration{})
	if err != nil {
		return fmt.Errorf("look for OpenKruise: %w", err)
	}
	return nil
}

// update compares what is with what was announced and carries the change out. After an error it may be called again.
// Requests that were made remain readable while the webhook is missing for a moment, as it is when Kruise is upgraded.
func (a *Availability) update(ctx context.Context) error {
	isServed, guarded, err := a.look(ctx)
	if err != nil {
		return err
	}
	available := isServed && guarded
	if !available {
		a.available.Store(false)
	}
	if err := a.requests.Follow(ctx, isServed); err != nil {
		return err
	}
	a.available.Store(available)
	if available != a.announced {
		a.announced = available
		a.onChange(ctx, available)
		ctrl.LoggerFrom(ctx).Info("OpenKruise was looked for", "available", available)
	}
	return nil
}

// prepare makes a cache of requests find those of a pod and tell when Kruise is through with one.
func (a *Availability) prepare(ctx context.Context, requests cache.Cache) error {
	if err := requests.IndexField(ctx, &kruise.ContainerRecreateRequest{}, indexPodUID, ownerPodUID); err != nil {
		return fmt.Errorf("index by pod: %w", err)
	}
	informer, err := requests.GetInformer(ctx, &kruise.ContainerRecreateRequest{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(whenFinished(a.onFinished))
	return err
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
func (a *Availability) look(ctx context.Context) (isServed, guarded bool, err error) {
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := a.cluster.GetCache().List(ctx, &definitions); err != nil {
		return false, false, fmt.Errorf("list definitions: %w", err)
	}
	var configurations admissionv1.MutatingWebhookConfigurationList
	if err := a.cluster.GetCache().List(ctx, &configurations); err != nil {
		return false, false, fmt.Errorf("list webhook configurations: %w", err)
	}
	return slices.ContainsFunc(definitions.Items, served.IsEstablished), slices.ContainsFunc(configurations.Items, GuardsRequests), nil
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
