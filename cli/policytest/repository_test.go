// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestRepository runs the tests of the repository's samples and presets, and requires that they have some.
func TestRepository(t *testing.T) {
	const config = "../../config"
	output, code := run(t, config)
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, output)
	}
	files, err := discover([]string{config})
	if err != nil {
		t.Fatal(err)
	}
	var tested []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var test definition
		if err := yaml.Unmarshal(content, &test); err != nil {
			t.Fatal(err)
		}
		for _, name := range test.Manifests {
			tested = append(tested, filepath.Join(filepath.Dir(file), name))
		}
	}
	found := 0
	for _, directory := range []string{"samples", "presets"} {
		if err := filepath.WalkDir(filepath.Join(config, directory), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" || strings.HasSuffix(path, suffix) {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(content), "\nkind: SidecarTerminationPolicy\n") && !strings.Contains(string(content), "\nkind: ClusterSidecarTerminationPolicy\n") {
				return err
			}
			found++
			if !slices.Contains(tested, path) {
				t.Errorf("no test file names %s", path)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if found < 19 {
		t.Errorf("found only %d policies", found)
	}
}
