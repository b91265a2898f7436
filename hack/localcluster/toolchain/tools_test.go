// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"strings"
	"testing"
)

func TestParseKubernetes(t *testing.T) {
	for text, want := range map[string]string{
		"":        DefaultKubernetes,
		"1.36.3":  "v1.36.3",
		"v1.36.3": "v1.36.3",
		"1.34.4":  "v1.34.4",
		"1.2.3":   "",
		"latest":  "",
	} {
		got, err := ParseKubernetes(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is parsed as %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestKubernetesReportsItsVersion(t *testing.T) {
	flags := Kubernetes("v1.34.4").LinkerFlags
	for _, want := range []string{".gitVersion=v1.34.4", ".gitMajor=1", ".gitMinor=34"} {
		if !strings.Contains(flags, want) {
			t.Errorf("the linker flags %q lack %s", flags, want)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, name := range []string{"kruise-v1.8.3", "virtual-kruise-v1.8.3"} {
		if got := (Tool{Name: name}).Version(); got != "v1.8.3" {
			t.Errorf("version of %s is %q", name, got)
		}
	}
}
