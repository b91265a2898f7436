// SPDX-License-Identifier: Apache-2.0

package podinput

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/plan"
)

// JobOf returns the Job that controls the pod, or nil. A pod's author may name any Job, which affects that pod alone.
func JobOf(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Job" || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group != batchv1.GroupName {
		return nil
	}
	return owner
}

const (
	// maxTemplates bounds the templates that are remembered.
	maxTemplates = 4096
	// rememberTemplate is for how long a template is remembered: the containers of a Job never change. An answer without a template is
	// asked for again after askAgain.
	rememberTemplate, askAgain = time.Hour, time.Minute
)

// JobTemplates reads the pod templates of Jobs, each once.
type JobTemplates struct {
	live  client.Reader
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[jobKey]template
}

// jobKey identifies a Job as pods name it. They cannot affect what is known about the Jobs of others.
type jobKey struct {
	types.NamespacedName
	uid types.UID
}

// template is what is known about the pod template of a Job.
type template struct {
	containers []string
	unreadable bool
	until      time.Time
}

// NewJobTemplates returns templates that the reader reads.
func NewJobTemplates(live client.Reader, clock clock.PassiveClock) *JobTemplates {
	return &JobTemplates{live: live, clock: clock, known: map[jobKey]template{}}
}

// Containers returns the regular containers of the template of the pod's Job, and nothing for a pod without a Job. unreadable means that the
// reader lacks permission.
func (t *JobTemplates) Containers(ctx context.Context, pod *corev1.Pod) (containers []string, unreadable bool, err error) {
	owner := JobOf(pod)
	if owner == nil {
		return nil, false, nil
	}
	key := jobKey{types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, owner.UID}
	t.mu.Lock()
	known, found := t.known[key]
	t.mu.Unlock()
	if found && t.clock.Now().Before(known.until) {
		return known.containers, known.unreadable, nil
	}
	read, err := t.read(ctx, key)
	if err != nil {
		return nil, false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remember(key, read)
	return read.containers, read.unreadable, nil
}

func (t *JobTemplates) read(ctx context.Context, key jobKey) (template, error) {
	read := template{until: t.clock.Now().Add(askAgain)}
	job := &batchv1.Job{}
	err := t.live.Get(ctx, key.NamespacedName, job)
	switch {
	case apierrors.IsForbidden(err):
		read.unreadable = true
	case apierrors.IsNotFound(err), err == nil && job.UID != key.uid:
	case err != nil:
		return read, fmt.Errorf("get the Job of pod: %w", err)
	case len(job.Spec.Template.Spec.Containers) <= plan.MaxContainers:
		read.until = t.clock.Now().Add(rememberTemplate)
		for i := range job.Spec.Template.Spec.Containers {
			read.containers = append(read.containers, job.Spec.Template.Spec.Containers[i].Name)
		}
	}
	return read, nil
}

// remember replaces any template if there are too many. The status of a policy reads those of all its pods in turn, so that a replacement of
// the one that was used least recently would read all again each time.
func (t *JobTemplates) remember(job jobKey, read template) {
	if _, known := t.known[job]; !known && len(t.known) >= maxTemplates {
		for other := range t.known {
			delete(t.known, other)
			break
		}
	}
	t.known[job] = read
}
