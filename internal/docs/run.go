// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Place is a copy of the repository in which commands are run, and a directory of programs that they find first.
type Place struct {
	// Directory is where commands start: the copy's root.
	Directory string
	// Programs is the first directory of the PATH. It holds the operator's program under both of its names.
	Programs string
	// Environment is added to that of the test.
	Environment []string
}

// notCopied are directories that the commands of no document need.
var notCopied = []string{".git", ".cluster", "bin", "dist"}

// NewPlace copies the repository below an empty directory, and finds the operator's program a place on the PATH.
func NewPlace(repository, program, below string) (*Place, error) {
	place := &Place{Directory: filepath.Join(below, "operator"), Programs: filepath.Join(below, "programs")}
	if err := copyTree(repository, place.Directory); err != nil {
		return nil, fmt.Errorf("copy the repository: %w", err)
	}
	if err := os.Mkdir(place.Programs, 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for programs: %w", err)
	}
	for _, name := range []string{"sidecar-termination-operator", "kubectl-sidecar_termination"} {
		if err := os.Symlink(program, filepath.Join(place.Programs, name)); err != nil {
			return nil, fmt.Errorf("install the operator's program: %w", err)
		}
	}
	return place, nil
}

func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(notCopied, relative):
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, relative), 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), content, 0o600)
	})
}

// Write writes a file that the commands read.
func (p *Place) Write(name, content string) error {
	if err := os.WriteFile(filepath.Join(p.Directory, name), []byte(content), 0o600); err != nil {
		return fmt.Errorf("write a file of a document: %w", err)
	}
	return nil
}

// Run runs a script and returns what its commands have written. It stops at the first one that fails, unless the script
// asks for exit codes.
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
