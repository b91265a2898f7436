// SPDX-License-Identifier: Apache-2.0

// Package testenv runs integration tests against a real API server: kube-apiserver and etcd, and nothing else, so that
// no kubelet and no controller changes what a test has written.
package testenv

import (
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout is how long a server may take to start and to stop. The default of 20 seconds is too short where the machine
// has other work.
const startTimeout = 2 * time.Minute

// Run starts an API server that serves the custom resource definitions of a directory, hands over the way to reach it,
// runs the tests and stops the server. It returns the exit code for TestMain, which is not zero when there is no server.
func Run(m *testing.M, crds string, use func(*rest.Config)) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS is not set, so there is no API server: run it through make test-integration")
		return 1
	}
	environment := &envtest.Environment{
		CRDDirectoryPaths:        []string{crds},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: startTimeout,
	}
	config, err := environment.Start()
	if err != nil {
		fmt.Fprintf(os.Stderr, "start the API server: %v\n", err)
		return 1
	}
	use(config)
	code := m.Run()
	if err := environment.Stop(); err != nil {
		fmt.Fprintf(os.Stderr, "stop the API server: %v\n", err)
		return 1
	}
	return code
}
