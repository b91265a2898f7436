// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

func TestRenderOverlaySetsTheImage(t *testing.T) {
	for name, image := range map[string]string{
		"as the manifests call it":   "sidecar-termination-operator:latest",
		"as the overlay may call it": "localhost/sidecar-termination-operator:dev",
	} {
		t.Run(name, func(t *testing.T) {
			overlay := t.TempDir()
			deployment := `apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: b}
spec: {template: {spec: {containers: [{name: manager, image: "` + image + `"}]}}}
`
			for file, content := range map[string]string{
				"kustomization.yaml": "resources: [deployment.yaml]\n",
				"deployment.yaml":    deployment,
			} {
				if err := layout.WriteFile(filepath.Join(overlay, file), []byte(content)); err != nil {
					t.Fatal(err)
				}
			}
			objects, err := renderOverlay(overlay, "0123456789ab")
			if err != nil {
				t.Fatal(err)
			}
			if len(objects) != 1 {
				t.Fatalf("%d objects were rendered", len(objects))
			}
			containers, _, err := unstructured.NestedSlice(objects[0].Object, "spec", "template", "spec", "containers")
			if err != nil {
				t.Fatal(err)
			}
			got := containers[0].(map[string]any)["image"]
			if want := "localhost/sidecar-termination-operator:0123456789ab"; got != want {
				t.Errorf("image is %v, want %s", got, want)
			}
		})
	}
}
