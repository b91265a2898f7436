// SPDX-License-Identifier: Apache-2.0

//go:build integration

package v1alpha1_test

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/testenv"
)

// server is the configuration by which the tests reach the API server.
var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, "../../config/crd/bases", func(config *rest.Config) { server = config }))
}

// newClient returns a client for which a field that the server does not know is an error, as it is for kubectl.
func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	plain, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return client.WithFieldValidation(plain, "Strict")
}

// kinds are both policy kinds. What holds for one spec holds for the other.
var kinds = []string{"SidecarTerminationPolicy", "ClusterSidecarTerminationPolicy"}

// object returns a policy as a user writes it: only what the YAML says is sent.
func object(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	var content map[string]any
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatalf("read the spec: %v\n%s", err, spec)
	}
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	policy.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	policy.SetGenerateName("policy-")
	if kind == "SidecarTerminationPolicy" {
		policy.SetNamespace("default")
	}
	return policy
}
