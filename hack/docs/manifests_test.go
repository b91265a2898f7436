// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// server is the configuration of the API server.
var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, "../../config/crd/bases", func(config *rest.Config) { server = config }))
}

// The API server must accept every manifest, without unknown fields.
func TestServerAcceptsManifests(t *testing.T) {
	plain, err := client.New(server, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	strict := client.NewDryRunClient(client.WithFieldValidation(plain, "Strict"))
	policies := 0
	for _, document := range read(t) {
		for _, block := range document.Blocks {
			objects, err := block.Manifests()
			if err != nil {
				t.Errorf("%s:%d: %v", document.Path, block.Line, err)
			}
			for _, object := range objects {
				at := fmt.Sprintf("%s:%d: %s %s", document.Path, block.Line, object.GetKind(), object.GetName())
				namespaced, err := strict.IsObjectNamespaced(object)
				if err != nil {
					t.Errorf("%s: %v", at, err)
					continue
				}
				if namespaced {
					object.SetNamespace("default")
				}
				if object.GroupVersionKind().Group == v1alpha1.GroupName {
					policies++
				}
				if err := strict.Create(t.Context(), object); err != nil {
					t.Errorf("%s: %v", at, err)
				}
			}
		}
	}
	if policies == 0 {
		t.Error("no policy was found")
	}
}
