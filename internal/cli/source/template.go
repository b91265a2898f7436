// SPDX-License-Identifier: Apache-2.0

package source

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/internal/explain"
)

// Template is what makes pods. Name is what to call it by, which with generateName is not yet its name.
type Template struct {
	Kind, Namespace, Name string
	Pod                   corev1.PodTemplateSpec
	BackoffLimit          *int32
	FailurePolicy         *batchv1.PodFailurePolicy
	Deletion              *explain.Deletion
	labels                map[string]string // that the controller adds to the pods
}

// OfJob is the template of a Job.
func OfJob(job *batchv1.Job) Template {
	template := templateOf(job, "Job", job.Spec)
	if job.Name != "" {
		template.labels = map[string]string{batchv1.JobNameLabel: job.Name, "job-name": job.Name}
	}
	return template
}

// OfCronJob is the template of the pods of a CronJob's Jobs.
func OfCronJob(cron *batchv1.CronJob) Template {
	template := templateOf(cron, "CronJob", cron.Spec.JobTemplate.Spec)
	switch {
	case isZero(cron.Spec.SuccessfulJobsHistoryLimit):
		template.Deletion = &explain.Deletion{Field: "successfulJobsHistoryLimit"}
	case isZero(cron.Spec.FailedJobsHistoryLimit):
		template.Deletion = &explain.Deletion{Field: "failedJobsHistoryLimit"}
	}
	return template
}

func isZero(limit *int32) bool { return limit != nil && *limit == 0 }

func templateOf(object metav1.Object, kind string, spec batchv1.JobSpec) Template {
	return Template{
		Kind: kind, Namespace: object.GetNamespace(), Name: shownName(object), Pod: spec.Template,
		BackoffLimit: backoffLimit(spec), FailurePolicy: spec.PodFailurePolicy, Deletion: deletion(spec),
	}
}

// deletion returns when the Job is deleted by its own ttlSecondsAfterFinished, or nil.
func deletion(spec batchv1.JobSpec) *explain.Deletion {
	if spec.TTLSecondsAfterFinished == nil {
		return nil
	}
	return &explain.Deletion{Field: "ttlSecondsAfterFinished", After: time.Duration(*spec.TTLSecondsAfterFinished) * time.Second}
}

// shownName is what to call an object by. With generateName the API server makes up the end of its name.
func shownName(object metav1.Object) string {
	if object.GetName() == "" && object.GetGenerateName() != "" {
		return object.GetGenerateName() + "*"
	}
	return object.GetName()
}

// pod is a pod as the template will make it, but for what webhooks add.
func (t Template) pod() *corev1.Pod {
	labels := maps.Clone(t.Pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, t.labels)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name, Labels: labels, Annotations: t.Pod.Annotations},
		Spec:       t.Pod.Spec,
	}
	withDefaults(pod)
	return pod
}

// withDefaults sets what the API server sets and what decisions depend on.
func withDefaults(pod *corev1.Pod) {
	if pod.Spec.RestartPolicy == "" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
}
