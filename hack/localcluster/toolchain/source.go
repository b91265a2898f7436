// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// KruiseSource returns the directory of OpenKruise's source in the module cache, which
// is read-only.
func (b Builder) KruiseSource(ctx context.Context) (string, error) {
	tool := Kruise()
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", "github.com/openkruise/kruise@"+tool.Version())
	command.Dir = b.module(tool)
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find the source of OpenKruise: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return "", fmt.Errorf("read where the source of OpenKruise is: %w", err)
	}
	return module.Dir, nil
}
