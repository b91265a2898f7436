//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/sidecar-termination/operator/e2e/harness"
)

// parallelTests must exceed the number of tests that wait for all others. The harness limits the load by the number of
// namespaces.
const parallelTests = 200

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", fmt.Sprint(parallelTests)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := harness.Ready(); err != nil {
		fmt.Fprintf(os.Stderr, "The cluster is not ready for the tests: %v\n", err)
		os.Exit(1)
	}
	// A build beside the tests would take the time that kubelets need.
	if _, err := buildPlugin(); err != nil {
		fmt.Fprintf(os.Stderr, "Build the plugin: %v\n", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
