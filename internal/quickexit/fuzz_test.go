// SPDX-License-Identifier: Apache-2.0

package quickexit_test

import (
	"path"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/internal/quickexit"
)

// FuzzCandidates expands a command with arbitrary variables. The result is an error or clean absolute paths. An image that has
// the first path covers the container unless a volume hides it.
func FuzzCandidates(f *testing.F) {
	f.Add("$(BIN)/envoy", "BIN", "/opt/bin", "PATH", "/bin", "/data", "/app")
	f.Add("server", "A", "$(A)", "PATH", "$(A):/bin::relative:/usr/bin", "", "")
	f.Add("$$(A)$(", "A", "$$", "B", "$(A)$(A)", "/", ".")
	f.Add("./../x", "", "", "", "", "..", "/a/../b")
	f.Fuzz(func(t *testing.T, command, name, value, otherName, otherValue, mount, directory string) {
		container := &corev1.Container{
			Command: []string{command}, WorkingDir: directory,
			Env: []corev1.EnvVar{{Name: name, Value: value}, {Name: otherName, Value: otherValue}},
		}
		candidates, err := quickexit.Candidates(container, container.Command)
		if (err == nil) != (len(candidates) > 0) {
			t.Fatalf("candidates %q, error %v", candidates, err)
		}
		for _, candidate := range candidates {
			if !path.IsAbs(candidate) || path.Clean(candidate) != candidate {
				t.Errorf("candidate %q", candidate)
			}
		}
		if mount != "" {
			container.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: mount}}
		}
		if err != nil {
			if quickexit.PathsCoverContainer(candidates, container) == nil {
				t.Errorf("an unknown command is covered: %v", err)
			}
			return
		}
		hidden := quickexit.HiddenBy(container, candidates[0]) != ""
		if covered := quickexit.PathsCoverContainer(candidates[:1], container) == nil; covered == hidden {
			t.Errorf("covered %t, hidden %t: %q of %+v", covered, hidden, candidates, container)
		}
	})
}
