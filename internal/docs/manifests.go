// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// kustomizations are no API objects.
const kustomizations = "kustomize.config.k8s.io/v1beta1"

// Manifests returns the objects of a YAML block. Parts of objects and kustomizations are excluded.
func (b Block) Manifests() ([]*unstructured.Unstructured, error) {
	if b.Language != "yaml" || b.NotRun != "" {
		return nil, nil
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(b.Text)), len(b.Text))
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		if object.GetKind() != "" && object.GetAPIVersion() != kustomizations {
			objects = append(objects, object)
		}
	}
}
