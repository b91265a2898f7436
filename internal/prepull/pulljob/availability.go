// SPDX-License-Identifier: Apache-2.0

package pulljob

import (
	"context"
	"fmt"
	"slices"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=imagepulljobs.apps.kruise.io,verbs=list;watch,roleName=sidecar-termination-manager-pre-pull-role
// +kubebuilder:rbac:groups=apps.kruise.io,resources=imagepulljobs,verbs=list;watch;create;delete,roleName=sidecar-termination-manager-pre-pull-role

// DefinitionName is the name of the definition of ImagePullJobs.
const DefinitionName = "imagepulljobs.apps.kruise.io"

// indexPolicyUID is the field index of jobs by the uid of the policy that owns them.
const indexPolicyUID = "ownerPolicyUID"

// NewAvailability returns the availability of ImagePullJobs. It calls onChange when they become available or unavailable,
// and onJob with the policy of each job that was created, changed or deleted.
func NewAvailability(c cluster.Cluster, onChange func(ctx context.Context), onJob func(policy resolve.PolicyRef)) (*optionalkind.Availability, error) {
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
	return optionalkind.NewAvailability(optionalkind.Config{
		Kind:        "ImagePullJob",
		Source:      definitions,
		StartSource: true,
		Watched:     []client.Object{&apiextensionsv1.CustomResourceDefinition{}},
		Look: func(ctx context.Context) (served, usable bool, err error) {
			var list apiextensionsv1.CustomResourceDefinitionList
			if err := definitions.List(ctx, &list); err != nil {
				return false, true, fmt.Errorf("list definitions: %w", err)
			}
			return slices.ContainsFunc(list.Items, servesJobs), true, nil
		},
		Objects: optionalkind.Objects{
			Cluster: c, Example: &kruise.ImagePullJob{}, Labels: labels.Set{labelManagedBy: settings.Name},
			Prepare: func(ctx context.Context, jobs cache.Cache) error { return prepare(ctx, jobs, onJob) },
		},
		OnChange: func(ctx context.Context, _ bool) { onChange(ctx) },
	}), nil
}

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

// servesJobs reports whether the definition serves the version of jobs that the operator knows.
func servesJobs(definition apiextensionsv1.CustomResourceDefinition) bool {
	return optionalkind.IsEstablished(definition) &&
		slices.ContainsFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == kruise.GroupVersion.Version && v.Served
		})
}

// prepare indexes a cache of jobs by policy, and makes it call onJob for each change of a job.
func prepare(ctx context.Context, jobs cache.Cache, onJob func(policy resolve.PolicyRef)) error {
	if err := jobs.IndexField(ctx, &kruise.ImagePullJob{}, indexPolicyUID, ownerPolicyUID); err != nil {
		return fmt.Errorf("index by policy: %w", err)
	}
	informer, err := jobs.GetInformer(ctx, &kruise.ImagePullJob{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(handler(onJob))
	return err
}

func handler(onJob func(policy resolve.PolicyRef)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(job any) { notify(job, onJob) },
		UpdateFunc: func(_, job any) { notify(job, onJob) },
		DeleteFunc: func(job any) { notify(job, onJob) },
	}
}

// notify calls onJob with the policy of the job, which may be a tombstone.
func notify(object any, onJob func(policy resolve.PolicyRef)) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
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
		onJob(ref)
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
