// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Mistakes are the mistakes in a manifest, as PATH: MESSAGE.
type Mistakes struct {
	Manifest
	Texts []string
}

// Correct returns the manifests without the mistakes that have one obvious correction, so that the rest of them can be checked,
// and all mistakes. Objects that cannot be decoded are in the mistakes only.
func (m Manifests) Correct() (Manifests, []Mistakes) {
	given := slices.Clone(m.Objects)
	for _, unreadable := range m.Unreadable {
		given = append(given, unreadable.Manifest)
	}
	slices.SortFunc(given, func(a, b Manifest) int { return cmp.Compare(a.Position, b.Position) })
	var all []Mistakes
	m.Objects, m.Unreadable = nil, nil
	for _, manifest := range given {
		corrected, texts := m.correct(manifest)
		if len(texts) > 0 {
			all = append(all, Mistakes{manifest, texts})
		}
		if corrected.Object != nil {
			m.Objects = append(m.Objects, corrected)
		}
	}
	return m, all
}

// correct corrects one manifest. The result has no Object if it cannot be decoded.
func (m Manifests) correct(manifest Manifest) (Manifest, []string) {
	c := corrector{}
	raw := manifest.Raw.DeepCopy()
	// The metadata of the object itself has been decoded.
	switch raw.GetKind() {
	case "Pod":
		c.podSpec("spec", mapAt(raw.Object, "spec"))
	case "Job":
		c.jobSpec("spec", mapAt(raw.Object, "spec"))
	case "CronJob":
		c.metadata("spec.jobTemplate.metadata", mapAt(raw.Object, "spec", "jobTemplate", "metadata"))
		c.jobSpec("spec.jobTemplate.spec", mapAt(raw.Object, "spec", "jobTemplate", "spec"))
	}
	if manifest.Object != nil && len(c.mistakes) == 0 {
		return manifest, nil
	}
	object, err := toTyped(m.types, raw)
	if err != nil {
		manifest.Object = nil
		return manifest, append(c.mistakes, decodeMistake(m.types, raw, err))
	}
	if object.GetNamespace() == "" && isNamespaced(object) {
		object.SetNamespace(m.namespace)
	}
	manifest.Object = object
	return manifest, c.mistakes
}

// decodeMistake names the field that cannot be decoded, if the decoder does.
func decodeMistake(types *runtime.Scheme, raw *unstructured.Unstructured, err error) string {
	data, encodeErr := raw.MarshalJSON()
	typed, newErr := types.New(raw.GroupVersionKind())
	var wrongType *json.UnmarshalTypeError
	if encodeErr == nil && newErr == nil && errors.As(json.Unmarshal(data, typed), &wrongType) && wrongType.Field != "" {
		return fmt.Sprintf("%s: a %s is not allowed here", wrongType.Field, wrongType.Value)
	}
	return err.Error()
}

// corrector corrects manifests in place, and collects the mistakes.
type corrector struct {
	mistakes []string
}

func (c *corrector) add(path, format string, arguments ...any) {
	c.mistakes = append(c.mistakes, path+": "+fmt.Sprintf(format, arguments...))
}

// metadata puts quotes around labels and annotations that are no strings.
func (c *corrector) metadata(path string, metadata map[string]any) {
	for _, field := range []string{"labels", "annotations"} {
		values := mapAt(metadata, field)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if text, ok := c.text(fmt.Sprintf("%s.%s[%s]", path, field, key), values[key]); ok {
				values[key] = text
			} else {
				delete(values, key)
			}
		}
	}
}

// text returns the value as a string, and false if it cannot be one. Kubernetes reads null as an empty string.
func (c *corrector) text(path string, value any) (string, bool) {
	var kind string
	switch value := value.(type) {
	case string:
		return value, true
	case nil:
		return "", true
	case bool:
		kind = "Boolean"
	case int64, float64:
		kind = "number"
	default:
		c.add(path, "must be a string")
		return "", false
	}
	c.add(path, "must be a string, but is the %s %v: put it in quotes", kind, value)
	return fmt.Sprint(value), true
}

// jobSpec corrects the template of a Job. The API server rejects a Job whose pods do not finish.
func (c *corrector) jobSpec(path string, spec map[string]any) {
	path += ".template"
	template := mapAt(spec, "template")
	c.template(path, template)
	if template = mapAt(template, "spec"); template == nil {
		return
	}
	switch policy := template["restartPolicy"]; policy {
	case string(corev1.RestartPolicyNever), string(corev1.RestartPolicyOnFailure):
	case nil, "":
		c.add(path+".spec.restartPolicy", "is missing: the default is Always, but a Job needs Never or OnFailure")
		template["restartPolicy"] = string(corev1.RestartPolicyNever)
	default:
		c.add(path+".spec.restartPolicy", "is %v, but a Job needs Never or OnFailure", policy)
		template["restartPolicy"] = string(corev1.RestartPolicyNever)
	}
}

func (c *corrector) template(path string, template map[string]any) {
	c.metadata(path+".metadata", mapAt(template, "metadata"))
	c.podSpec(path+".spec", mapAt(template, "spec"))
}

func (c *corrector) podSpec(path string, spec map[string]any) {
	if spec == nil {
		c.add(path, "is missing")
		return
	}
	c.containersField(path, spec)
	c.containers(path+".containers", listAt(spec, "containers"))
	c.containers(path+".initContainers", listAt(spec, "initContainers"))
}

func (c *corrector) containers(path string, containers []any) {
	for i, container := range containers {
		container, _ := container.(map[string]any)
		c.environment(fmt.Sprintf("%s[%d]", path, i), container)
	}
}

// environment puts quotes around variables of the container that are no strings.
func (c *corrector) environment(path string, container map[string]any) {
	for i, variable := range listAt(container, "env") {
		variable, _ := variable.(map[string]any)
		value, given := variable["value"]
		if !given {
			continue
		}
		if text, ok := c.text(fmt.Sprintf("%s.env[%d].value", path, i), value); ok {
			variable["value"] = text
		} else {
			delete(variable, "value")
		}
	}
}

// containersField corrects container instead of containers. The API server drops unknown fields, and rejects a pod without
// containers.
func (c *corrector) containersField(path string, spec map[string]any) {
	misspelled, found := spec["container"]
	if containers := spec["containers"]; found && containers == nil {
		c.add(path+".container", "is an unknown field: containers, a list, must have at least one container")
		delete(spec, "container")
		switch misspelled := misspelled.(type) {
		case []any:
			spec["containers"] = misspelled
		case map[string]any:
			spec["containers"] = []any{misspelled}
		}
		return
	}
	if containers, isList := spec["containers"].([]any); spec["containers"] == nil || isList && len(containers) == 0 {
		c.add(path+".containers", "must have at least one container")
	}
}

// mapAt returns the object in the field, or nil.
func mapAt(object map[string]any, fields ...string) map[string]any {
	for _, field := range fields {
		object, _ = object[field].(map[string]any)
	}
	return object
}

// listAt returns the list in the field, or nil.
func listAt(object map[string]any, field string) []any {
	list, _ := object[field].([]any)
	return list
}

// textAt returns the string in the field, or nothing.
func textAt(object map[string]any, field string) string {
	text, _ := object[field].(string)
	return text
}
