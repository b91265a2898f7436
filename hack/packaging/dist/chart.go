// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/internal/settings"
)

// ChartName is the name of the Helm chart.
const ChartName = settings.Name

// chartSources are the directories of config whose files the chart's templates read.
var chartSources = []string{
	"admission", "components/alerts", "components/dashboard", "components/native", "crd/bases", "rbac",
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
