// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
)

const (
	// maxTemplates bounds the templates that are remembered.
	maxTemplates = 4096
	// rememberTemplate is for how long a template is remembered: the containers of a Job never change. An answer without a template is
	// asked for again after askAgain.
	rememberTemplate, askAgain = time.Hour, time.Minute
)

// jobTemplates reads the pod templates of Jobs, each once, for policies with includeInjected. The permission comes with the component
// include-injected.
type jobTemplates struct {
	live  client.Reader
	known *cache.LRUExpireCache // of templates by the Job
}

// template is what is known about the pod template of a Job.
type template struct {
	containers []string // the regular ones. Empty if there is no template
	forbidden  bool     // the operator may not read Jobs
}

func newJobTemplates(live client.Reader) *jobTemplates {
	return &jobTemplates{live, cache.NewLRUExpireCache(maxTemplates)}
}

// of returns the template of the pod's Job. The labels that the API server adds to the template of each Job name it. On another pod they
// affect that pod alone.
func (t *jobTemplates) of(ctx context.Context, pod *corev1.Pod) (template, error) {
	name, uid := pod.Labels[batchv1.JobNameLabel], pod.Labels[batchv1.ControllerUidLabel]
	if name == "" || uid == "" {
		return template{}, nil
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: name + "/" + uid}
	if known, ok := t.known.Get(key); ok {
		return known.(template), nil
	}
	var found template
	remember := askAgain
	job := &batchv1.Job{}
	err := t.live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, job)
	switch {
	case apierrors.IsForbidden(err):
		found.forbidden = true
	case apierrors.IsNotFound(err), err == nil && string(job.UID) != uid:
	case err != nil:
		return template{}, fmt.Errorf("get the Job of pod: %w", err)
	case len(job.Spec.Template.Spec.Containers) <= plan.MaxContainers:
		remember = rememberTemplate
		for i := range job.Spec.Template.Spec.Containers {
			found.containers = append(found.containers, job.Spec.Template.Spec.Containers[i].Name)
		}
	}
	t.known.Add(key, found, remember)
	return found, nil
}
