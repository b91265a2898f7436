// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/hack/packaging/chart"
)

func generate(t *testing.T) *chart.Chart {
	t.Helper()
	generated, err := chart.Generate("../../../config")
	if err != nil {
		t.Fatal(err)
	}
	return generated
}

// What Helm makes of the chart is tested in hack/tools/helm.
func TestChartHasNoMarksLeft(t *testing.T) {
	generated := generate(t)
	for name, content := range generated.Files {
		for _, mark := range []string{"MARK", "INDENT", "zz-extra"} {
			if strings.Contains(string(content), mark) {
				t.Errorf("%s has %s in it", name, mark)
			}
		}
	}
	for _, name := range []string{"Chart.yaml", "values.yaml", "values.schema.json", "templates/NOTES.txt"} {
		if len(generated.Files[name]) == 0 {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestWriteReplacesChartsOnly(t *testing.T) {
	generated := generate(t)
	directory := filepath.Join(t.TempDir(), "chart")
	if err := generated.Write(directory); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(directory, "templates", "stale.yaml")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := generated.Write(directory); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("a file of the old chart is still there")
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "keep"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := generated.Write(other); err == nil {
		t.Error("a directory with other files was replaced")
	}
}
