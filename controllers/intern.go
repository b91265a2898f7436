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

// intern returns an equal string that many pods share.
func intern[S ~string](s S) S {
	if s == "" {
		return s
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

// shareContainers returns equal containers that the pods of one template share.
func shareContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 {
		return containers
	}
	key := template{len(containers), containers[0].Name, containers[0].Image}
	if known, ok := templates.Get(key); ok && reflect.DeepEqual(known, containers) {
		return known.([]corev1.Container)
	}
	templates.Add(key, containers)
	return containers
}
