// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"hash/maphash"
	"maps"
	"reflect"
	"sync"
	"unsafe"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// hashSeed seeds the hashes of shared values.
var hashSeed = maphash.MakeSeed()

// sharedValues lets pods share equal values. It has a fixed number of slots, one per hash: a new value evicts the one in its
// slot. Package unique would not do: a garbage collection drops every value without a handle, and pods have no field for one.
type sharedValues[V any] struct {
	mu    sync.Mutex
	slots []V
}

func newSharedValues[V any](slots int) *sharedValues[V] {
	return &sharedValues[V]{slots: make([]V, slots)}
}

// share returns the equal value in the slot, or else stores the given value and returns it.
func (s *sharedValues[V]) share(hash uint64, value V, equal func(a, b V) bool) V {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := &s.slots[hash%uint64(len(s.slots))]
	if !equal(*slot, value) {
		*slot = value
	}
	return *slot
}

// interned holds strings of pods.
var interned = newSharedValues[string](1 << 14)

// maxInterned is the length of the longest string that is shared.
const maxInterned = 256

// intern returns an equal string that pods share. Longer strings than maxInterned it returns unchanged.
func intern[S ~string](s S) S {
	if s == "" || len(s) > maxInterned {
		return s
	}
	return S(interned.share(maphash.String(hashSeed, string(s)), string(s), func(a, b string) bool { return a == b }))
}

// ownToJob maps each label whose value belongs to one Job or pod to the label that repeats the value, if any. Only the two
// labels of one pod can share it. The Job controller of Kubernetes 1.26 and older uses the unprefixed names.
var ownToJob = map[string]string{
	batchv1.JobNameLabel:                 "job-name",
	batchv1.ControllerUidLabel:           "controller-uid",
	batchv1.JobCompletionIndexAnnotation: "",
	"job-name":                           batchv1.JobNameLabel,
	"controller-uid":                     batchv1.ControllerUidLabel,
}

// maxInternedLabels is the largest number of labels that are interned. A copy of more would cost several times their size.
const maxInternedLabels = 32

// internLabels returns equal labels with shared strings. More labels than maxInternedLabels it returns unchanged.
func internLabels(labels map[string]string) map[string]string {
	if labels == nil || len(labels) > maxInternedLabels {
		return labels
	}
	kept := make(map[string]string, len(labels))
	for name, value := range labels {
		twin, own := ownToJob[name]
		switch {
		case !own:
			value = intern(value)
		case kept[twin] == value:
			value = kept[twin]
		}
		kept[intern(name)] = value
	}
	return kept
}

// templates holds the trimmed containers of pods.
var templates = newSharedValues[[]corev1.Container](1 << 10)

// templateKey is a cheap key for the containers of one pod template. Different templates may have the same key.
type templateKey struct {
	containers  int
	name, image string // of the first one
}

// maxShared is the largest size in bytes of containers that are shared.
const maxShared = 16 << 10

// shareContainers returns equal containers that the pods of one template share. Containers larger than maxShared are returned
// unchanged.
func shareContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 || bytesOf(containers) > maxShared {
		return containers
	}
	key := templateKey{len(containers), containers[0].Name, containers[0].Image}
	return templates.share(maphash.Comparable(hashSeed, key), containers, func(a, b []corev1.Container) bool { return reflect.DeepEqual(a, b) })
}

// annotations holds the annotations of pods.
var annotations = newSharedValues[map[string]string](1 << 10)

// maxSharedAnnotations is the largest size in bytes of annotations that are shared. The record of an image swap belongs to one pod.
const maxSharedAnnotations = 8 << 10

// shareAnnotations returns equal annotations that the pods of one template share. Larger ones than maxSharedAnnotations it returns
// unchanged.
func shareAnnotations(kept map[string]string) map[string]string {
	if len(kept) == 0 {
		return nil
	}
	var hash uint64
	size := 0
	for key, value := range kept {
		hash += maphash.Comparable(hashSeed, [2]string{key, value})
		size += len(key) + len(value)
	}
	if _, swapped := kept[v1alpha1.AnnotationImageSwap]; swapped || size > maxSharedAnnotations {
		return kept
	}
	return annotations.share(hash, kept, maps.Equal)
}

// bytesOf returns the size of trimmed containers in bytes, without values that are the same in every pod.
func bytesOf(containers []corev1.Container) int {
	bytes := len(containers) * int(unsafe.Sizeof(corev1.Container{}))
	for i := range containers {
		container := &containers[i]
		bytes += len(container.Name) + len(container.Image)
		for _, word := range container.Command {
			bytes += int(unsafe.Sizeof(word)) + len(word)
		}
		for _, variable := range container.Env {
			bytes += int(unsafe.Sizeof(variable)) + len(variable.Name) + len(variable.Value)
		}
		for _, mount := range container.VolumeMounts {
			bytes += int(unsafe.Sizeof(mount)) + len(mount.MountPath)
		}
		for _, rule := range container.RestartPolicyRules {
			bytes += int(unsafe.Sizeof(rule))
			if rule.ExitCodes != nil {
				bytes += int(unsafe.Sizeof(*rule.ExitCodes)) + 4*len(rule.ExitCodes.Values)
			}
		}
	}
	return bytes
}
