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

// parallelTests is how many tests may be under way. It must exceed the number of tests that wait for all others to be
// done. What limits the load is the harness, which counts the namespaces in use.
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
	removeOthers, err := harness.AddOthers()
	if err != nil {
		fmt.Fprintf(os.Stderr, "Put something of others into the cluster: %v\n", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := removeOthers(); err != nil {
		fmt.Fprintf(os.Stderr, "Remove what is of others from the cluster: %v\n", err)
		code = 1
	}
	os.Exit(code)
}
