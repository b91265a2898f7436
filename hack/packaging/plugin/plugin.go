// SPDX-License-Identifier: Apache-2.0

// Package plugin packs the operator's program as a plugin of kubectl, for the machines that
// people type at.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/packaging/archive"
	"github.com/sidecar-termination/operator/hack/packaging/program"
	"github.com/sidecar-termination/operator/internal/settings"
)

// Names in an archive.
const (
	// Program is the name by which kubectl finds the plugin; on Windows it ends with .exe.
	Program = settings.PluginProgram
	// Completion is the name by which kubectl asks for completions.
	Completion = settings.CompletionProgram
	// Operator is the program name that offers the other subcommands.
	Operator = settings.Name
	// License is the file with the licence.
	License = "LICENSE"
)

const windows = "windows"

// windowsCompletion runs the program in the same directory for completions. It replaces a
// link, because most Windows users may not create links.
const windowsCompletion = "@\"%~dp0" + Program + ".exe\" __complete %*\r\n"

// Platforms returns the platforms that there are archives for.
func Platforms() []v1.Platform {
	return []v1.Platform{
		{OS: "darwin", Architecture: "amd64"},
		{OS: "darwin", Architecture: "arm64"},
		{OS: "linux", Architecture: "amd64"},
		{OS: "linux", Architecture: "arm64"},
		{OS: windows, Architecture: "amd64"},
	}
}

// FileName returns the name of the archive for a platform.
func FileName(platform v1.Platform) string {
	name := fmt.Sprintf("%s-%s-%s", Program, platform.OS, platform.Architecture)
	if platform.OS == windows {
		return name + ".zip"
	}
	return name + ".tar.gz"
}

// Archives compiles the program of the repository for the platforms and returns an archive
// of each by its name. The same sources and the same Go give the same bytes.
func Archives(ctx context.Context, repository string, platforms []v1.Platform) (map[string][]byte, error) {
	license, err := os.ReadFile(filepath.Join(repository, License))
	if err != nil {
		return nil, fmt.Errorf("read the licence: %w", err)
	}
	archives := map[string][]byte{}
	for _, platform := range platforms {
		compiled, err := program.Compile(ctx, repository, ".", platform)
		if err != nil {
			return nil, err
		}
		packed, err := pack(platform, compiled, license)
		if err != nil {
			return nil, fmt.Errorf("archive the command line for %s: %w", platform, err)
		}
		archives[FileName(platform)] = packed
	}
	return archives, nil
}

func pack(platform v1.Platform, compiled, license []byte) (packed []byte, err error) {
	directory, err := os.MkdirTemp("", "plugin-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	path := func(name string) string { return filepath.Join(directory, name) }
	if err := os.WriteFile(path(License), license, 0o644); err != nil {
		return nil, err
	}
	if platform.OS == windows {
		err := errors.Join(
			os.WriteFile(path(Program+".exe"), compiled, 0o755),
			os.WriteFile(path(Completion+".cmd"), []byte(windowsCompletion), 0o755),
		)
		if err != nil {
			return nil, err
		}
		return archive.Zip(directory)
	}
	err = errors.Join(
		os.WriteFile(path(Program), compiled, 0o755),
		os.Symlink(Program, path(Completion)),
		os.Symlink(Program, path(Operator)),
	)
	if err != nil {
		return nil, err
	}
	return archive.TarGzip(directory)
}
