// SPDX-License-Identifier: Apache-2.0

package pulljob

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/served"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=imagepulljobs.apps.kruise.io,verbs=list;watch,roleName=sidecar-termination-manager-pre-pull-role
// +kubebuilder:rbac:groups=apps.kruise.io,resources=imagepulljobs,verbs=list;watch;create;delete,roleName=sidecar-termination-manager-pre-pull-role

// DefinitionName is the definition by which it is told whether jobs are served.
const DefinitionName = "imagepulljobs.apps.kruise.io"

// indexPolicyUID is the field index of jobs by the uid of the policy that owns them.
const indexPolicyUID = "ownerPolicyUID"

// Availability tells whether ImagePullJobs are served. It follows Kruise being installed, upgraded and removed, and keeps a
// cache of the operator's own jobs while they are served.
type Availability struct {
	*served.Loop

	definitions cache.Cache
	jobs        served.Cache
	isServed    atomic.Bool
	announced   bool // what onChange was last told

	// onChange is called, never concurrently, after jobs have become served or have gone.
	onChange func(ctx context.Context)
	// onJob is called with the policy of a job that was changed or has gone.
	onJob func(policy resolve.PolicyRef)
}

// NewAvailability returns an Availability that calls onChange when jobs become served or are no longer, and onJob with the
// policy of a job that was changed. It is a Runnable and must be added to the manager; never started it finds nothing.
func NewAvailability(c cluster.Cluster, onChange func(ctx context.Context), onJob func(policy resolve.PolicyRef)) (*Availability, error) {
	// The manager's cache holds one definition already, and cannot select a second one by name.
	definitions, err := cache.New(c.GetConfig(), cache.Options{
		Scheme:     c.GetScheme(),
		Mapper:     c.GetRESTMapper(),
		HTTPClient: c.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			&apiextensionsv1.CustomResourceDefinition{}: {
				Field:     fields.OneTermEqualSelector("metadata.name", DefinitionName),
				Transform: withoutSchemas,
			},
		},
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("make cache of the definition of ImagePullJobs: %w", err)
	}
	a := &Availability{Loop: served.NewLoop(), definitions: definitions, onChange: onChange, onJob: onJob}
	a.jobs = served.Cache{
		Cluster: c, Object: &kruise.ImagePullJob{}, Labels: labels.Set{labelManagedBy: managedBy}, Prepare: a.prepare,
	}
	return a, nil
}

// withoutSchemas drops what is large and not read.
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

// Served reports whether jobs can be created and read now.
func (a *Availability) Served() bool {
	return a.isServed.Load()
}

// NeedLeaderElection is false: every replica knows, so that a new leader need not find out first.
func (a *Availability) NeedLeaderElection() bool { return false }

// Start follows Kruise until the context ends.
func (a *Availability) Start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("pre-pull"))
	go func() {
		if err := a.definitions.Start(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cache of the definition of ImagePullJobs failed")
		}
	}()
	if !a.definitions.WaitForCacheSync(ctx) {
		return nil
	}
	if err := a.Run(ctx, a.definitions, a.update, &apiextensionsv1.CustomResourceDefinition{}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("look for ImagePullJobs: %w", err)
	}
	return nil
}

// update compares what is with what was announced and carries the change out. After an error it may be called again.
func (a *Availability) update(ctx context.Context) error {
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := a.definitions.List(ctx, &definitions); err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	isServed := slices.ContainsFunc(definitions.Items, servesJobs)
	if !isServed {
		a.isServed.Store(false)
	}
	if err := a.jobs.Follow(ctx, isServed); err != nil {
		return err
	}
	a.isServed.Store(isServed)
	if isServed != a.announced {
		a.announced = isServed
		a.onChange(ctx)
		ctrl.LoggerFrom(ctx).Info("ImagePullJobs were looked for", "served", isServed)
	}
	return nil
}

// servesJobs reports whether the definition serves the version of jobs that the operator knows.
func servesJobs(definition apiextensionsv1.CustomResourceDefinition) bool {
	return served.IsEstablished(definition) &&
		slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == kruise.GroupVersion.Version && v.Served
		})
}

// prepare makes a cache of jobs find those of a policy and tell when one changes.
func (a *Availability) prepare(ctx context.Context, jobs cache.Cache) error {
	if err := jobs.IndexField(ctx, &kruise.ImagePullJob{}, indexPolicyUID, ownerPolicyUID); err != nil {
		return fmt.Errorf("index by policy: %w", err)
	}
	informer, err := jobs.GetInformer(ctx, &kruise.ImagePullJob{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    a.changed,
		UpdateFunc: func(_, job any) { a.changed(job) },
		DeleteFunc: a.changed,
	})
	return err
}

// changed passes the policy of a job on. What is no job is the note that one was missed while it was deleted.
func (a *Availability) changed(object any) {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	job, ok := object.(*kruise.ImagePullJob)
	if !ok {
		return
	}
	if owner := policyOf(job); owner != nil {
		ref := resolve.PolicyRef{Kind: resolve.PolicyKind(owner.Kind), Name: owner.Name}
		if ref.Kind == resolve.KindNamespaced {
			ref.Namespace = job.Namespace
		}
		a.onJob(ref)
	}
}

func ownerPolicyUID(object client.Object) []string {
	if owner := policyOf(object); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// policyOf returns the reference to the policy that owns the job, or nil.
func policyOf(object client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || (owner.Kind != string(resolve.KindNamespaced) && owner.Kind != string(resolve.KindCluster)) {
		return nil
	}
	return owner
}
