// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Names of what the demonstration creates.
const (
	namespace   = "sidecar-termination-demo"
	policyName  = "log-shipper"
	selectedJob = "with-policy"
	otherJob    = "without-policy"
	mainName    = "main"
	sidecarName = "log-shipper"
)

const (
	image       = "localhost/busybox:1"
	mainSeconds = 3
	jobLabel    = "batch.kubernetes.io/job-name"
)

// removeLast deletes what the last demonstration has left for people to look at.
func removeLast(ctx context.Context, cluster client.Client) error {
	last := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := cluster.Delete(ctx, last); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("delete the namespace %s of the last demonstration: %w", namespace, err)
	}
	fmt.Printf("Removing the last demonstration...\n\n")
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, removalLimit, true, func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(last), last)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait for the namespace %s of the last demonstration to be gone: %w", namespace, err)
	}
	return nil
}

// create creates the namespace, the policy and both Jobs.
func create(ctx context.Context, cluster client.Client) error {
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		policy(), job(selectedJob), job(otherJob),
	}
	for _, object := range objects {
		if err := cluster.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

func policy() *v1alpha1.SidecarTerminationPolicy {
	return &v1alpha1.SidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: policyName},
		Spec: v1alpha1.SidecarTerminationPolicySpec{PolicySpec: v1alpha1.PolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{jobLabel: selectedJob}},
			Sidecars:    []v1alpha1.Sidecar{{Name: sidecarName}},
		}},
	}
}

// job returns a Job whose sidecar never ends by itself.
func job(name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](0),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy:                 corev1.RestartPolicyNever,
				AutomountServiceAccountToken:  ptr.To(false),
				TerminationGracePeriodSeconds: ptr.To[int64](5),
				Containers: []corev1.Container{
					container(sidecarName, `trap 'echo flushed; exit 0' TERM; sleep infinity & wait`),
					container(mainName, fmt.Sprintf("echo working; sleep %d; echo done", mainSeconds)),
				},
			}},
		},
	}
}

func container(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/bin/sh", "-c", script}}
}

// introduce says what is about to be seen.
func introduce() {
	fmt.Printf("Two Jobs with the same pod: container %q works for %d seconds, its sidecar %q never ends by itself.\n", mainName, mainSeconds, sidecarName)
	fmt.Printf("  %-14s  is selected by SidecarTerminationPolicy %q\n", selectedJob, policyName)
	fmt.Printf("  %-14s  is not\n\n", otherJob)
}
