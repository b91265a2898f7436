// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// resolvedPodOf resolves the policies for the pod.
func resolvedPodOf(pod *corev1.Pod, policies ...resolve.Policy) resolvedPod {
	in := podinput.Input{Pod: pod, Policies: policies}
	return resolvedPod{in, in.Resolve(resolve.Options{})}
}

// recordedEvents is an event recorder that keeps events, one line each.
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

// take returns the events since the last call.
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
