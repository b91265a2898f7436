// SPDX-License-Identifier: Apache-2.0

// Package testenv has what the tests of all packages share: it runs integration tests against kube-apiserver and etcd, where no
// kubelet or controller changes what a test writes.
package testenv

import (
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout limits the start and stop of the server. The default of 20 seconds is too short on a busy machine.
const startTimeout = 2 * time.Minute

// Run starts an API server with the CRDs of a directory, passes its configuration on, runs the tests and stops the server. It
// returns the exit code for TestMain, which is non-zero if the server does not start.
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
