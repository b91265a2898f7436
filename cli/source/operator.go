// SPDX-License-Identifier: Apache-2.0

package source

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/settings"
)

// operatorLabel is the label of the operator's Deployment with the name of the program.
const operatorLabel = "app.kubernetes.io/name"

// OperatorLabels are the labels of the operator's Deployment and its pods.
var OperatorLabels = client.MatchingLabels{operatorLabel: settings.Name}

// operatorContainer returns the container that runs the operator, or nil if the Deployment is not the operator's.
func operatorContainer(deployment *appsv1.Deployment) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == settings.ContainerName })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

// OperatorArguments returns the operator's arguments with variables expanded as in Kubernetes. It returns false if the
// Deployment is not the operator's.
func OperatorArguments(deployment *appsv1.Deployment) ([]string, bool) {
	container := operatorContainer(deployment)
	if container == nil {
		return nil, false
	}
	values := map[string]string{}
	for _, variable := range container.Env {
		if variable.ValueFrom == nil {
			values[variable.Name] = expand(variable.Value, values)
		}
	}
	var arguments []string
	for _, argument := range slices.Concat(container.Command[min(len(container.Command), 1):], container.Args) {
		arguments = append(arguments, expand(argument, values))
	}
	return arguments, true
}

var reference = regexp.MustCompile(`\$\$|\$\(([^()]*)\)`)

// expand puts values in for $(NAME); an unknown name stays as it is, and $$ is a dollar sign.
func expand(text string, values map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := values[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

// OperatorImage returns the image that the Deployment runs the operator from, or nothing if it is not the operator's.
func OperatorImage(deployment *appsv1.Deployment) string {
	if container := operatorContainer(deployment); container != nil {
		return container.Image
	}
	return ""
}

// TagOf returns the tag of the image, or nothing.
func TagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	tag, err := name.NewTag(image, name.WithDefaultTag(""))
	if err != nil {
		return ""
	}
	return tag.TagStr()
}

// VersionOf returns the tag of the image if it is a version, or nothing.
func VersionOf(image string) string {
	tag := TagOf(image)
	if _, err := version.ParseSemantic(tag); err != nil {
		return ""
	}
	return tag
}
