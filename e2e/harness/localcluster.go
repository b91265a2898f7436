//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const localClusterTimeout = 5 * time.Minute

// LocalCluster runs a command of the local cluster, such as `component stop kruise-daemon`.
func (t *Test) LocalCluster(arguments ...string) {
	t.Helper()
	t.localCluster(t.Context(), arguments...)
}

// RestoreWith runs a command of the local cluster when the test ends.
func (t *Test) RestoreWith(arguments ...string) {
	t.Helper()
	t.Cleanup(func() { t.localCluster(context.Background(), arguments...) })
}

func (t *Test) localCluster(ctx context.Context, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, localClusterTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(t.Repository, "bin", "localcluster"), arguments...)
	command.Dir = t.Repository
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("localcluster %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
}
