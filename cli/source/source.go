// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
	"github.com/sidecar-termination/operator/internal/terminator/image"
)

// Source reads a cluster or manifests.
type Source struct {
	Reader   client.Reader
	Settings settings.Operator
	Cluster  explain.Cluster
	// assumed are the namespaces that are not in the manifests.
	assumed sets.Set[string]
	notes   []string
	now     time.Time
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

// Pod reads the input for a pod. The Job is the pod's Job, or nil.
func (s *Source) Pod(ctx context.Context, pod *corev1.Pod, job *batchv1.Job) (explain.Pod, error) {
	result := explain.Pod{Kind: "Pod", Name: shownName(pod), Pod: pod}
	if job != nil {
		result.Job = job.Name
		addJob(&result, job.Spec)
	}
	// A manifest of a pod that has run has a status, but no node object.
	result.Template = s.Cluster.Offline && len(pod.Status.ContainerStatuses) == 0
	if err := s.addPolicies(ctx, &result); err != nil || result.Template {
		return result, err
	}
	var node *corev1.Node
	var err error
	if s.Settings.NodeKindRules.All == "" {
		if node, err = observe.Node(ctx, s.Reader, pod); err != nil {
			return result, err
		}
	}
	result.Kubelet, result.PhaseSince = observe.Kubelet(node), phaseSince(pod)
	if result.Node = s.Settings.NodeKindRules.Classify(node); s.Cluster.Offline && result.Node == plan.NodeUnknown && pod.Spec.NodeName != "" {
		result.Node = plan.NodeReal
	}
	observers := []observe.Observer{crr.Observer{Reader: s.Reader}, &image.Terminator{}}
	result.Attempts, err = observe.Attempts(ctx, observers, pod)
	if errors.Is(err, terminator.ErrInvalidAnnotation) {
		result.InvalidAnnotation, err = err.Error(), nil
	}
	return result, err
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

// Template adds what it reads to the input for the pods that a template will create.
func (s *Source) Template(ctx context.Context, template explain.Pod) (explain.Pod, error) {
	err := s.addPolicies(ctx, &template)
	return template, err
}

// Assumed reports whether the namespace is not in the manifests, so that only its name is known.
func (s *Source) Assumed(namespace string) bool { return s.assumed.Has(namespace) }

// Manifest reads the input for the pods of a manifest, and returns false for other objects.
func (s *Source) Manifest(ctx context.Context, manifest Manifest) (explain.Pod, bool, error) {
	var pod explain.Pod
	var err error
	switch object := manifest.Object.(type) {
	case *corev1.Pod:
		var job *batchv1.Job
		if job, err = jobOf(ctx, s.Reader, object); err == nil {
			pod, err = s.Pod(ctx, object, job)
		}
	case *batchv1.Job:
		pod, err = s.Template(ctx, OfJob(object))
	case *batchv1.CronJob:
		pod, err = s.Template(ctx, OfCronJob(object))
	default:
		return pod, false, nil
	}
	return pod, true, err
}
