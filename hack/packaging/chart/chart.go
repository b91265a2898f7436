// SPDX-License-Identifier: Apache-2.0

// Package chart makes a Helm chart out of what the kustomizations render to. Nothing of
// the chart is written by hand: an object that is added to config/default is in the next
// chart, and one that the chart cannot express is an error.
package chart

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Name is the chart's.
const Name = "sidecar-termination-operator"

// namespace is that of the kustomization, which the release's takes the place of.
const namespace = "sidecar-termination-system"

const generated = "# Generated from the project's kustomizations. Do not edit.\n"

// Chart is a chart: its version, and its files by their paths in it.
type Chart struct {
	Version string
	Files   map[string][]byte
}

// Generate makes the chart from the directory of kustomizations. Its version is that of
// the operator's image.
func Generate(config string) (*Chart, error) {
	installed, err := read(config)
	if err != nil {
		return nil, err
	}
	chart := &Chart{Files: map[string][]byte{}}
	var settings *settings
	for _, object := range installed.objects {
		if object.GetKind() == "Namespace" {
			// Helm installs into a namespace that exists, or creates it itself.
			continue
		}
		template := &template{}
		conditions := installed.conditions[key(object)]
		switch object.GetKind() {
		case "CustomResourceDefinition":
			conditions = append(conditions, ".Values.crds.install")
			markKept(template, object)
		case "PodDisruptionBudget":
			conditions = append(conditions, ".Values.podDisruptionBudget.enabled", "gt (int .Values.replicas) 1")
		case "Deployment":
			if settings, err = markDeployment(template, object, installed.flags); err != nil {
				return nil, fmt.Errorf("make a template of %s: %w", key(object), err)
			}
		}
		markLabels(template, object)
		text, err := template.text(object.Object, conditions)
		if err != nil {
			return nil, fmt.Errorf("make a template of %s: %w", key(object), err)
		}
		chart.Files[fileName(object)] = text
	}
	if settings == nil {
		return nil, fmt.Errorf("read %s: it has no Deployment", config)
	}
	return chart, chart.describe(settings)
}

// describe adds the files that are not templates of objects.
func (c *Chart) describe(settings *settings) error {
	c.Version = strings.TrimPrefix(settings.image.tag, "v")
	description, err := yaml.Marshal(map[string]any{
		"apiVersion":  "v2",
		"name":        Name,
		"description": "Ends sidecar containers once the main containers of a Job-type pod are done, so that the Job completes",
		"type":        "application",
		"version":     c.Version,
		"appVersion":  settings.image.tag,
		"kubeVersion": ">=1.30.0-0",
		"home":        "https://github.com/sidecar-termination/operator",
		"sources":     []string{"https://github.com/sidecar-termination/operator"},
		"keywords":    []string{"sidecar", "job", "cronjob", "openkruise"},
	})
	if err != nil {
		return fmt.Errorf("encode the chart's description: %w", err)
	}
	values, err := settings.values()
	if err != nil {
		return err
	}
	c.Files["Chart.yaml"] = append([]byte(generated), description...)
	c.Files["values.yaml"] = values
	c.Files["values.schema.json"] = []byte(valuesSchema)
	c.Files["templates/NOTES.txt"] = []byte(notes)
	return nil
}

func fileName(object unstructured.Unstructured) string {
	return fmt.Sprintf("templates/%s_%s.yaml", strings.ToLower(object.GetKind()), object.GetName())
}

// markLabels adds the labels by which Helm's users find what belongs to a release.
func markLabels(template *template, object unstructured.Unstructured) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["app.kubernetes.io/instance"] = template.value(".Release.Name | quote")
	labels["app.kubernetes.io/managed-by"] = template.value(".Release.Service | quote")
	labels["helm.sh/chart"] = template.value(`printf "%s-%s" .Chart.Name .Chart.Version | quote`)
	object.SetLabels(labels)
}

// markKept lets the definitions, and with them all policies, survive the release.
func markKept(template *template, object unstructured.Unstructured) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["helm.sh/resource-policy"] = template.lines("{{- if .Values.crds.keep }}\nhelm.sh/resource-policy: keep\n{{- end }}")
	object.SetAnnotations(annotations)
}

const notes = `The operator is starting in namespace {{ .Release.Namespace }}:

  kubectl -n {{ .Release.Namespace }} rollout status deployment/sidecar-termination-controller-manager

Sidecars that a policy or a KRUISE_TERMINATE_SIDECAR_* variable names are ended once the other containers of their
pods are done. What policies do, and whether they can:

  kubectl get sidecarterminationpolicies,clustersidecarterminationpolicies -A
{{- if .Values.crds.keep }}

The custom resource definitions stay when the release is uninstalled, and with them the policies.
{{- end }}
`
