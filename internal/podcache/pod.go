// SPDX-License-Identifier: Apache-2.0

// Package podcache holds the operator's cache of unfinished pods and keeps it small: the API server selects the pods, a Pod holds the
// fields that somebody reads as they were sent, and Stores reads them.
package podcache

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// maxBytes bounds what the cache holds of a pod.
const maxBytes = 1024 * plan.MaxContainers

// Pod is an unfinished pod as the cache holds it: the fields that the operator reads, encoded as the API server sent them. That takes a
// fraction of the memory and time of a corev1.Pod, and garbage collections need not scan it. Pods are shared and must not be changed.
type Pod struct {
	// ObjectMeta has the namespace, name and resourceVersion, nothing else. A bookmark of a watch has no name, but annotations.
	metav1.ObjectMeta
	// MayBeDone is whether the pod's main containers may be done: those that the mark does not list have ended, or, without a mark, any
	// container.
	MayBeDone bool

	node    string
	encoded []byte
}

// Fields of an encoded pod.
var (
	podName         = numbersOf("ObjectMeta.Name")
	podNamespace    = numbersOf("ObjectMeta.Namespace")
	podUID          = numbersOf("ObjectMeta.UID")
	podVersion      = numbersOf("ObjectMeta.ResourceVersion")
	podLabels       = numbersOf("ObjectMeta.Labels")
	podAnnotations  = numbersOf("ObjectMeta.Annotations")
	podNode         = numbersOf("Spec.NodeName")
	podContainers   = numbersOf("Spec.Containers.Name")
	podStatuses     = numbersOf("Status.ContainerStatuses")
	containersEnded = numbersOf("Status.ContainerStatuses.State.Terminated")
)

// Unmarshal sets the pod to one in protobuf. A pod that is too large becomes a plan.Stub. One goroutine decodes all watch events, of pods
// that users control.
func (p *Pod) Unmarshal(data []byte) error {
	encoded, err := kept.appendKept(make([]byte, 0, len(data)), data)
	if err != nil {
		return fmt.Errorf("decode pod: %w", err)
	}
	text := func(numbers []protowire.Number) string {
		content, _ := first(encoded, numbers...)
		return string(content)
	}
	p.Reset()
	p.Namespace, p.Name, p.ResourceVersion, p.node = text(podNamespace), text(podName), text(podVersion), text(podNode)
	p.MayBeDone = mayBeDone(encoded)
	if size := len(encoded); size > maxBytes {
		pod := &corev1.Pod{ObjectMeta: p.ObjectMeta}
		pod.UID = types.UID(text(podUID))
		message := fmt.Sprintf("the operator reads %d bytes of the pod; it ignores pods with more than %d", size, maxBytes)
		if encoded, err = plan.Stub(pod, message).Marshal(); err != nil {
			return fmt.Errorf("encode stub of pod: %w", err)
		}
	}
	p.encoded = bytes.Clone(encoded)
	if p.Name == "" {
		bookmark, err := p.DecodeMetadata()
		if err != nil {
			return err
		}
		p.Annotations = bookmark.Annotations
	}
	return nil
}

// Seen returns the pod as the operator sees it: with the fields that it reads, or a plan.Stub.
func Seen(pod *corev1.Pod) (*corev1.Pod, error) {
	encoded, err := pod.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode pod: %w", err)
	}
	var cached Pod
	if err := cached.Unmarshal(encoded); err != nil {
		return nil, err
	}
	return cached.Decode()
}

// mayBeDone returns Pod.MayBeDone of the encoded pod, in time linear in its size.
func mayBeDone(pod []byte) bool {
	_, anyEnded := first(pod, containersEnded...)
	if !anyEnded || valueOf(pod, v1alpha1.LabelOutcome, podLabels) != v1alpha1.OutcomeMainContainers {
		return anyEnded
	}
	mains := sets.Set[string]{}
	for name := range each(pod, podContainers...) {
		mains.Insert(string(name))
	}
	uid, _ := first(pod, podUID...)
	for _, name := range plan.ParseIgnoredExitCodes(valueOf(pod, v1alpha1.AnnotationIgnoredExitCodes, podAnnotations), types.UID(uid)) {
		mains.Delete(name)
	}
	for status := range each(pod, podStatuses...) {
		if _, ended := first(status, containersEnded[len(podStatuses):]...); ended {
			name, _ := first(status, 1)
			mains.Delete(string(name))
		}
	}
	return len(mains) == 0
}

// valueOf returns the value of the key in a map of the encoded pod.
func valueOf(pod []byte, key string, numbers []protowire.Number) string {
	for entry := range each(pod, numbers...) {
		if name, _ := first(entry, 1); string(name) == key {
			value, _ := first(entry, 2)
			return string(value)
		}
	}
	return ""
}

// Reset makes the pod empty.
func (p *Pod) Reset() { *p = Pod{} }

// errJSON is returned because the cache asks for protobuf.
var errJSON = errors.New("decode pods: they are in JSON, want protobuf")

// UnmarshalJSON fails.
func (p *Pod) UnmarshalJSON([]byte) error { return errJSON }

// Decode returns a copy of the pod with the fields that the cache keeps.
func (p *Pod) Decode() (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(p.encoded); err != nil {
		return nil, fmt.Errorf("decode the cached pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return pod, nil
}

// DecodeMetadata returns a copy of the pod's metadata that the cache keeps, at a fraction of the cost of Decode.
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

// PodList is a list of pods. API servers without streaming lists send it.
type PodList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []Pod
}

// Unmarshal sets the list to one in protobuf, and its pods as Pod.Unmarshal does.
func (l *PodList) Unmarshal(data []byte) error {
	l.Reset()
	for len(data) > 0 {
		field, err := nextField(data)
		if err != nil {
			return fmt.Errorf("decode list of pods: %w", err)
		}
		data = data[len(field.encoded):]
		// Every list has its metadata in field 1 and its items in field 2.
		switch field.number {
		case 1:
			err = l.ListMeta.Unmarshal(field.content)
		case 2:
			l.Items = append(l.Items, Pod{})
			err = l.Items[len(l.Items)-1].Unmarshal(field.content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Reset makes the list empty.
func (l *PodList) Reset() { *l = PodList{} }

// UnmarshalJSON fails.
func (l *PodList) UnmarshalJSON([]byte) error { return errJSON }

// DeepCopyObject returns the list itself, because it must not be changed.
func (l *PodList) DeepCopyObject() runtime.Object { return l }
