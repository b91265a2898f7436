// SPDX-License-Identifier: Apache-2.0

// Package program compiles programs of the operator's module, for releases and for the local cluster.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Compile builds the program at a path of the module in the directory for a platform, static and
// without anything of this machine in it: the same sources and the same Go give the same
// bytes wherever they are.
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
	output := &bytes.Buffer{}
	command.Stdout, command.Stderr = output, output
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("compile for %s: %w\n%s", platform, err, output)
	}
	program, err = os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	return program, nil
}
