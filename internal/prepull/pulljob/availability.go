// SPDX-License-Identifier: Apache-2.0

package pulljob

import (
	"context"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=imagepulljobs.apps.kruise.io,verbs=list;watch,roleName=sidecar-termination-manager-pre-pull-role
// +kubebuilder:rbac:groups=apps.kruise.io,resources=imagepulljobs,verbs=list;watch;create;delete,roleName=sidecar-termination-manager-pre-pull-role

// DefinitionName is the name of the definition of ImagePullJobs.
const DefinitionName = "imagepulljobs.apps.kruise.io"

// NewAvailability returns the availability of ImagePullJobs. It calls onChange when they become available or unavailable,
// and onJob with the policy of each job that was created, changed or deleted.
func NewAvailability(c cluster.Cluster, onChange func(ctx context.Context), onJob func(policy resolve.PolicyRef)) *optionalkind.Availability {
	return optionalkind.NewAvailability(optionalkind.Config{
		Cluster: c, Example: &kruise.ImagePullJob{}, Definition: DefinitionName,
		Owner: ownerPolicyUID, OnChange: onChange, Handler: optionalkind.OnEachEvent(func(job any) { notify(job, onJob) }),
	})
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
