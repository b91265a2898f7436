// SPDX-License-Identifier: Apache-2.0

// Package manifest finds the commands of containers in Kubernetes manifests of any kind, to build a quick-exit image for
// them.
package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Container is a container of a manifest.
type Container struct {
	corev1.Container
	// Source is the container's location, for messages: file, document, object and field.
	Source string
}

// Read returns the regular containers of all pods and pod templates in a stream of YAML or JSON documents. It finds them in
// Pods, workloads of any kind, lists, and kinds that list containers to inject. It skips init containers, because the
// operator does not end them. It fails when there are none, or when a document is invalid; the error names the file, the
// object and the field.
func Read(file string, content io.Reader) ([]Container, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(content, 4096)
	var containers []Container
	for number := 1; ; number++ {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, number, err)
		}
		found, err := search(document)
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, number, err)
		}
		for _, container := range found {
			container.Source = fmt.Sprintf("%s: %s", file, container.Source)
			containers = append(containers, container)
		}
	}
	if len(containers) == 0 {
		return nil, fmt.Errorf("%s: it contains no Pod and no pod template", file)
	}
	return containers, nil
}

// search returns the containers of a document: empty, an object or a list.
func search(document any) ([]Container, error) {
	switch value := document.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return searchObject(value)
	}
	return nil, fmt.Errorf("expected a Kubernetes object, found %s", typeOf(document))
}

func searchObject(object map[string]any) ([]Container, error) {
	kind, _ := object["kind"].(string)
	if apiVersion, _ := object["apiVersion"].(string); kind == "" || apiVersion == "" {
		return nil, errors.New("apiVersion or kind is missing: not a Kubernetes object")
	}
	if items, isList := object["items"].([]any); isList {
		var containers []Container
		for index, item := range items {
			found, err := search(item)
			if err != nil {
				return nil, fmt.Errorf("items[%d]: %w", index, err)
			}
			containers = append(containers, found...)
		}
		return containers, nil
	}
	name := kind
	if metadata, ok := object["metadata"].(map[string]any); ok {
		if text, ok := metadata["name"].(string); ok {
			name += " " + text
		}
	}
	return walker{object: name}.walk("", object)
}

// walker looks for pod specifications in one object.
type walker struct{ object string }

// walk returns the containers of every pod specification in a value. A pod specification is a field spec with a list
// containers, at any depth. walk visits fields in the order of their names.
func (w walker) walk(field string, value any) ([]Container, error) {
	var containers []Container
	switch value := value.(type) {
	case []any:
		for index, item := range value {
			found, err := w.walk(fmt.Sprintf("%s[%d]", field, index), item)
			if err != nil {
				return nil, err
			}
			containers = append(containers, found...)
		}
	case map[string]any:
		names := make([]string, 0, len(value))
		for name := range value {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			found, err := w.walkField(join(field, name), name, value[name])
			if err != nil {
				return nil, err
			}
			containers = append(containers, found...)
		}
	}
	return containers, nil
}

func (w walker) walkField(field, name string, value any) ([]Container, error) {
	if specification, ok := value.(map[string]any); ok && name == "spec" {
		if list, ok := specification["containers"].([]any); ok {
			return w.read(join(field, "containers"), list)
		}
	}
	return w.walk(field, value)
}

func (w walker) read(field string, list []any) ([]Container, error) {
	var containers []Container
	for index, item := range list {
		source := fmt.Sprintf("%s: %s[%d]", w.object, field, index)
		content, err := json.Marshal(item)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		container := Container{Source: source}
		if err := json.Unmarshal(content, &container.Container); err != nil {
			return nil, fmt.Errorf("%s: %w", source, explain(err))
		}
		if container.Name == "" {
			return nil, fmt.Errorf("%s: container has no name", source)
		}
		containers = append(containers, container)
	}
	return containers, nil
}

// explain turns an error about Go types into one about the manifest's fields.
func explain(err error) error {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) || mismatch.Field == "" {
		return err
	}
	return fmt.Errorf("%s cannot be a %s", mismatch.Field, mismatch.Value)
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

func typeOf(value any) string {
	switch value.(type) {
	case []any:
		return "a list"
	case string:
		return "a text"
	}
	return fmt.Sprintf("%v", value)
}
