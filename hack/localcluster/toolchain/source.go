// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
)

// KruiseSource returns the directory of OpenKruise's source in the module cache, which
// is read-only.
func (b Builder) KruiseSource(ctx context.Context, version string) (string, error) {
	return b.source(ctx, Kruise(version), "github.com/openkruise/kruise")
}

// AddonSource returns the directory of an addon's source in the module cache, which is read-only.
func (b Builder) AddonSource(ctx context.Context, addon addons.Addon) (string, error) {
	return b.source(ctx, Addon(addon), addon.Module)
}

// source returns the directory of a module in the module cache, at the version of the tool.
func (b Builder) source(ctx context.Context, tool Tool, path string) (string, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", path+"@"+tool.Version())
	command.Dir = b.module(tool)
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find the source of %s: %w", tool.Name, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return "", fmt.Errorf("read where the source of %s is: %w", tool.Name, err)
	}
	return module.Dir, nil
}
