// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// noon is when the tests take place.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newPod has a main container and a sidecar, proxy, and both run.
func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job-1", UID: "4a1b", ResourceVersion: "17", Labels: map[string]string{"team": "etl"}},
		Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "main", Image: "main:v1"}, {Name: "proxy", Image: "proxy:v1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			runs("main"), runs("proxy"),
		}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func runs(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + name,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-time.Minute))}},
	}
}

func ended(name string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(noon)}},
	}
}

// mainDone lets the main container end.
func mainDone(pod *corev1.Pod) { pod.Status.ContainerStatuses[0] = ended("main", 0) }

// sidecarDone lets the sidecar end.
func sidecarDone(pod *corev1.Pod) { pod.Status.ContainerStatuses[1] = ended("proxy", 143) }

// succeeded gives the pod its terminal phase.
func succeeded(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }

// policyOn returns a policy that names containers.
func policyOn(name string, sidecars ...string) resolve.Policy {
	policy := resolve.Policy{
		Ref:  resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: name},
		Spec: &v1alpha1.PolicySpec{},
	}
	for _, sidecar := range sidecars {
		policy.Spec.Sidecars = append(policy.Spec.Sidecars, v1alpha1.Sidecar{Name: sidecar})
	}
	return policy
}

// subjectOf resolves the policies for the pod.
func subjectOf(pod *corev1.Pod, policies ...resolve.Policy) subject {
	return subject{pod: pod, policies: policies, resolution: resolve.Resolve(pod, policies, resolve.Options{})}
}

// recordedEvents is an event recorder that keeps what it is told, one line an event.
type recordedEvents struct {
	mu    sync.Mutex
	lines []string
}

func (r *recordedEvents) Eventf(regarding, related runtime.Object, kind, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	on := regarding.(*corev1.ObjectReference)
	line := fmt.Sprintf("%s %s %s/%s: %s", kind, reason, on.Namespace, on.Name, fmt.Sprintf(note, args...))
	if policy, ok := related.(*corev1.ObjectReference); ok {
		line += " [" + policy.Kind + "/" + policy.Name + "]"
	}
	r.lines = append(r.lines, line)
}

// take returns the events since it was last called.
func (r *recordedEvents) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

func keyOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
