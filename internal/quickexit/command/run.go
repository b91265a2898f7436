// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/internal/ociimage"
	"github.com/sidecar-termination/operator/internal/quickexit/image"
	"github.com/sidecar-termination/operator/internal/terminal"
)

// run builds and writes the image. It prints warnings to standard error and the result to standard output.
func run(cmd *cobra.Command, options *options) error {
	request, err := options.request()
	if err != nil {
		return err
	}
	paths, warnings, err := options.allPaths(cmd.InOrStdin())
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "warning:", terminal.Escape(warning)); err != nil {
			return fmt.Errorf("write a warning: %w", err)
		}
	}
	index, err := image.Index(paths, request.platforms)
	if err != nil {
		return fmt.Errorf("build the image: %w", err)
	}
	if err := request.write(index, options.force); err != nil {
		return adviseForce("--output", err)
	}
	if request.push != nil {
		settings := ociimage.PushOptions{PlainHTTP: options.insecure, Replace: options.force}
		if err := ociimage.Push(cmd.Context(), request.push, index, settings); err != nil {
			return adviseForce("--push", err)
		}
	}
	result, err := newResult(request, index, paths)
	if err != nil {
		return err
	}
	return result.print(cmd.OutOrStdout(), options.format)
}

// write writes the output of --output.
func (r *request) write(index v1.ImageIndex, replace bool) error {
	if r.layout != "" {
		return ociimage.WriteLayout(r.layout, r.tag.String(), index, replace)
	}
	if r.archive == "" {
		return nil
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("read the image index: %w", err)
	}
	only, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return fmt.Errorf("read the image: %w", err)
	}
	return ociimage.WriteArchive(r.archive, r.tag, only, replace)
}

// adviseForce adds the flag to the error, and advises --force when the output exists.
func adviseForce(flag string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: interrupted: %w", flag, err)
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w (--force replaces it)", flag, err)
	}
	return fmt.Errorf("%s: %w", flag, err)
}
