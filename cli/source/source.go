// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/injectors"
	"github.com/sidecar-termination/operator/internal/observe"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/policyindex"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// Source reads a cluster or manifests.
type Source struct {
	Reader   client.Reader
	Settings settings.Operator
	Cluster  explain.Cluster
	// Offline is true for manifests.
	Offline bool
	program Program
	// assumed are the namespaces that are not in the manifests.
	assumed sets.Set[string]
	notes   []string
	now     time.Time
}

// Notes are the assumptions about what could not be read.
func (s *Source) Notes() []string {
	if reader, ok := s.Reader.(*tolerantReader); ok {
		return append(s.notes[:len(s.notes):len(s.notes)], reader.notes...)
	}
	return s.notes
}

// Explain reports on a pod. Hints name commands of the program.
func (s *Source) Explain(pod explain.Pod) explain.Report {
	report := explain.Explain(pod, s.Settings.Decisions, s.Cluster, s.now)
	s.nameCheck(report.Findings)
	return report
}

// nameCheck adds the subcommand check to the hints of findings on which it has more details.
func (s *Source) nameCheck(findings []explain.Finding) {
	for i := range findings {
		if found := &findings[i]; explain.CheckSaysMore(found.Reason) {
			found.Hint += fmt.Sprintf("; run: %s check", s.program.Name)
		}
	}
}

// Pod reads the input for a pod. The Job is the pod's Job, or nil.
func (s *Source) Pod(ctx context.Context, pod *corev1.Pod, job *batchv1.Job) (explain.Pod, error) {
	result := explain.Pod{Kind: "Pod", Name: shownName(pod), Pod: pod}
	if job != nil {
		result.Job, result.BackoffLimit, result.FailurePolicy = job.Name, backoffLimit(job.Spec), job.Spec.PodFailurePolicy
		result.Deletion = deletion(job.Spec)
	}
	var err error
	if result.Policies, err = s.policies(ctx, pod); err != nil {
		return result, err
	}
	// A manifest of a pod that has run has a status, but no node object.
	result.Template = s.Offline && len(pod.Status.ContainerStatuses) == 0
	if result.Template {
		return result, s.addInjected(ctx, &result)
	}
	var node *corev1.Node
	if s.Settings.NodeKindRules.All == "" {
		if node, err = observe.Node(ctx, s.Reader, pod); err != nil {
			return result, err
		}
	}
	if node != nil {
		result.KubeletVersion = node.Status.NodeInfo.KubeletVersion
	}
	if result.Node = s.Settings.NodeKindRules.Classify(node); s.Offline && result.Node == plan.NodeUnknown && pod.Spec.NodeName != "" {
		result.Node = plan.NodeReal
	}
	observers := []observe.Observer{crr.Observer{Reader: s.Reader}, &podphase.Terminator{}, &image.Terminator{}}
	result.Attempts, err = observe.Attempts(ctx, observers, pod)
	if errors.Is(err, terminator.ErrInvalidAnnotation) {
		result.InvalidAnnotation, err = err.Error(), nil
	}
	return result, err
}

// Template reads the input for the pods that a template will create.
func (s *Source) Template(ctx context.Context, template Template) (explain.Pod, error) {
	pod := template.pod()
	result := explain.Pod{
		Kind: template.Kind, Name: template.Name, Pod: pod, Template: true,
		BackoffLimit: template.BackoffLimit, FailurePolicy: template.FailurePolicy, Deletion: template.Deletion,
		EndedByOthers: template.EndedByOthers,
	}
	var err error
	if result.Policies, err = s.policies(ctx, pod); err != nil || !s.Offline {
		return result, err
	}
	return result, s.addInjected(ctx, &result)
}

// addInjected predicts from manifests what webhooks add to the pods of a template. In a cluster the pods show it.
func (s *Source) addInjected(ctx context.Context, pod *explain.Pod) error {
	namespace := policyindex.NamespaceMetadata()
	if err := s.Reader.Get(ctx, client.ObjectKey{Name: pod.Pod.Namespace}, namespace); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get namespace: %w", err)
	}
	pod.Injected = injectors.Predict(pod.Pod, injectors.Metadata{Labels: namespace.Labels, Annotations: namespace.Annotations})
	return nil
}

// Assumed reports whether the namespace is not in the manifests, so that only its name is known.
func (s *Source) Assumed(namespace string) bool { return s.assumed.Has(namespace) }

// defaultBackoffLimit is the default of Kubernetes.
const defaultBackoffLimit = 6

func backoffLimit(spec batchv1.JobSpec) *int32 {
	limit := int32(defaultBackoffLimit)
	if spec.BackoffLimit != nil {
		limit = *spec.BackoffLimit
	}
	return &limit
}

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
