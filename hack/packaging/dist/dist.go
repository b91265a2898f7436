// SPDX-License-Identifier: Apache-2.0

// Package dist makes what people install from: the images, manifests, chart and plugin of a release, and a kustomization for
// images of one's own.
package dist

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"

	"github.com/sidecar-termination/operator/hack/kustomize"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Names of the files.
const (
	InstallFile = "install.yaml"
	// InstallOldFile is for Kubernetes before 1.36.
	InstallOldFile = "install-before-1.36.yaml"
	CRDFile        = "crds.yaml"
	ComponentFile  = "kustomize-component.tar.gz"
)

// ChartFile returns the name of the chart's archive in a release.
func ChartFile(version string) string {
	return settings.Name + "-" + strings.TrimPrefix(version, "v") + ".tgz"
}

// chartSources are the directories of config whose files the chart's templates read.
var chartSources = []string{
	"admission", "components/alerts", "components/dashboard", "components/include-injected", "crd/bases", "rbac", "rbac-namespaced",
}

// WriteManifests writes into a directory everything that can be installed without a build: the whole operator and its definitions
// as one file each, the kustomize component and the Helm chart. It returns their paths. Equal kustomizations and digests give equal
// files. The digests of Digests pin the images of the release, and without them tags alone name these.
func WriteManifests(config, directory string, digests map[string]string) ([]string, error) {
	files := map[string][]byte{}
	for name, kustomization := range map[string]string{InstallFile: "default", InstallOldFile: "overlays/before-1.36", CRDFile: "crd"} {
		content, err := render(filepath.Join(config, kustomization))
		if err != nil {
			return nil, err
		}
		files[name] = []byte(pin(string(content), digests))
	}
	component := map[string]string{}
	err := addTree(component, filepath.Join(config, "kustomize", "component"), "component")
	if err != nil {
		return nil, err
	}
	if files[ComponentFile], err = archive(ociimage.Rootfs{Texts: component}); err != nil {
		return nil, err
	}
	chart, err := chartFiles(config)
	if err != nil {
		return nil, err
	}
	for name, content := range chart {
		chart[name] = pin(content, digests)
	}
	if files[ChartFile(settings.Release)], err = archive(ociimage.Rootfs{Texts: chart}); err != nil {
		return nil, err
	}
	return write(directory, files)
}

// pin adds their digests to all references to images of the release.
func pin(content string, digests map[string]string) string {
	for image, digest := range digests {
		reference := released + image + ":" + settings.Release
		content = strings.ReplaceAll(content, reference, reference+"@"+digest)
	}
	return content
}

// chartFiles returns the files of the chart: those of config/chart, and below files/ the objects that it shares with the
// kustomizations.
func chartFiles(config string) (map[string]string, error) {
	files := map[string]string{}
	err := addTree(files, filepath.Join(config, "chart"), settings.Name)
	for _, source := range chartSources {
		err = errors.Join(err, addTree(files, filepath.Join(config, source), path.Join(settings.Name, "files", source)))
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return path.Base(name) == "kustomization.yaml" })
	return files, err
}

// render returns what `kustomize build` makes of a directory.
func render(directory string) ([]byte, error) {
	options := krusty.MakeDefaultOptions()
	// Use the order of the kustomization, or the default of `kustomize build`.
	options.Reorder = krusty.ReorderOptionUnspecified
	built, err := kustomize.Build(directory, options)
	if err != nil {
		return nil, err
	}
	content, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("encode the objects of %s: %w", directory, err)
	}
	return content, nil
}

// write writes files into a directory, and returns their paths.
func write(directory string, files map[string][]byte) ([]string, error) {
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(directory, name)
		if err := layout.WriteFile(file, files[name]); err != nil {
			return nil, err
		}
		paths = append(paths, file)
	}
	return paths, nil
}

// archive returns a compressed tar archive. Equal files give equal bytes.
func archive(files ociimage.Rootfs) ([]byte, error) {
	content, err := files.Archive()
	if err != nil {
		return nil, err
	}
	buffer := &bytes.Buffer{}
	compressed := gzip.NewWriter(buffer)
	_, err = compressed.Write(content)
	if err := errors.Join(err, compressed.Close()); err != nil {
		return nil, fmt.Errorf("write an archive: %w", err)
	}
	return buffer.Bytes(), nil
}

// addTree adds the files below a directory to others, below another directory.
func addTree(files map[string]string, directory, below string) error {
	from := os.DirFS(directory)
	err := fs.WalkDir(from, ".", func(name string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		files[path.Join(below, name)] = string(content)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the files of %s: %w", directory, err)
	}
	return nil
}
