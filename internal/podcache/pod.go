// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pod is an unfinished pod as the cache holds it: encoded, which takes a fraction of the memory, and garbage collections need not scan
// it. Pods are shared and must not be changed.
type Pod struct {
	// ObjectMeta has the namespace, name and resourceVersion, nothing else.
	metav1.ObjectMeta
	// Ended is whether a container has ended.
	Ended bool

	node    string
	encoded []byte
}

// NewPod returns what the cache holds of the pod, which it does not change: the fields that Trim keeps.
func NewPod(pod *corev1.Pod) *Pod {
	trimmed := Trim(pod)
	encoded, err := trimmed.Marshal()
	if err != nil {
		// The API server sends pods in the same encoding. The transform of the cache recovers.
		panic(fmt.Errorf("encode pod: %w", err))
	}
	return &Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, ResourceVersion: pod.ResourceVersion},
		Ended:      slices.ContainsFunc(trimmed.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Terminated != nil }),
		node:       trimmed.Spec.NodeName,
		encoded:    encoded,
	}
}

// compactPod is the transform of the cache of pods. It returns any other object unchanged, and so a pod that is compact already: the
// informer transforms the pods of its first list twice.
func compactPod(object any) any {
	if pod, ok := object.(*corev1.Pod); ok {
		return NewPod(pod)
	}
	return object
}

// Decode returns a copy of the trimmed pod.
func (p *Pod) Decode() (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(p.encoded); err != nil {
		return nil, fmt.Errorf("decode the cached pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return pod, nil
}

// DecodeMetadata returns a copy of the trimmed pod's metadata, at a fraction of the cost of Decode.
func (p *Pod) DecodeMetadata() (*metav1.PartialObjectMetadata, error) {
	// All kinds encode their metadata as the same field. This one skips other fields.
	metadata := &metav1.PartialObjectMetadata{}
	if err := metadata.Unmarshal(p.encoded); err != nil {
		return nil, fmt.Errorf("decode the metadata of the cached pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return metadata, nil
}

// GetObjectKind returns an empty kind, as typed clients do.
func (p *Pod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the pod itself, because it must not be changed.
func (p *Pod) DeepCopyObject() runtime.Object { return p }
