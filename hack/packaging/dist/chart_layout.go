// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// ChartLayout is the directory of a release with the chart as an OCI layout, as Helm reads it from a registry. Its tag is the
// version of the chart.
const ChartLayout = "charts/" + ChartName

// Media types of a chart in a registry.
const (
	chartConfigType  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContentType types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// ChartFile returns the name of the chart's archive in a release.
func ChartFile(version string) string { return fmt.Sprintf("%s-%s.tgz", ChartName, version) }

// WriteChartLayout replaces a directory by an OCI layout with the archive of a chart. Equal archives give equal layouts.
func WriteChartLayout(directory string, archive []byte) error {
	description, err := chartDescription(archive)
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	config, err := json.Marshal(description)
	if err != nil {
		return fmt.Errorf("encode the description of the chart: %w", err)
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		Config:        descriptor(chartConfigType, config),
		Layers:        []v1.Descriptor{descriptor(chartContentType, archive)},
		Annotations: map[string]string{
			"org.opencontainers.image.title":       description.Name,
			"org.opencontainers.image.version":     description.Version,
			"org.opencontainers.image.description": description.Description,
			"org.opencontainers.image.source":      description.Home,
		},
	})
	if err != nil {
		return fmt.Errorf("encode the manifest of the chart: %w", err)
	}
	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("remove the old layout: %w", err)
	}
	written, err := layout.Write(directory, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout of the chart: %w", err)
	}
	for _, content := range [][]byte{archive, config, manifest} {
		if err := written.WriteBlob(descriptor("", content).Digest, io.NopCloser(bytes.NewReader(content))); err != nil {
			return fmt.Errorf("write the layout of the chart: %w", err)
		}
	}
	tagged := descriptor(types.OCIManifestSchema1, manifest)
	tagged.Annotations = map[string]string{"org.opencontainers.image.ref.name": description.Version}
	if err := written.AppendDescriptor(tagged); err != nil {
		return fmt.Errorf("write the layout of the chart: %w", err)
	}
	return nil
}

// ChartDigest returns the digest of the chart's manifest in a release, or an empty text if the release has no layout of it.
func ChartDigest(directory string) (string, error) {
	index, err := layout.ImageIndexFromPath(filepath.Join(directory, ChartLayout))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the layout of the chart: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", fmt.Errorf("read the layout of the chart: %w", err)
	}
	if len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("the layout of the chart has %d manifests, not 1", len(manifest.Manifests))
	}
	return manifest.Manifests[0].Digest.Hex, nil
}

func descriptor(mediaType types.MediaType, content []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Size: int64(len(content)), Digest: v1.Hash{Algorithm: "sha256", Hex: Digest(content)}}
}

// chartMetadata is Chart.yaml, in the order of its keys.
type chartMetadata struct {
	Name        string            `json:"name"`
	Home        string            `json:"home,omitempty"`
	Sources     []string          `json:"sources,omitempty"`
	Version     string            `json:"version"`
	Description string            `json:"description,omitempty"`
	Keywords    []string          `json:"keywords,omitempty"`
	Maintainers []map[string]any  `json:"maintainers,omitempty"`
	Icon        string            `json:"icon,omitempty"`
	APIVersion  string            `json:"apiVersion"`
	AppVersion  string            `json:"appVersion,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	KubeVersion string            `json:"kubeVersion,omitempty"`
	Type        string            `json:"type,omitempty"`
}

// chartDescription returns Chart.yaml of the archive of a chart. An unknown field is an error.
func chartDescription(archive []byte) (chartMetadata, error) {
	var description chartMetadata
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return description, err
	}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return description, errors.New("it has no Chart.yaml")
		}
		if err != nil {
			return description, err
		}
		if header.Name != ChartName+"/Chart.yaml" {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return description, err
		}
		return description, yaml.UnmarshalStrict(content, &description)
	}
}
