// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Place is a copy of the repository in which commands run, and a directory of programs.
type Place struct {
	// Directory is the working directory of commands: the copy's root.
	Directory string
	// Programs is the first directory of PATH. It contains the kubectl plugin.
	Programs string
	// Environment is added to the test's environment.
	Environment []string
}

// notCopied are directories that commands do not need.
var notCopied = []string{".git", ".cluster", "bin", "dist"}

// NewPlace copies the repository and links the kubectl plugin below an empty directory.
func NewPlace(repository, plugin, below string) (*Place, error) {
	place := &Place{Directory: filepath.Join(below, "operator"), Programs: filepath.Join(below, "programs")}
	if err := os.CopyFS(place.Directory, sources{os.DirFS(repository)}); err != nil {
		return nil, fmt.Errorf("copy the repository: %w", err)
	}
	if err := os.Mkdir(place.Programs, 0o700); err != nil {
		return nil, fmt.Errorf("create a directory for programs: %w", err)
	}
	if err := os.Symlink(plugin, filepath.Join(place.Programs, filepath.Base(plugin))); err != nil {
		return nil, fmt.Errorf("install the kubectl plugin: %w", err)
	}
	return place, nil
}

// sources is the repository without notCopied.
type sources struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (s sources) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	return slices.DeleteFunc(entries, func(entry fs.DirEntry) bool { return slices.Contains(notCopied, path.Join(name, entry.Name())) }), err
}

// Write writes a file for the commands.
func (p *Place) Write(name, content string) error {
	if err := os.WriteFile(filepath.Join(p.Directory, name), []byte(content), 0o600); err != nil {
		return fmt.Errorf("write a file of a document: %w", err)
	}
	return nil
}

// Run runs a script and returns its output. It stops at the first failing command unless the script checks exit codes.
func (p *Place) Run(ctx context.Context, script string) (string, error) {
	options := "-euo"
	if strings.Contains(script, "$?") {
		options = "-uo"
	}
	command := exec.CommandContext(ctx, "bash", options, "pipefail", "-c", script)
	command.Dir = p.Directory
	command.Env = append(os.Environ(), append([]string{
		"PATH=" + strings.Join([]string{p.Programs, os.Getenv("PATH")}, string(os.PathListSeparator)),
	}, p.Environment...)...)
	output, err := command.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("run the commands: %w", err)
	}
	return string(output), nil
}
