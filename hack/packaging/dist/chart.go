// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/internal/settings"
)

// ChartName is the name of the Helm chart.
const ChartName = settings.Name

// chartSources are the directories of config whose files the chart's templates read.
var chartSources = []string{
	"admission", "components/alerts", "components/dashboard", "components/native", "components/network-policy",
	"components/service-monitor", "crd/bases", "rbac",
}

// WriteChart replaces a directory by the chart.
func WriteChart(config, directory string) error {
	_, files, err := chartFiles(config)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("remove the old chart: %w", err)
	}
	for name, content := range files {
		file := filepath.Join(directory, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("create a directory of the chart: %w", err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return fmt.Errorf("write a file of the chart: %w", err)
		}
	}
	return nil
}

// chartFiles returns the version of the chart and its files: those of config/chart, and
// below files/ the objects that the chart shares with the kustomizations.
func chartFiles(config string) (version string, files map[string][]byte, err error) {
	if files, err = readTree(filepath.Join(config, "chart")); err != nil {
		return "", nil, err
	}
	for _, source := range chartSources {
		shared, err := readTree(filepath.Join(config, filepath.FromSlash(source)))
		if err != nil {
			return "", nil, err
		}
		delete(shared, "kustomization.yaml")
		maps.Copy(files, below(path.Join("files", source), shared))
	}
	var description struct{ Version string }
	if err := yaml.Unmarshal(files["Chart.yaml"], &description); err != nil {
		return "", nil, fmt.Errorf("read Chart.yaml: %w", err)
	}
	return description.Version, files, nil
}
