// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// renderKruise returns Kruise's objects without its workloads, which run as processes.
func (c *Cluster) renderKruise(ctx context.Context) ([]*unstructured.Unstructured, error) {
	source, err := c.builder.KruiseSource(ctx)
	if err != nil {
		return nil, err
	}
	files, err := copyKustomizations(filepath.Join(source, "config"), "/config")
	if err != nil {
		return nil, fmt.Errorf("read the manifests of kruise: %w", err)
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/config/default")
	if err != nil {
		return nil, fmt.Errorf("render the manifests of kruise: %w", err)
	}
	objects, err := objectsOf(rendered)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Deployment" || object.GetKind() == "DaemonSet"
	}), nil
}

// copyKustomizations copies a directory into memory. In the copy the kustomizations do
// without deprecated fields, about which kustomize would warn people who cannot change them.
func copyKustomizations(from, to string) (filesys.FileSystem, error) {
	files := filesys.MakeFsInMemory()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if entry.Name() == "kustomization.yaml" {
			if content, err = modernize(content); err != nil {
				return fmt.Errorf("rewrite %s: %w", path, err)
			}
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return files.WriteFile(filepath.Join(to, relative), content)
	})
	return files, err
}

func modernize(content []byte) ([]byte, error) {
	var kustomization types.Kustomization
	if err := kustomization.Unmarshal(content); err != nil {
		return nil, err
	}
	kustomization.FixKustomization()
	for _, patch := range kustomization.PatchesStrategicMerge {
		kustomization.Patches = append(kustomization.Patches, types.Patch{Path: string(patch)})
	}
	kustomization.PatchesStrategicMerge = nil
	return yaml.Marshal(kustomization)
}
