// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestVersionOfImage(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for image, want := range map[string]string{
		"registry.example/operator:v0.2.0":          "v0.2.0",
		"registry.example/operator:0.2.0":           "0.2.0",
		"registry.example:5000/operator:v1.0.0-rc1": "v1.0.0-rc1",
		"registry.example/operator:v0.2.0" + digest: "v0.2.0",
		"registry.example/operator" + digest:        "",
		"registry.example:5000/operator":            "",
		"localhost/operator:dev":                    "",
		"not an image":                              "",
	} {
		if got := versionOf(image); got != want {
			t.Errorf("%s: got %q, want %q", image, got, want)
		}
	}
}

func TestOperatorVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		tag, own string
		want     []checkResult
	}{
		"same version":              {"v0.1.0", "v0.1.0", []checkResult{{Outcome: outcomeOK, Name: "OperatorVersion", Message: "the operator and this program have version v0.1.0"}}},
		"same version without v":    {"0.1.0", "v0.1.0", []checkResult{{Outcome: outcomeOK, Name: "OperatorVersion", Message: "the operator and this program have version 0.1.0"}}},
		"other version":             {"v0.2.0", "v0.1.0", []checkResult{{Outcome: outcomeWarning, Name: "OperatorVersion", Message: "the operator has version v0.2.0, but this program has version v0.1.0", Hint: versionHint}}},
		"image without a version":   {"dev", "v0.1.0", nil},
		"program without a version": {"v0.2.0", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := &appsv1.Deployment{}
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.example/operator:" + tc.tag}}
			c := &checker{programVersion: tc.own}
			c.operatorVersion(deployment)
			if difference := cmp.Diff(tc.want, c.checks); difference != "" {
				t.Errorf("lines (-want +got):\n%s", difference)
			}
		})
	}
}
