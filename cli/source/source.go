// SPDX-License-Identifier: Apache-2.0

// Package source reads the input of internal/explain from a cluster or from manifests. Both are readers of Kubernetes objects, which
// internal/podinput uses like the operator's caches.
package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
	"github.com/sidecar-termination/operator/internal/terminator/image"
)

// Source reads a cluster or manifests.
type Source struct {
	// Client is that of the cluster, or nil. Reader reads what decisions depend on, as far as the user may.
	Client   client.Client
	Reader   client.Reader
	Settings settings.Operator
	Cluster  explain.Cluster
	// assumed are the namespaces that are not in the manifests.
	assumed sets.Set[string]
	notes   []string
	now     time.Time
	// KnownJobs are those that the command has read, so that none is read again for each of its pods.
	KnownJobs map[types.UID]*batchv1.Job
}

// Notes are the assumptions about what could not be read.
func (s *Source) Notes() []string { return slices.Clone(s.notes) }

// note adds an assumption, once.
func (s *Source) note(format string, arguments ...any) {
	if text := fmt.Sprintf(format, arguments...); !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}

// Explain reports on a pod.
func (s *Source) Explain(pod explain.Pod) explain.Report {
	return explain.Explain(pod, s.Settings.Decisions, s.Cluster, s.now)
}

// Pod reads the input for a pod, with its Job.
func (s *Source) Pod(ctx context.Context, pod *corev1.Pod) (explain.Pod, error) {
	result := explain.Pod{Kind: "Pod", Name: shownName(pod), Input: podinput.Input{Pod: pod}}
	if seen, err := podcache.Seen(pod); err != nil {
		return result, err
	} else if reason, _ := plan.Unprocessable(seen); reason != "" {
		result.Pod = seen
	}
	job, err := s.jobOf(ctx, pod)
	if err != nil {
		return result, err
	}
	if metav1.GetControllerOf(pod) == nil {
		result.Deletion = hookDeletion(pod)
	}
	if job != nil {
		result.Job, result.Owner = job.Name, metadataOf(job)
		addJob(&result, job.Spec)
		result.Deletion = cmp.Or(hookDeletion(job), result.Deletion)
		result.JobDeadline = plan.Deadline(job.Spec.ActiveDeadlineSeconds, job.Status.StartTime)
	}
	// A manifest of a pod that has run has a status, but no node object.
	result.Template = s.Cluster.Offline && len(pod.Status.ContainerStatuses) == 0
	if result, err = s.WithPolicies(ctx, result); err != nil || result.Template {
		return result, err
	}
	reader := podinput.Reader{
		Objects: s.Reader, NodeKindRules: s.Settings.NodeKindRules, Observers: []podinput.Observer{crr.Observer{Reader: s.Reader}, &image.Terminator{}},
	}
	err = reader.AddState(ctx, &result.Input)
	if result.PhaseSince = phaseSince(pod); s.Cluster.Offline && result.Node == plan.NodeUnknown && pod.Spec.NodeName != "" {
		result.Node = plan.NodeReal
	}
	return result, err
}

// jobOf returns the Job of the pod, or nil. Missing permission is not an error.
func (s *Source) jobOf(ctx context.Context, pod *corev1.Pod) (*batchv1.Job, error) {
	owner := podinput.JobOf(pod)
	if owner == nil {
		return nil, nil
	}
	if known := s.KnownJobs[owner.UID]; known != nil {
		return known, nil
	}
	job := &batchv1.Job{}
	switch err := s.Reader.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, job); {
	case err != nil && isUnavailable(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Job of pod: %w", err)
	case job.UID != owner.UID && !s.Cluster.Offline:
		return nil, nil
	}
	return job, nil
}

// phaseSince returns when the pod's phase became terminal at the latest, as far as its managed fields say.
func phaseSince(pod *corev1.Pod) time.Time {
	var last time.Time
	if !plan.HasTerminalPhase(pod) {
		return last
	}
	for _, entry := range pod.ManagedFields {
		var fields struct {
			Status map[string]json.RawMessage `json:"f:status"`
		}
		if entry.Time == nil || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, written := fields.Status["f:phase"]; written && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// Assumed reports whether the namespace is not in the manifests, so that only its name is known.
func (s *Source) Assumed(namespace string) bool { return s.assumed.Has(namespace) }

// Workload reads the input for the pods of a manifest: those of ReadWorkload, with what decides about them.
func (s *Source) Workload(ctx context.Context, manifest Manifest) (Workload, error) {
	workload := ReadWorkload(manifest)
	for i := range workload.Templates {
		template := &workload.Templates[i]
		var err error
		if pod, ok := manifest.Object.(*corev1.Pod); ok {
			template.Pod, err = s.Pod(ctx, pod)
		} else {
			template.Pod, err = s.WithPolicies(ctx, template.Pod)
		}
		if err != nil {
			return workload, err
		}
	}
	return workload, nil
}
