// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// notObjects are the apiVersions of files that are no API objects: kustomizations, and tests of policies.
var notObjects = []string{"kustomize.config.k8s.io/v1beta1", "cli.sidecartermination.dev/v1alpha1"}

// Manifests returns the objects of a YAML block. Parts of objects and files for programs are excluded.
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
		if object.GetKind() != "" && !slices.Contains(notObjects, object.GetAPIVersion()) {
			objects = append(objects, object)
		}
	}
}
