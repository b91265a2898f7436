// SPDX-License-Identifier: Apache-2.0

//go:build integration

package observe_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/observe"
)

// Kubernetes 1.35 serves other kinds of the same group and version, but not MutatingAdmissionPolicies.
func TestOlderKubernetesLacksComponent(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set, so there is no API server: run it through make test-integration")
	}
	environment := &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: 2 * time.Minute}
	environment.ControlPlane.GetAPIServer().Configure().Append("emulated-version", "1.35")
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	reader, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := observe.NativeComponent(t.Context(), reader)
		if diff := cmp.Diff(native.Component{}, got); diff != "" || err != nil {
			t.Errorf("error %v; component (-want +got):\n%s", err, diff)
		}
	}
}
