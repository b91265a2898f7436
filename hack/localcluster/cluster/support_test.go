// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/internal/settings"
)

const repository = "../../.."

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// minor returns the minor version of Kubernetes, such as 1.34.
func minor(version string) string {
	version = strings.TrimPrefix(version, "v")
	return version[:strings.LastIndex(version, ".")]
}

func TestSupportedVersionsAreTested(t *testing.T) {
	document, nightly := read(t, "docs/support.md"), read(t, ".github/workflows/nightly.yaml")
	for name, versions := range map[string][]string{"Kubernetes": kubernetesVersions, "OpenKruise": kruiseVersions} {
		var tested []string
		for _, version := range versions {
			tested = append(tested, minor(version))
		}
		if row := fmt.Sprintf("| %s | %s |", name, strings.Join(tested, ", ")); !strings.Contains(document, row) {
			t.Errorf("docs/support.md does not name the tested versions: %s", row)
		}
		if matrix := fmt.Sprintf(`minor: ["%s"]`, strings.Join(tested, `", "`)); name == "Kubernetes" && !strings.Contains(nightly, matrix) {
			t.Errorf("the nightly tests do not run on the tested versions: %s", matrix)
		}
	}
}

// Every document says the same about old versions of Kubernetes.
func TestOldestKubernetesIsTheSameEverywhere(t *testing.T) {
	if want := fmt.Sprintf("1.%d", settings.OldestMinor); minor(kubernetesVersions[0]) != want {
		t.Errorf("the oldest tested version is %s, want %s", kubernetesVersions[0], want)
	}
	if chart, want := read(t, "config/chart/Chart.yaml"), fmt.Sprintf("kubeVersion: \">=1.%d.0-0\"", settings.OldestMinor); !strings.Contains(chart, want) {
		t.Errorf("the chart does not have %s", want)
	}
	for _, path := range []string{"README.md", "docs/operations.md", "docs/support.md"} {
		text := strings.Join(strings.Fields(read(t, path)), " ")
		if want := "Kubernetes " + minor(kubernetesVersions[0]); !strings.Contains(text, want) {
			t.Errorf("%s does not mention %s", path, want)
		}
	}
}
