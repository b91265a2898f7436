// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"hash/maphash"
	"reflect"
	"sync"
	"unsafe"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// sharedValues holds values that many pods have in common. Its size is fixed, and it allocates nothing for a value: each has
// one place, by its hash, which it takes from the value that was there. Package unique forgets what nobody holds a handle
// of at every collection, and a handle is held by no field of a pod.
type sharedValues[V any] struct {
	mu     sync.Mutex
	places []V
}

func newSharedValues[V any](places int) *sharedValues[V] {
	return &sharedValues[V]{places: make([]V, places)}
}

// share returns the equal value that is held, or else holds the given one and returns it.
func (s *sharedValues[V]) share(hash uint64, value V, equal func(a, b V) bool) V {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := &s.places[hash%uint64(len(s.places))]
	if !equal(*place, value) {
		*place = value
	}
	return *place
}

// interned are strings of pods.
var interned = newSharedValues[string](1 << 14)

// maxInterned is the length of the longest string that is kept to be shared.
const maxInterned = 256

// intern returns an equal string that many pods share, unless it is very long.
func intern[S ~string](s S) S {
	if s == "" || len(s) > maxInterned {
		return s
	}
	return S(interned.share(maphash.String(idSeed, string(s)), string(s), func(a, b string) bool { return a == b }))
}

// ownToJob are labels of which the values are those of one Job or one pod, so that there is nothing to share but with the
// same pod's label of the older name. The older names are the Job controller's from before Kubernetes 1.27.
var ownToJob = map[string]string{
	batchv1.JobNameLabel:                 "job-name",
	batchv1.ControllerUidLabel:           "controller-uid",
	batchv1.JobCompletionIndexAnnotation: "",
	"job-name":                           batchv1.JobNameLabel,
	"controller-uid":                     batchv1.ControllerUidLabel,
}

// maxInternedLabels is how many labels a pod may have whose strings are shared. A copy of very many would cost several times
// their size.
const maxInternedLabels = 32

// internLabels returns equal labels in as little room as can be; very many it returns as they are.
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

// templates are the containers of pods, as they are kept.
var templates = newSharedValues[[]corev1.Container](1 << 10)

// template tells pods apart that are not of one template, as far as few words can.
type template struct {
	containers  int
	name, image string // of the first one
}

// maxShared is how many bytes containers may take that are kept to be shared.
const maxShared = 16 << 10

// shareContainers returns equal containers that the pods of one template share, unless they are very large.
func shareContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 || bytesOf(containers) > maxShared {
		return containers
	}
	key := template{len(containers), containers[0].Name, containers[0].Image}
	return templates.share(maphash.Comparable(idSeed, key), containers, func(a, b []corev1.Container) bool { return reflect.DeepEqual(a, b) })
}

// bytesOf returns how many bytes trimmed containers take, but for those that are the same in every pod.
func bytesOf(containers []corev1.Container) int {
	bytes := len(containers) * int(unsafe.Sizeof(corev1.Container{}))
	for i := range containers {
		container := &containers[i]
		bytes += len(container.Name) + len(container.Image) + len(container.WorkingDir)
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
