// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"fmt"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// render returns what `kustomize build` makes of a directory. kustomize keeps schemas in
// global variables, so two calls must not run in parallel.
func render(directory string) ([]byte, error) {
	openapi.ResetOpenAPI()
	options := krusty.MakeDefaultOptions()
	// Use the order of the kustomization, or the default of `kustomize build`.
	options.Reorder = krusty.ReorderOptionUnspecified
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", directory, err)
	}
	content, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("encode the objects of %s: %w", directory, err)
	}
	return content, nil
}
