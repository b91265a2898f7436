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
// Variables, which Kruise has none of, are not carried over.
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
	kustomization := map[string]any{}
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		return nil, err
	}
	resources, _ := kustomization["resources"].([]any)
	bases, _ := kustomization["bases"].([]any)
	patches, _ := kustomization["patches"].([]any)
	files, _ := kustomization["patchesStrategicMerge"].([]any)
	for _, file := range files {
		patches = append(patches, map[string]any{"path": file})
	}
	kustomization["resources"], kustomization["patches"] = append(resources, bases...), patches
	for _, deprecated := range []string{"bases", "patchesStrategicMerge", "vars"} {
		delete(kustomization, deprecated)
	}
	return yaml.Marshal(kustomization)
}
