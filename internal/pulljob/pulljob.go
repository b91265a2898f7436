// SPDX-License-Identifier: Apache-2.0

// Package pulljob makes images come to nodes through OpenKruise: an ImagePullJob has Kruise's daemon on each node pull one
// image. It is the only code that writes to ImagePullJobs. It carries out what internal/prepull has decided and reports
// the jobs that are there; it decides nothing. Availability tells whether the cluster serves jobs at all.
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
	"github.com/sidecar-termination/operator/internal/prepull"
	"github.com/sidecar-termination/operator/internal/served"
)

const (
	// labelManagedBy marks the jobs that this operator created.
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "sidecar-termination-operator"

	// parallelism is how many nodes pull at once. Kruise's default is one node after the other. It must be a number: Kruise
	// takes a percentage for 0, which pauses a job (syncNodeImages in imagepulljob_controller.go).
	parallelism = 10
)

// ErrRefused means that Kruise's webhook did not accept a job, or did not answer, or that the operator may not create jobs.
// The error says which.
var ErrRefused = errors.New("the ImagePullJob was refused")

// Jobs reads and writes the operator's jobs.
type Jobs struct {
	Client       client.Client
	Availability *Availability
}

// Of returns the policy's jobs from the cache, and none while jobs are not served.
func (j *Jobs) Of(ctx context.Context, policy types.UID) ([]prepull.Existing, error) {
	reader := j.Availability.jobs.Reader()
	if reader == nil {
		return nil, nil
	}
	var list kruise.ImagePullJobList
	if err := reader.List(ctx, &list, client.MatchingFields{indexPolicyUID: string(policy)}); err != nil {
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
		Namespace: job.Namespace, Name: job.Name, UID: job.UID, Created: job.CreationTimestamp.Time,
		// A creation is generation 1, with all that webhooks made of it.
		Changed:     job.Generation > 1,
		Deleted:     job.DeletionTimestamp != nil,
		Begun:       job.Status.StartTime != nil,
		Desired:     job.Status.Desired,
		Succeeded:   job.Status.Succeeded,
		Failed:      job.Status.Failed,
		FailedNodes: job.Status.FailedNodes,
	}
}

// Create creates the job with the policy as its owner. A job that exists already is no error. It returns ErrRefused when
// the job is not accepted.
func (j *Jobs) Create(ctx context.Context, policy prepull.Policy, job prepull.Job) error {
	switch err := j.Client.Create(ctx, newJob(policy, job)); {
	case err == nil, apierrors.IsAlreadyExists(err):
		return nil
	case served.IsRefusal(err):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	default:
		return fmt.Errorf("create ImagePullJob %s: %w", job.Name, err)
	}
}

// Delete deletes the job. When another one has taken its name it fails with a conflict.
func (j *Jobs) Delete(ctx context.Context, existing prepull.Existing) error {
	job := &kruise.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: existing.Namespace, Name: existing.Name}}
	err := j.Client.Delete(ctx, job, client.Preconditions{UID: &existing.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ImagePullJob %s: %w", existing.Name, err)
	}
	return nil
}

// newJob builds the job. It never completes, so that nodes that join later get the image as well, and so that Kruise asks
// each node again about once a day, which brings back an image that the kubelet has removed. What is left out is Kruise's
// to default: a pull may take 10 minutes, is repeated 3 times, and is left out where the image is there.
func newJob(policy prepull.Policy, job prepull.Job) *kruise.ImagePullJob {
	return &kruise.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace,
			Name:      job.Name,
			Labels:    map[string]string{labelManagedBy: managedBy, v1alpha1.LabelPolicy: prepull.LabelValue(policy.Ref.Name)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: string(policy.Ref.Kind), Name: policy.Ref.Name, UID: policy.UID,
				Controller: ptr.To(true),
			}},
		},
		Spec: kruise.ImagePullJobSpec{
			Image: job.Image,
			ImagePullJobTemplate: kruise.ImagePullJobTemplate{
				Selector:         selector(job.NodeSelector),
				PullSecrets:      job.PullSecrets,
				SandboxConfig:    sandboxConfig(job.SandboxConfig),
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

func sandboxConfig(sandbox *v1alpha1.SandboxConfig) *kruise.SandboxConfig {
	if sandbox == nil {
		return nil
	}
	return &kruise.SandboxConfig{Labels: sandbox.Labels, Annotations: sandbox.Annotations}
}
