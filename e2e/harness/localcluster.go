//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
	"github.com/sidecar-termination/operator/hack/localcluster/layout"
	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

const localClusterTimeout = 5 * time.Minute

// versions returns what the local cluster was brought up with. They are empty for other clusters.
func (c *Cluster) versions() (toolchain.Versions, error) {
	versions := toolchain.Versions{}
	local, err := layout.New(c.Repository)
	if err != nil {
		return versions, err
	}
	content, err := os.ReadFile(local.State())
	if errors.Is(err, fs.ErrNotExist) {
		return versions, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &versions)
	}
	if err != nil {
		return versions, fmt.Errorf("read the state of the local cluster: %w", err)
	}
	return versions, nil
}

// RequireAddons skips the test if the local cluster lacks one of the addons. With REQUIRE_E2E=1 the test fails instead.
func RequireAddons(t *testing.T, names ...string) {
	t.Helper()
	cluster, err := Connect()
	if err != nil {
		t.Fatal(err)
	}
	versions, err := cluster.versions()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if slices.ContainsFunc(versions.Addons(), func(addon addons.Addon) bool { return addon.Name == name }) {
			continue
		}
		reason := fmt.Sprintf("The local cluster does not have %s: bring it up by make cluster-up WITH=%s", name, strings.Join(names, ","))
		if os.Getenv("REQUIRE_E2E") == "1" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
}

// LocalCluster runs a localcluster command, such as `component stop kruise-daemon`.
func (t *Test) LocalCluster(arguments ...string) {
	t.Helper()
	t.localCluster(t.Context(), arguments...)
}

// RestoreWith runs a localcluster command when the test ends.
func (t *Test) RestoreWith(arguments ...string) {
	t.Helper()
	t.Cleanup(func() { t.localCluster(context.Background(), arguments...) })
}

// WholeAtEnd makes the test wait at its end until all components and nodes of the local cluster and the operator are healthy.
// Call it first: cleanups run in the reverse order of their registration.
func (t *Test) WholeAtEnd() {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), localClusterTimeout)
		defer cancel()
		if err := poll(ctx, func(ctx context.Context) error {
			if output, err := t.localClusterCommand(ctx, "status").CombinedOutput(); err != nil {
				return fmt.Errorf("%w\n%s", err, output)
			}
			_, err := t.operatorPod(ctx)
			return err
		}); err != nil {
			t.Errorf("The cluster is not healthy: %v", err)
		}
	})
}

func (t *Test) localCluster(ctx context.Context, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, localClusterTimeout)
	defer cancel()
	if output, err := t.localClusterCommand(ctx, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("localcluster %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
}

func (t *Test) localClusterCommand(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(t.Repository, "bin", "localcluster"), arguments...)
	command.Dir = t.Repository
	return command
}
