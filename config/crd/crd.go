// SPDX-License-Identifier: Apache-2.0

// Package crd holds the definitions of the policies, for those who check policies without a cluster and those who compare
// them with what a cluster has.
package crd

import (
	"embed"
	"fmt"
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Definitions are the CustomResourceDefinitions as they are installed.
//
//go:embed bases/*.yaml
var Definitions embed.FS

// Read returns the definitions, sorted by their names.
func Read() ([]apiextensionsv1.CustomResourceDefinition, error) {
	const directory = "bases"
	files, err := Definitions.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("list the definitions of the policies: %w", err)
	}
	all := make([]apiextensionsv1.CustomResourceDefinition, len(files))
	for i, file := range files {
		content, err := Definitions.ReadFile(path.Join(directory, file.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the definition %s: %w", file.Name(), err)
		}
		if err := yaml.Unmarshal(content, &all[i]); err != nil {
			return nil, fmt.Errorf("understand the definition %s: %w", file.Name(), err)
		}
	}
	return all, nil
}
