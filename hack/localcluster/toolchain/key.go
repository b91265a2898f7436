// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// key digests everything that decides what the binaries of a tool are: the tool module with its own source, the packages, the
// change, the linker's flags, the Go version and the platform.
func key(tool Tool, module string) (string, error) {
	digest := sha256.New()
	names := []string{"go.mod", "go.sum"}
	err := filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(module, path)
		names = append(names, name)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("list the sources of the tool module: %w", err)
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("read the tool module: %w", err)
		}
		_, _ = fmt.Fprintf(digest, "%s %d\n%s", name, len(content), content)
	}
	for _, name := range tool.Binaries() {
		_, _ = fmt.Fprintf(digest, "%s %s\n", name, tool.Packages[name])
	}
	_, _ = fmt.Fprintf(digest, "%s%s\n%s %s %s\n", tool.Change, tool.linkerFlags(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return hex.EncodeToString(digest.Sum(nil)), nil
}
