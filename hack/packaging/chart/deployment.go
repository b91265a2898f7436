// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// settings are the defaults of what users may change of the Deployment.
type settings struct {
	replicas       any
	image          imageName
	quickExitImage any
	memoryLimit    any
	resources      any
	affinity       any
}

type imageName struct{ repository, tag string }

// Variables of the operator's container that values of the chart set.
const (
	variableQuickExitImage = "QUICK_EXIT_IMAGE"
	variableMemoryLimit    = "GOMEMLIMIT"
)

// markDeployment puts marks where values of the chart decide, and returns what was there.
func markDeployment(template *template, object unstructured.Unstructured, flags []conditionalFlags) (*settings, error) {
	container, err := onlyContainer(object.Object)
	if err != nil {
		return nil, err
	}
	specification, ok := object.Object["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it has no spec")
	}
	pod, _, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec")
	if err != nil {
		return nil, fmt.Errorf("find the pod's spec: %w", err)
	}
	podSpecification, ok := pod.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the pod has no spec")
	}
	result := &settings{replicas: specification["replicas"], resources: container["resources"], affinity: podSpecification["affinity"]}
	if result.image, err = parseImage(container["image"]); err != nil {
		return nil, err
	}
	if err := markVariables(template, container, result); err != nil {
		return nil, err
	}
	existing, err := arguments(object)
	if err != nil {
		return nil, err
	}
	if err := setArguments(&object, append(existing, template.lines(flagLines(flags)))); err != nil {
		return nil, fmt.Errorf("set the arguments: %w", err)
	}
	specification["replicas"] = template.value("int .Values.replicas")
	container["image"] = template.value(`printf "%s%s" .Values.image.repository ` +
		`(ternary (printf "@%s" .Values.image.digest) (printf ":%s" .Values.image.tag) (ne .Values.image.digest "")) | quote`)
	container["imagePullPolicy"] = template.value(".Values.image.pullPolicy")
	container["resources"] = template.block(".Values.resources")
	for _, field := range []string{"affinity", "imagePullSecrets", "nodeSelector", "tolerations", "topologySpreadConstraints"} {
		podSpecification[field] = template.block(".Values." + field)
	}
	podSpecification["priorityClassName"] = template.lines("{{- with .Values.priorityClassName }}\npriorityClassName: {{ . | quote }}\n{{- end }}")
	return result, markPodMetadata(template, object)
}

// markVariables replaces the values of the variables that the chart sets.
func markVariables(template *template, container map[string]any, result *settings) error {
	list, _ := container["env"].([]any)
	for _, item := range list {
		variable, _ := item.(map[string]any)
		switch variable["name"] {
		case variableQuickExitImage:
			result.quickExitImage, variable["value"] = variable["value"], template.value(".Values.quickExitImage | quote")
		case variableMemoryLimit:
			result.memoryLimit, variable["value"] = variable["value"], template.value(".Values.goMemoryLimit | quote")
		}
	}
	if result.quickExitImage == nil || result.memoryLimit == nil {
		return fmt.Errorf("the container has no variable %s or %s", variableQuickExitImage, variableMemoryLimit)
	}
	return nil
}

func markPodMetadata(template *template, object unstructured.Unstructured) error {
	for field, value := range map[string]string{"annotations": ".Values.podAnnotations", "labels": ".Values.podLabels"} {
		extra := template.lines("{{- with " + value + " }}\n{{- toYaml . | nindent INDENT }}\n{{- end }}")
		// Sorted after the names of Kubernetes and of the project, so that users may replace none of them by accident.
		if err := unstructured.SetNestedField(object.Object, extra, "spec", "template", "metadata", field, "zz-extra"); err != nil {
			return fmt.Errorf("mark the %s of the pod: %w", field, err)
		}
	}
	return nil
}

// flagLines returns the items of args that depend on values.
func flagLines(flags []conditionalFlags) string {
	var lines []string
	for _, conditional := range flags {
		lines = append(lines, "{{- if not ("+conditional.unless+") }}")
		for _, flag := range conditional.flags {
			lines = append(lines, "- "+flag)
		}
		lines = append(lines, "{{- end }}")
	}
	lines = append(lines,
		"{{- range $name, $value := .Values.flags }}",
		`- {{ printf "--%s=%v" $name $value | quote }}`,
		"{{- end }}")
	return strings.Join(lines, "\n")
}

func parseImage(image any) (imageName, error) {
	text, _ := image.(string)
	repository, tag, found := strings.Cut(text, ":")
	if !found || strings.ContainsAny(tag, "@/:") {
		return imageName{}, fmt.Errorf("the image %q is not a repository with a tag", text)
	}
	return imageName{repository, tag}, nil
}
