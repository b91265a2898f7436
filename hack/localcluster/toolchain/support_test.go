// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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

func TestSupportedKubernetesIsTested(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| Kubernetes \| (.*) \|$`).FindStringSubmatch(read(t, "docs/support.md"))
	if row == nil {
		t.Fatal("docs/support.md has no row of Kubernetes")
	}
	var tested []string
	for _, version := range kubernetesVersions {
		tested = append(tested, minor(version))
	}
	if documented := strings.Split(row[1], ", "); !slices.Equal(documented, tested) {
		t.Errorf("docs/support.md says that tests run on Kubernetes %q, and they run on %q", documented, tested)
	}
}

// Every document says the same about old versions of Kubernetes.
func TestOldestKubernetesIsTheSameEverywhere(t *testing.T) {
	oldest := regexp.MustCompile(`kubeVersion: ">=(\d+\.\d+)\.0-0"`).FindStringSubmatch(read(t, "config/chart/Chart.yaml"))
	if oldest == nil {
		t.Fatal("the chart has no kubeVersion")
	}
	for _, path := range []string{"README.md", "README.zh-CN.md", "docs/operations.md", "docs/packages.md", "docs/support.md"} {
		text := strings.Join(strings.Fields(read(t, path)), " ")
		for _, want := range []string{"Kubernetes " + minor(kubernetesVersions[0]), "Kubernetes " + oldest[1]} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not mention %s", path, want)
			}
		}
	}
}
