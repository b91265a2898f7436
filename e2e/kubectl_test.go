//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"time"

	"github.com/sidecar-termination/operator/e2e/harness"
)

const kubectlTimeout = 5 * time.Minute

// kubectl runs kubectl on the cluster and returns its output.
func kubectl(test *harness.Test, arguments ...string) string {
	test.Helper()
	ctx, cancel := context.WithTimeout(test.Context(), kubectlTimeout)
	defer cancel()
	output, err := test.TryKubectl(ctx, arguments...)
	if err != nil {
		test.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return output
}
