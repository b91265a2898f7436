// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/packaging/attest"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/hack/packaging/images"
	"github.com/sidecar-termination/operator/hack/packaging/verify"
)

const (
	defaultGenerator = "bin/cyclonedx-gomod"
	defaultTag       = "latest"
)

func newAttestCommand(output *string) *cobra.Command {
	parameters := attest.Parameters{Repository: attest.Repository}
	generator := defaultGenerator
	command := &cobra.Command{
		Use:   "attest",
		Short: "Adds SBOMs and provenance to files and images that were built, and writes the checksums again",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if parameters.Version, err = dist.Version("config"); err != nil {
				return err
			}
			if parameters.Commit, parameters.Date, err = sources(cmd.Context()); err != nil {
				return err
			}
			names, err := attest.Write(cmd.Context(), attest.Generator(generator), *output, parameters)
			for _, name := range names {
				fmt.Println(filepath.Join(*output, name))
			}
			return err
		},
	}
	command.Flags().StringVar(&parameters.Builder, "builder", attest.LocalBuilder, "address of who builds the release")
	command.Flags().StringVar(&generator, "generator", generator, "path of cyclonedx-gomod")
	return command
}

func newVerifyCommand(output *string) *cobra.Command {
	rebuild, generator := true, defaultGenerator
	options := verify.Options{}
	command := &cobra.Command{
		Use:   "verify",
		Short: "Checks a release: checksums, signatures, images, provenance, SBOMs, and whether its sources give the same bytes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Directory = *output
			if rebuild {
				options.Rebuild = func(ctx context.Context, directory string, parameters attest.Parameters) error {
					return rebuildRelease(ctx, attest.Generator(generator), directory, parameters)
				}
			}
			return verify.Release(cmd.Context(), options, os.Stdout)
		},
	}
	command.Flags().StringVar(&options.Key, "key", "", "file with the public key of the signatures")
	command.Flags().BoolVar(&rebuild, "rebuild", rebuild, "build everything again and compare it, which takes minutes the first time")
	command.Flags().StringVar(&generator, "generator", generator, "path of cyclonedx-gomod")
	return command
}

// rebuildRelease builds a release from the working directory, which has to be a checkout of its commit.
func rebuildRelease(ctx context.Context, generator attest.Generator, directory string, parameters attest.Parameters) error {
	commit, _, err := sources(ctx)
	if err != nil {
		return err
	}
	if commit != parameters.Commit {
		return fmt.Errorf("the release is of commit %s and this checkout of %s: check out the former, or verify with REBUILD=0", parameters.Commit, commit)
	}
	version, err := run(ctx, "go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	if version != parameters.Go {
		return fmt.Errorf("the release was built with %s and this machine has %s: install the former, or verify with REBUILD=0", parameters.Go, version)
	}
	if _, err := writeDist(ctx, directory, true); err != nil {
		return err
	}
	if _, err := images.Write(ctx, ".", filepath.Join(directory, attest.ImagesDirectory), defaultTag, images.Platforms()); err != nil {
		return err
	}
	_, err = attest.Write(ctx, generator, directory, parameters)
	return err
}

// sources returns the commit of the working directory, which must not have changes, and the date for documents: the date
// of the commit, or SOURCE_DATE_EPOCH.
func sources(ctx context.Context) (commit string, date time.Time, err error) {
	changes, err := run(ctx, "git", "status", "--porcelain")
	if err != nil {
		return "", date, err
	}
	if changes != "" {
		return "", date, fmt.Errorf("the working directory is not its commit: commit or stash these changes:\n%s", changes)
	}
	if commit, err = run(ctx, "git", "rev-parse", "HEAD"); err != nil {
		return "", date, err
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		if seconds, err = run(ctx, "git", "log", "-1", "--format=%ct"); err != nil {
			return "", date, err
		}
	}
	number, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return "", date, fmt.Errorf("parse SOURCE_DATE_EPOCH: %w", err)
	}
	return commit, time.Unix(number, 0).UTC(), nil
}

func run(ctx context.Context, name string, arguments ...string) (string, error) {
	output, err := exec.CommandContext(ctx, name, arguments...).Output()
	if err != nil {
		detail := ""
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			detail = ": " + string(failed.Stderr)
		}
		return "", fmt.Errorf("run %s %s: %w%s", name, strings.Join(arguments, " "), err, detail)
	}
	return strings.TrimSpace(string(output)), nil
}
