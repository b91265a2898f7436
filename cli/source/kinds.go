// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/settings"
)

const policyGroup = v1alpha1.GroupName

// isRelevant reports whether the object affects decisions.
func isRelevant(object *unstructured.Unstructured) bool {
	kind := object.GroupVersionKind()
	switch kind.Group {
	case policyGroup:
		return true
	case "apps":
		return kind.Version == "v1" && kind.Kind == "Deployment" && object.GetLabels()[operatorLabel] == settings.Name
	case "batch":
		return kind.Version == "v1" && (kind.Kind == "Job" || kind.Kind == "CronJob")
	case "":
		return kind.Kind == "Pod" || kind.Kind == "Namespace" || kind.Kind == "Node"
	}
	return false
}

// makesPods reports whether an object of an unknown kind may create pods that finish: it contains a container with an image.
// Built-in workloads other than Jobs restart their pods forever.
func makesPods(object *unstructured.Unstructured) bool {
	switch object.GroupVersionKind().Group {
	case "", "apps", "extensions":
		return false
	}
	return holdsContainer(object.Object)
}

// holdsContainer reports whether the value has, at any depth, a container with an image or a list of them.
func holdsContainer(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if name == "container" && hasImage(field) || name == "containers" && isListOfImages(field) || holdsContainer(field) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, holdsContainer)
	}
	return false
}

func isListOfImages(value any) bool {
	list, _ := value.([]any)
	return slices.ContainsFunc(list, hasImage)
}

func hasImage(value any) bool {
	container, _ := value.(map[string]any)
	image, _ := container["image"].(string)
	return image != ""
}

// noteIgnoredKinds names the kinds that create pods and are ignored, given the kind of each such object.
func noteIgnoredKinds(kinds []schema.GroupVersionKind) string {
	counts := map[schema.GroupVersionKind]int{}
	var order []schema.GroupVersionKind
	for _, kind := range kinds {
		if counts[kind]++; counts[kind] == 1 {
			order = append(order, kind)
		}
	}
	var parts []string
	for _, kind := range order {
		parts = append(parts, fmt.Sprintf("%d %s (%s)", counts[kind], kind.Kind, kind.GroupVersion()))
	}
	return fmt.Sprintf("ignored: %s; only Pods, Jobs and CronJobs are read from manifests: for other kinds explain their pods in the cluster",
		strings.Join(parts, ", "))
}

func isNamespaced(object client.Object) bool {
	switch object.(type) {
	case *corev1.Namespace, *corev1.Node, *v1alpha1.ClusterSidecarTerminationPolicy:
		return false
	}
	return true
}
