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
	"github.com/sidecar-termination/operator/hack/testenv"
)

// server is the client configuration for the API server of the tests.
var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, "../../config/crd/bases", func(config *rest.Config) { server = config }))
}

// newClient returns a client that rejects unknown fields, as kubectl does.
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

// kinds are both policy kinds. The same rules apply to both specs.
var kinds = []string{"SidecarTerminationPolicy", "ClusterSidecarTerminationPolicy"}

// object returns a policy with only the fields of the YAML, as a user sends it.
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
