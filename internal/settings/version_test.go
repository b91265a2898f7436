// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestReleaseIsTheInstalledVersion(t *testing.T) {
	content, err := os.ReadFile("../../config/default/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if tag := "newTag: " + Release + "\n"; !strings.Contains(string(content), tag) {
		t.Errorf("config/default does not install this version, %q", tag)
	}
}

func TestVersionOfBuildInfo(t *testing.T) {
	for built, want := range map[string]string{
		"":        Release,
		"(devel)": Release,
		"v0.3.0":  "v0.3.0",
		"v0.0.0-20260301120000-589d0926f3a1+dirty": "v0.0.0-20260301120000-589d0926f3a1+dirty",
	} {
		if got := versionOf(&debug.BuildInfo{Main: debug.Module{Version: built}}); got != want {
			t.Errorf("%q: got %s, want %s", built, got, want)
		}
	}
}
