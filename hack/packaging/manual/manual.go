// SPDX-License-Identifier: Apache-2.0

// Package manual packs the man pages of the command line.
package manual

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/sidecar-termination/operator/hack/packaging/archive"
	"github.com/sidecar-termination/operator/internal/cli"
	"github.com/sidecar-termination/operator/internal/settings"
)

// cacheDir is the flag of kubectl whose default contains the home directory of the user.
const cacheDir = "cache-dir"

// FileName is the name of the archive.
const FileName = "kubectl-sidecar_termination-man.tar.gz"

// Archive returns the man pages of the kubectl plugin as an archive, in the directory where man looks for them. The same
// sources give the same bytes.
func Archive() (packed []byte, err error) {
	directory, err := os.MkdirTemp("", "manual-")
	if err != nil {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	pages := filepath.Join(directory, "man1")
	if err := os.Mkdir(pages, 0o755); err != nil {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	if err := write(pages); err != nil {
		return nil, fmt.Errorf("write the man pages: %w", err)
	}
	return archive.TarGzip(directory)
}

func write(directory string) error {
	plugin := cli.New([]string{settings.PluginProgram}, nil)
	plugin.DisableAutoGenTag = true
	for _, command := range plugin.Commands() {
		if flag := command.Flags().Lookup(cacheDir); flag != nil {
			flag.DefValue = "$HOME/.kube/cache"
		}
	}
	epoch := time.Unix(0, 0).UTC()
	return doc.GenManTree(plugin, &doc.GenManHeader{
		Section: "1", Date: &epoch, Source: settings.Name, Manual: "User Commands",
	}, directory)
}
