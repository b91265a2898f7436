// SPDX-License-Identifier: Apache-2.0

// Package pulljob pulls images to nodes through OpenKruise: an ImagePullJob makes its daemon on each node pull one
// image. It is the only package that writes ImagePullJobs. It carries out the decisions of package prepull, reads the
// existing jobs, and knows whether the cluster serves them.
package pulljob

import (
	"context"
	"errors"
	"fmt"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// parallelism is how many nodes pull at once. OpenKruise's default is one node after the other. It must be a number: OpenKruise
// reads a percentage as 0, which pauses a job (syncNodeImages in imagepulljob_controller.go).
const parallelism = 10

// ErrDenied means that a job cannot be created: OpenKruise's webhook denied it or did not answer, the operator lacks the
// permission, or the job's name is taken. The error says which.
var ErrDenied = errors.New("the ImagePullJob was denied")

// Jobs reads and writes the operator's jobs.
type Jobs struct {
	Client client.Client
	// Server reads without a cache.
	Server       client.Reader
	Availability *optionalkind.Availability
}

// Of returns the policy's jobs from the cache, and none while jobs are not served.
func (j *Jobs) Of(ctx context.Context, policy types.UID) ([]prepull.Existing, error) {
	reader := j.Availability.Reader()
	if reader == nil {
		return nil, nil
	}
	var list kruise.ImagePullJobList
	if err := reader.List(ctx, &list, client.MatchingFields{optionalkind.IndexOwner: string(policy)}); err != nil {
		return nil, fmt.Errorf("list ImagePullJobs of policy: %w", err)
	}
	var existing []prepull.Existing
	for i := range list.Items {
		existing = append(existing, toExisting(&list.Items[i]))
	}
	return existing, nil
}

func toExisting(job *kruise.ImagePullJob) prepull.Existing {
	return prepull.Existing{
		Namespace: job.Namespace, Name: job.Name, UID: job.UID,
		Deleted:     job.DeletionTimestamp != nil,
		Begun:       job.Status.StartTime != nil,
		Desired:     job.Status.Desired,
		Succeeded:   job.Status.Succeeded,
		Failed:      job.Status.Failed,
		FailedNodes: job.Status.FailedNodes,
	}
}

// Create creates the job with the policy as its owner. A job that exists already is no error, unless it is somebody
// else's. Create returns ErrDenied when the job is denied or its name is taken, and a conflict when an existing job of
// its name has just been deleted.
func (j *Jobs) Create(ctx context.Context, policy v1alpha1.Policy, job prepull.Job) error {
	switch err := j.Client.Create(ctx, newJob(policy, job)); {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return j.checkExisting(ctx, policy, job)
	case optionalkind.IsDenial(err):
		return fmt.Errorf("%w: create %s/%s: %w", ErrDenied, job.Namespace, job.Name, err)
	default:
		return fmt.Errorf("create ImagePullJob %s: %w", job.Name, err)
	}
}

// checkExisting returns nil if the existing job of this name is the policy's, which Of finds as soon as the cache has it.
// Otherwise the job would stay invisible and each retry would fail here, so it returns ErrDenied. It returns a conflict if the
// job no longer exists.
func (j *Jobs) checkExisting(ctx context.Context, policy v1alpha1.Policy, job prepull.Job) error {
	jobs := kruise.SchemeGroupVersion.WithResource("imagepulljobs").GroupResource()
	key := client.ObjectKey{Namespace: job.Namespace, Name: job.Name}
	existing, err := optionalkind.ReadExisting(ctx, j.Server, &kruise.ImagePullJobList{}, jobs, key)
	if err != nil || optionalkind.IsOwn(existing, ownerPolicyUID, policy.GetUID()) {
		return err
	}
	return fmt.Errorf("%w: %s exists without the operator's label %s=%s or without the policy as its owner; delete it",
		ErrDenied, key, optionalkind.LabelManagedBy, settings.Name)
}

// Delete deletes the job. It fails with a conflict when another job has taken its name.
func (j *Jobs) Delete(ctx context.Context, existing prepull.Existing) error {
	job := &kruise.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: existing.Namespace, Name: existing.Name}}
	err := j.Client.Delete(ctx, job, client.Preconditions{UID: &existing.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ImagePullJob %s: %w", existing.Name, err)
	}
	return nil
}

// newJob builds the job. It never completes, so that nodes that join later get the image as well, and so that OpenKruise
// repeats the pull about once a day, which brings back an image that the kubelet removed. OpenKruise sets defaults for the
// rest: a pull times out after 10 minutes, is retried 3 times, and is skipped where the image exists.
func newJob(policy v1alpha1.Policy, job prepull.Job) *kruise.ImagePullJob {
	return &kruise.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace,
			Name:      job.Name,
			Labels:    map[string]string{optionalkind.LabelManagedBy: settings.Name, v1alpha1.LabelPolicy: prepull.LabelValue(policy.GetName())},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: string(resolve.RefOf(policy).Kind), Name: policy.GetName(), UID: policy.GetUID(),
				Controller: ptr.To(true),
			}},
		},
		Spec: kruise.ImagePullJobSpec{
			Image: job.Image,
			ImagePullJobTemplate: kruise.ImagePullJobTemplate{
				Selector:         selector(job.NodeSelector),
				PullSecrets:      job.PullSecrets,
				Parallelism:      ptr.To(intstr.FromInt32(parallelism)),
				CompletionPolicy: kruise.CompletionPolicy{Type: kruise.Never},
			},
		},
	}
}

func selector(nodes *metav1.LabelSelector) *kruise.ImagePullJobNodeSelector {
	if nodes == nil {
		return nil
	}
	return &kruise.ImagePullJobNodeSelector{LabelSelector: *nodes}
}
