// SPDX-License-Identifier: Apache-2.0

// Package podtest makes pods, policies and settings for the tests of all packages.
package podtest

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Noon is the time at which containers of these pods end.
var Noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// New returns a pod with a main container and a sidecar, proxy, which both run.
func New(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job-1", UID: "4a1b", ResourceVersion: "17", Labels: map[string]string{"team": "etl"}},
		Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "main", Image: "main:v1"}, {Name: "proxy", Image: "proxy:v1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			Running("main"), Running("proxy"),
		}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// InNamespace leaves the pod only the metadata with which the API server creates it in the namespace.
func InNamespace(namespace, name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: pod.Labels, Annotations: pod.Annotations}
	}
}

// OfJob returns a pod of a Job as the API server sends it: with the labels that Kubernetes adds, managed fields, volumes,
// probes and variables.
func OfJob(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := New(change...)
	pod.Labels = map[string]string{
		"app": "app-00000", "enabled": "true", "team": "etl", "version": "v1", "batch.kubernetes.io/job-name": "import", "job-name": "import",
		"batch.kubernetes.io/controller-uid": "4b9c0a52-6b53-4f0e-9d2a-4c0f3a1d2e77", "controller-uid": "4b9c0a52-6b53-4f0e-9d2a-4c0f3a1d2e77",
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kube-controller-manager", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:spec":{}}`, 150))},
		{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:status":{}}`, 150))},
	}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		container.Command = []string{"/usr/local/bin/run"}
		container.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "token", MountPath: "/var/run/secrets"}}
		container.ReadinessProbe = &corev1.Probe{PeriodSeconds: 10}
		for n := range 20 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", n), Value: "value"})
		}
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data"}, {Name: "token"}}
	return pod
}

// Running is the status of a running container.
func Running(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + name,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(Noon.Add(-time.Minute))}},
	}
}

// Ended is the status of a container that ended at noon.
func Ended(name string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(Noon)}},
	}
}

// MainDone ends the main container.
func MainDone(pod *corev1.Pod) { pod.Status.ContainerStatuses[0] = Ended("main", 0) }

// SidecarDone ends the sidecar.
func SidecarDone(pod *corev1.Pod) { pod.Status.ContainerStatuses[1] = Ended("proxy", 143) }

// Succeeded sets the terminal phase.
func Succeeded(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }

// Policy returns a policy of the pods' namespace that names sidecars.
func Policy(name string, sidecars ...string) resolve.Policy {
	policy := resolve.Policy{
		Ref:  resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: name},
		Spec: &v1alpha1.PolicySpec{},
	}
	for _, sidecar := range sidecars {
		policy.Spec.Sidecars = append(policy.Spec.Sidecars, v1alpha1.Sidecar{Name: sidecar})
	}
	return policy
}

// Modes returns all modes, with the given use of phases.
func Modes(phase plan.PodPhaseUse) plan.EnabledModes {
	return plan.EnabledModes{CRR: true, Image: true, PodPhase: phase, PrePull: true}
}

// ReachableBytes is the size of the heap after a collection.
func ReachableBytes() int64 {
	// The second collection frees what the first one found to have finalizers.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
