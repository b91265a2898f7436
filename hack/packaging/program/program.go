// SPDX-License-Identifier: Apache-2.0

// Package program compiles programs of the operator's module, for releases and for the local cluster.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Compile builds the package at path, in the module at directory module, for a platform. The
// program is static and reproducible: the same sources and Go version give the same bytes on
// every machine.
func Compile(ctx context.Context, module, path string, platform v1.Platform) (program []byte, err error) {
	directory, err := os.MkdirTemp("", "operator-")
	if err != nil {
		return nil, fmt.Errorf("create a build directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	file := filepath.Join(directory, "program")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", file, path)
	command.Dir = module
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if output, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile for %s: %w\n%s", platform, err, output)
	}
	program, err = os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	return program, nil
}
