// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/layout"
)

// edits are pairs of an original snippet and its replacement.
type edits [][2]string

// editStandardLibrary replaces a file of the standard library, such as time/time.go, by an edited one below the directory.
func (r Replacements) editStandardLibrary(ctx context.Context, directory, name string, edits edits) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find the Go toolchain: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", name)
	source, err := os.ReadFile(original)
	if err != nil {
		return fmt.Errorf("read the standard library: %w", err)
	}
	changed := string(source)
	for _, edit := range edits {
		if n := strings.Count(changed, edit[0]); n != 1 {
			return fmt.Errorf("%s has %d times, not once: %s", original, n, edit[0])
		}
		changed = strings.Replace(changed, edit[0], edit[1], 1)
	}
	r[original] = filepath.Join(directory, filepath.Base(name))
	return layout.WriteFile(r[original], []byte(changed))
}
