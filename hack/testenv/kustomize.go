// SPDX-License-Identifier: Apache-2.0

package testenv

import "sigs.k8s.io/kustomize/api/krusty"

// Kustomizer returns a Kustomizer that orders resources as `kustomize build` does. kustomize has a global OpenAPI schema, so
// two builds must not run in parallel.
func Kustomizer() *krusty.Kustomizer {
	options := krusty.MakeDefaultOptions()
	// The default overrides the order of a kustomization with a warning.
	options.Reorder = krusty.ReorderOptionUnspecified
	return krusty.MakeKustomizer(options)
}
