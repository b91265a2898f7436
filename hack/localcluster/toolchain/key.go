// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// key digests everything that decides what the binaries of a tool are: the tool
// module, the packages, the linker's flags, the Go version and the platform.
func key(tool Tool, module string) (string, error) {
	digest := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("read the tool module: %w", err)
		}
		_, _ = fmt.Fprintf(digest, "%s %d\n%s", name, len(content), content)
	}
	for _, name := range tool.Binaries() {
		_, _ = fmt.Fprintf(digest, "%s %s\n", name, tool.Packages[name])
	}
	_, _ = fmt.Fprintf(digest, "%s\n%s %s %s\n", tool.LinkerFlags, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return hex.EncodeToString(digest.Sum(nil)), nil
}
