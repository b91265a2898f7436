// SPDX-License-Identifier: Apache-2.0

package source

import (
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/podinput"
)

// defaultBackoffLimit is the default of Kubernetes.
const defaultBackoffLimit = 6

// OfJob returns the pods that a Job will create.
func OfJob(job *batchv1.Job) explain.Pod {
	template := ofTemplate(job, "Job", job.Spec)
	if job.Name != "" {
		maps.Copy(template.Pod.Labels, map[string]string{batchv1.JobNameLabel: job.Name, "job-name": job.Name})
	}
	return template
}

// OfCronJob returns the pods that a CronJob will create.
func OfCronJob(cron *batchv1.CronJob) explain.Pod {
	template := ofTemplate(cron, "CronJob", cron.Spec.JobTemplate.Spec)
	switch {
	case isZero(cron.Spec.SuccessfulJobsHistoryLimit):
		template.Deletion = &explain.Deletion{Field: "successfulJobsHistoryLimit"}
	case isZero(cron.Spec.FailedJobsHistoryLimit):
		template.Deletion = &explain.Deletion{Field: "failedJobsHistoryLimit"}
	}
	return template
}

func isZero(limit *int32) bool { return limit != nil && *limit == 0 }

// ofTemplate returns the pods of the template in the Job's specification, without the changes of webhooks.
func ofTemplate(object metav1.Object, kind string, spec batchv1.JobSpec) explain.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: shownName(object), Labels: map[string]string{},
		Annotations: spec.Template.Annotations, Finalizers: spec.Template.Finalizers,
	}, Spec: spec.Template.Spec}
	maps.Copy(pod.Labels, spec.Template.Labels)
	withDefaults(pod)
	result := explain.Pod{Kind: kind, Name: pod.Name, Input: podinput.Input{Pod: pod}, Template: true}
	addJob(&result, spec)
	return result
}

// addJob adds what the Job's specification says about the end of its pods.
func addJob(pod *explain.Pod, spec batchv1.JobSpec) {
	pod.BackoffLimit = new(ptr.Deref(spec.BackoffLimit, defaultBackoffLimit))
	pod.FailurePolicy = spec.PodFailurePolicy
	for i := range spec.Template.Spec.Containers {
		pod.JobContainers = append(pod.JobContainers, spec.Template.Spec.Containers[i].Name)
	}
	if spec.TTLSecondsAfterFinished != nil {
		pod.Deletion = &explain.Deletion{Field: "ttlSecondsAfterFinished", After: time.Duration(*spec.TTLSecondsAfterFinished) * time.Second}
	}
}

// shownName is the name of an object. With generateName it is the prefix and an asterisk.
func shownName(object metav1.Object) string {
	if object.GetName() == "" && object.GetGenerateName() != "" {
		return object.GetGenerateName() + "*"
	}
	return object.GetName()
}

// withDefaults sets the API server's defaults that affect decisions.
func withDefaults(pod *corev1.Pod) {
	if pod.Spec.RestartPolicy == "" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
}
