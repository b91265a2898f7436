// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/internal/settings"
)

// ChartName is the name of the Helm chart.
const ChartName = settings.Name

// chartSources are the directories of config whose files the chart's templates read.
var chartSources = []string{
	"admission", "components/alerts", "components/dashboard", "crd/bases", "rbac", "rbac-namespaced",
}

// WriteChart replaces a directory by the chart: the files of config/chart, and below files/ the objects that the chart shares
// with the kustomizations.
func WriteChart(config, directory string) error {
	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("remove the old chart: %w", err)
	}
	if err := os.CopyFS(directory, os.DirFS(filepath.Join(config, "chart"))); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	for _, source := range chartSources {
		shared := filepath.Join(directory, "files", source)
		if err := os.CopyFS(shared, os.DirFS(filepath.Join(config, source))); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
		if err := os.RemoveAll(filepath.Join(shared, "kustomization.yaml")); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
	}
	return nil
}

// Version returns the version of the release, which is also the tag of its sources.
func Version(config string) (string, error) {
	version, err := chartVersion(config)
	return "v" + version, err
}

// releasedImage matches an image of a release, and its tag.
var releasedImage = regexp.MustCompile(`\bghcr\.io/sidecar-termination/[a-z-]+:([\w.-]+)`)

// CheckVersion returns an error unless the chart and the images in the manifests and in the chart have the version, such as v0.1.0.
func CheckVersion(config, version string) error {
	chart, err := Version(config)
	if err != nil {
		return err
	}
	if chart != version {
		return fmt.Errorf("the chart has version %s, not %s", chart, version)
	}
	manifests, err := render(filepath.Join(config, "default"))
	if err != nil {
		return err
	}
	values, err := os.ReadFile(filepath.Join(config, "chart", "values.yaml"))
	if err != nil {
		return fmt.Errorf("read the values of the chart: %w", err)
	}
	for source, content := range map[string][]byte{"config/default": manifests, "config/chart/values.yaml": values} {
		images := releasedImage.FindAllSubmatch(content, -1)
		if len(images) == 0 {
			return fmt.Errorf("%s has no image of a release", source)
		}
		for _, image := range images {
			if string(image[1]) != version {
				return fmt.Errorf("%s has the image %s, not %s", source, image[0], version)
			}
		}
	}
	return nil
}

// chartVersion returns the version in Chart.yaml.
func chartVersion(config string) (string, error) {
	content, err := os.ReadFile(filepath.Join(config, "chart", "Chart.yaml"))
	if err != nil {
		return "", fmt.Errorf("read Chart.yaml: %w", err)
	}
	var description struct{ Version string }
	if err := yaml.Unmarshal(content, &description); err != nil {
		return "", fmt.Errorf("read Chart.yaml: %w", err)
	}
	return description.Version, nil
}
