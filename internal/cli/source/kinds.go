// SPDX-License-Identifier: Apache-2.0

package source

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const policyGroup = v1alpha1.GroupName

// bears reports whether objects of the kind bear on anything.
func bears(object *unstructured.Unstructured) bool {
	kind := object.GroupVersionKind()
	switch kind.Group {
	case policyGroup:
		return true
	case "batch":
		return kind.Version == "v1" && (kind.Kind == "Job" || kind.Kind == "CronJob")
	case "":
		return kind.Kind == "Pod" || kind.Kind == "Namespace" || kind.Kind == "Node"
	}
	return false
}

func isNamespaced(object client.Object) bool {
	switch object.(type) {
	case *corev1.Namespace, *corev1.Node, *v1alpha1.ClusterSidecarTerminationPolicy:
		return false
	}
	return true
}
