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

// Template is a pod template of a Job or CronJob. With generateName, Name is the prefix and an asterisk.
type Template struct {
	Kind, Namespace, Name string
	Pod                   corev1.PodTemplateSpec
	BackoffLimit          *int32
	FailurePolicy         *batchv1.PodFailurePolicy
	Deletion              *explain.Deletion
	// EndedByOthers are containers that the workload's controller ends, or waits for alone.
	EndedByOthers []string
	labels        map[string]string // added by the Job controller
}

// OfJob returns the template of a Job.
func OfJob(job *batchv1.Job) Template {
	template := templateOf(job, "Job", job.Spec)
	if job.Name != "" {
		template.labels = map[string]string{batchv1.JobNameLabel: job.Name, "job-name": job.Name}
	}
	return template
}

// OfCronJob returns the template of a CronJob's pods.
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

// deletion returns the deletion by ttlSecondsAfterFinished, or nil.
func deletion(spec batchv1.JobSpec) *explain.Deletion {
	if spec.TTLSecondsAfterFinished == nil {
		return nil
	}
	return &explain.Deletion{Field: "ttlSecondsAfterFinished", After: time.Duration(*spec.TTLSecondsAfterFinished) * time.Second}
}

// shownName is the name of an object. With generateName it is the prefix and an asterisk.
func shownName(object metav1.Object) string {
	if object.GetName() == "" && object.GetGenerateName() != "" {
		return object.GetGenerateName() + "*"
	}
	return object.GetName()
}

// pod is a pod of the template, without the changes of webhooks.
func (t Template) pod() *corev1.Pod {
	labels := maps.Clone(t.Pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, t.labels)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Name, Labels: labels, Annotations: t.Pod.Annotations, Finalizers: t.Pod.Finalizers},
		Spec:       t.Pod.Spec,
	}
	withDefaults(pod)
	return pod
}

// withDefaults sets the API server's defaults that affect decisions.
func withDefaults(pod *corev1.Pod) {
	if pod.Spec.RestartPolicy == "" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
}
