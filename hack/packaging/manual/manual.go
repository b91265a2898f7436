// SPDX-License-Identifier: Apache-2.0

// Package manual packs the man pages of the command line.
package manual

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sidecar-termination/operator/hack/packaging/archive"
)

// FileName is the name of the archive.
const FileName = "kubectl-sidecar_termination-man.tar.gz"

// Archive returns the man pages of the program of the repository as an archive, in the
// directory that man looks for them in. The same sources give the same bytes.
func Archive(ctx context.Context, repository string) (packed []byte, err error) {
	directory, err := os.MkdirTemp("", "manual-")
	if err != nil {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	command := exec.CommandContext(ctx, "go", "run", "-tags", "manpages", ".", directory)
	command.Dir = repository
	output := &bytes.Buffer{}
	command.Stdout, command.Stderr = output, output
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("write the man pages: %w\n%s", err, output)
	}
	pages, err := filepath.Glob(filepath.Join(directory, "*.1"))
	if err != nil || len(pages) == 0 {
		return nil, errors.Join(errors.New("no man pages were written"), err)
	}
	files := map[string]archive.File{}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			return nil, fmt.Errorf("read a man page: %w", err)
		}
		files["man1/"+filepath.Base(page)] = archive.File{Content: content}
	}
	return archive.TarGzip(files)
}
