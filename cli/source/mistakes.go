// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// correct returns the object without the mistakes that have one obvious correction, and these mistakes. The metadata of the object
// itself has been decoded.
func correct(raw *unstructured.Unstructured) (*unstructured.Unstructured, []string) {
	c := corrector{}
	raw = raw.DeepCopy()
	switch raw.GetKind() {
	case "Pod":
		c.pod("spec", mapAt(raw.Object, "spec"))
	case "Job":
		c.job("spec", mapAt(raw.Object, "spec"))
	case "CronJob":
		c.quote("spec.jobTemplate.metadata", mapAt(raw.Object, "spec", "jobTemplate", "metadata"))
		c.job("spec.jobTemplate.spec", mapAt(raw.Object, "spec", "jobTemplate", "spec"))
	}
	return raw, c.mistakes
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

// quote puts quotes around the labels, annotations and environment variables in the value that are no strings.
func (c *corrector) quote(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			at, texts := path+"."+name, mapAt(value, name)
			switch {
			case name == "env":
				c.environment(at, listAt(value, name))
			case texts != nil && (name == "labels" || name == "annotations"):
				for _, key := range slices.Sorted(maps.Keys(texts)) {
					c.text(fmt.Sprintf("%s[%s]", at, key), texts, key)
				}
			default:
				c.quote(at, value[name])
			}
		}
	case []any:
		for i, item := range value {
			c.quote(fmt.Sprintf("%s[%d]", path, i), item)
		}
	}
}

func (c *corrector) environment(path string, variables []any) {
	for i, variable := range variables {
		variable, _ := variable.(map[string]any)
		if _, given := variable["value"]; given {
			c.text(fmt.Sprintf("%s[%d].value", path, i), variable, "value")
		}
	}
}

// text makes the value of the key a string, or removes it if it cannot be one. Kubernetes reads null as an empty string.
func (c *corrector) text(path string, object map[string]any, key string) {
	var kind string
	switch object[key].(type) {
	case string:
		return
	case nil:
		object[key] = ""
		return
	case bool:
		kind = "Boolean"
	case int64, float64:
		kind = "number"
	default:
		c.add(path, "must be a string")
		delete(object, key)
		return
	}
	c.add(path, "must be a string, but is the %s %v: put it in quotes", kind, object[key])
	object[key] = fmt.Sprint(object[key])
}

// job corrects the template of a Job. The API server rejects a Job whose pods do not finish.
func (c *corrector) job(path string, spec map[string]any) {
	path += ".template"
	c.quote(path+".metadata", mapAt(spec, "template", "metadata"))
	pod := mapAt(spec, "template", "spec")
	c.pod(path+".spec", pod)
	switch policy := pod["restartPolicy"]; policy {
	case string(corev1.RestartPolicyNever), string(corev1.RestartPolicyOnFailure):
		return
	case nil, "":
		if pod == nil {
			return
		}
		c.add(path+".spec.restartPolicy", "is missing: the default is Always, but a Job needs Never or OnFailure")
	default:
		c.add(path+".spec.restartPolicy", "is %v, but a Job needs Never or OnFailure", policy)
	}
	pod["restartPolicy"] = string(corev1.RestartPolicyNever)
}

// pod corrects the specification of a pod, and container instead of containers there. The API server drops unknown fields, and rejects a
// pod without containers.
func (c *corrector) pod(path string, spec map[string]any) {
	if spec == nil {
		c.add(path, "is missing")
		return
	}
	misspelled, found := spec["container"]
	containers, isList := spec["containers"].([]any)
	switch {
	case found && spec["containers"] == nil:
		c.add(path+".container", "is an unknown field: containers, a list, must have at least one container")
		delete(spec, "container")
		switch misspelled := misspelled.(type) {
		case []any:
			spec["containers"] = misspelled
		case map[string]any:
			spec["containers"] = []any{misspelled}
		}
	case spec["containers"] == nil, isList && len(containers) == 0:
		c.add(path+".containers", "must have at least one container")
	}
	c.quote(path, spec)
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
