// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"reflect"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
)

// interned are the strings that were met last. Package unique forgets what nobody holds a handle of at every collection,
// and a handle is held by no field of a pod.
var interned = lru.New(4096)

// maxInterned is the length of the longest string that is kept to be shared.
const maxInterned = 1 << 10

// intern returns an equal string that many pods share, unless it is very long.
func intern[S ~string](s S) S {
	if s == "" {
		return s
	}
	if len(s) > maxInterned {
		return S(strings.Clone(string(s)))
	}
	if known, ok := interned.Get(string(s)); ok {
		return S(known.(string))
	}
	// A part of a longer string would keep the whole of it.
	own := strings.Clone(string(s))
	interned.Add(own, own)
	return S(own)
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

// internLabels returns equal labels in as little room as can be.
func internLabels(labels map[string]string) map[string]string {
	if labels == nil {
		return nil
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

// templates are the containers of the pods that were met last, as they are kept.
var templates = lru.New(1024)

// template tells pods apart that are not of one template, as far as few words can.
type template struct {
	containers  int
	name, image string // of the first one
}

// maxShared is how much text containers may have that are kept to be shared.
const maxShared = 16 << 10

// shareContainers returns equal containers that the pods of one template share, unless they are very large.
func shareContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 || textIn(containers) > maxShared {
		return containers
	}
	key := template{len(containers), containers[0].Name, containers[0].Image}
	if known, ok := templates.Get(key); ok && reflect.DeepEqual(known, containers) {
		return known.([]corev1.Container)
	}
	templates.Add(key, containers)
	return containers
}

// textIn returns how many bytes whoever writes a pod has put into its containers.
func textIn(containers []corev1.Container) int {
	bytes := 0
	for i := range containers {
		container := &containers[i]
		bytes += len(container.Name) + len(container.Image) + len(container.WorkingDir)
		for _, word := range container.Command {
			bytes += len(word)
		}
		for _, variable := range container.Env {
			bytes += len(variable.Name) + len(variable.Value)
		}
		for _, mount := range container.VolumeMounts {
			bytes += len(mount.MountPath)
		}
	}
	return bytes
}
