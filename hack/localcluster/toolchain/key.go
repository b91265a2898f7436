// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
)

// key digests everything that decides what the binaries of a tool are: the tool module with its own source, the packages, the
// change, the linker's flags, the Go version and the platform.
func key(tool Tool, module fs.FS) (string, error) {
	digest := sha256.New()
	names := []string{"go.mod", "go.sum"}
	err := fs.WalkDir(module, ".", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("list the sources of the tool module: %w", err)
	}
	for _, name := range names {
		content, err := fs.ReadFile(module, name)
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
