// SPDX-License-Identifier: Apache-2.0

package source

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestMistakesHaveLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pods.yaml")
	text := "kind: Pod\nmetadata: {name: a}\nspec:\n  containers: &shared\n  - name: one\n  - name: two\n    imge: x\n" +
		"---\n# nothing\n---\nkind: Pod\nmetadata: {name: b}\nspec:\n  initContainers: *shared\n" +
		"---\nkind: Pod\nmetadata: {name: twice}\n---\nkind: Pod\nmetadata: {name: twice}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ file, pod, mistake, want string }{
		"field of a list":    {file, "a", "spec.containers[1].imge: is unknown", "spec.containers[1].imge: is unknown (line 7)"},
		"missing field":      {file, "a", "spec.restartPolicy: is missing", "spec.restartPolicy: is missing (line 3)"},
		"later document":     {file, "b", "spec.initContainers: is wrong", "spec.initContainers: is wrong (line 14)"},
		"alias":              {file, "b", "spec.initContainers[1].imge: is unknown", "spec.initContainers[1].imge: is unknown (line 7)"},
		"index beyond":       {file, "a", "spec.containers[9].imge: is unknown", "spec.containers[9].imge: is unknown (line 4)"},
		"no path":            {file, "a", "something else", "something else"},
		"name that is twice": {file, "twice", "kind: is wrong", "kind: is wrong"},
		"no file":            {"standard input", "a", "kind: is wrong", "kind: is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "metadata": map[string]any{"name": tc.pod}}}
			manifest := Manifest{Raw: raw, File: tc.file, Mistakes: []string{tc.mistake}}
			lines{}.annotate(manifest)
			if diff := cmp.Diff([]string{tc.want}, manifest.Mistakes); diff != "" {
				t.Errorf("mistakes differ (-want +got):\n%s", diff)
			}
		})
	}
}
