// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
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
	maps.Copy(template.Pod.Labels, jobNameLabels(shownName(job)))
	return template
}

// jobNameLabels are the labels that the Job controller sets in the pods of a Job with the name. An asterisk stands for what Kubernetes or
// another controller generates: selectors cannot have one.
func jobNameLabels(name string) map[string]string {
	return map[string]string{batchv1.JobNameLabel: name, "job-name": name}
}

// ofController ends the name of an object, and makes it that of the Jobs that its controller creates.
const ofController = "-*"

// OfCronJob returns the pods that a CronJob will create.
func OfCronJob(cron *batchv1.CronJob) explain.Pod {
	template := ofTemplate(cron, "CronJob", cron.Spec.JobTemplate.Spec)
	maps.Copy(template.Pod.Labels, jobNameLabels(shownName(cron)+ofController))
	template.Owner = metadataOf(cron, &cron.Spec.JobTemplate)
	limits := map[string]*int32{successfulLimit: cron.Spec.SuccessfulJobsHistoryLimit, failedLimit: cron.Spec.FailedJobsHistoryLimit}
	noHistory := zeroLimit(func(field string) bool { return limits[field] != nil && *limits[field] == 0 })
	template.Deletion = cmp.Or(noHistory, template.Deletion)
	return template
}

// The history limits of a CronJob, and of a ScaledJob of KEDA.
const (
	successfulLimit = "successfulJobsHistoryLimit"
	failedLimit     = "failedJobsHistoryLimit"
)

// zeroLimit returns the deletion by the first history limit that is zero, or nil.
func zeroLimit(isZero func(field string) bool) *explain.Deletion {
	for _, field := range []string{successfulLimit, failedLimit} {
		if isZero(field) {
			return &explain.Deletion{Field: field}
		}
	}
	return nil
}

// hookDeletion returns when Helm or Argo CD delete the object because it is a hook that has finished, or nil. Argo CD reads both
// annotations. Both delete at once.
func hookDeletion(object metav1.Object) *explain.Deletion {
	for _, hook := range []struct{ annotation, deletes, keeps string }{
		{"helm.sh/hook-delete-policy", "hook-succeeded", "before-hook-creation"},
		{"argocd.argoproj.io/hook-delete-policy", "HookSucceeded", "BeforeHookCreation"},
	} {
		for policy := range strings.SplitSeq(object.GetAnnotations()[hook.annotation], ",") {
			if strings.TrimSpace(policy) == hook.deletes {
				return &explain.Deletion{
					Field: "annotation " + hook.annotation + "=" + hook.deletes,
					Hint:  fmt.Sprintf("if the sidecars need their token, log or grace period, set annotation %s to %s", hook.annotation, hook.keeps),
				}
			}
		}
	}
	return nil
}

// ofTemplate returns the pods of the template in the Job's specification, without the changes of webhooks.
func ofTemplate(object metav1.Object, kind string, spec batchv1.JobSpec) explain.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: shownName(object), Labels: map[string]string{},
		Annotations: spec.Template.Annotations, Finalizers: spec.Template.Finalizers,
	}, Spec: spec.Template.Spec}
	maps.Copy(pod.Labels, spec.Template.Labels)
	pod.Spec.RestartPolicy = cmp.Or(pod.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	result := explain.Pod{Kind: kind, Name: pod.Name, Input: podinput.Input{Pod: pod}, Owner: metadataOf(object), Template: true}
	addJob(&result, spec)
	// A hook counts as finished when it is created, unless its kind finishes.
	if kind != "CronJob" {
		result.Deletion = cmp.Or(hookDeletion(object), result.Deletion)
	}
	return result
}

// metadataOf merges the metadata of objects.
func metadataOf(objects ...metav1.Object) explain.Metadata {
	merged := explain.Metadata{Labels: map[string]string{}, Annotations: map[string]string{}}
	for _, object := range objects {
		maps.Copy(merged.Labels, object.GetLabels())
		maps.Copy(merged.Annotations, object.GetAnnotations())
	}
	return merged
}

// addJob adds what the Job's specification says about the end of its pods.
func addJob(pod *explain.Pod, spec batchv1.JobSpec) {
	pod.BackoffLimit = new(ptr.Deref(spec.BackoffLimit, defaultBackoffLimit))
	pod.FailurePolicy = spec.PodFailurePolicy
	pod.JobContainers = explain.RegularContainers(&corev1.Pod{Spec: spec.Template.Spec})
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
