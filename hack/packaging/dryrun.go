// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/localcluster/progress"
	"github.com/sidecar-termination/operator/hack/packaging/attest"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/hack/packaging/images"
	"github.com/sidecar-termination/operator/hack/packaging/plugin"
	"github.com/sidecar-termination/operator/hack/packaging/verify"
)

// newReleaseCommand returns the command that builds everything that the release workflow publishes.
func newReleaseCommand(output *string) *cobra.Command {
	r := &dryRun{
		progress:   progress.Stderr(),
		parameters: attest.Parameters{Repository: attest.Repository},
		archives:   map[string][]byte{},
	}
	generator := defaultGenerator
	command := &cobra.Command{
		Use:   "release VERSION",
		Short: "Builds and checks everything that a release publishes, and publishes nothing",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			r.generator, r.parameters.Version = attest.Generator(generator), arguments[0]
			// notesOf accepts one version only, so that no other directory is replaced.
			r.directory = filepath.Join(*output, arguments[0])
			return r.run(cmd.Context())
		},
	}
	command.Flags().StringVar(&r.parameters.Builder, "builder", attest.LocalBuilder, "address of who builds the release")
	command.Flags().StringVar(&generator, "generator", generator, "path of cyclonedx-gomod")
	return command
}

// dryRun builds a release in its own directory.
type dryRun struct {
	progress   *progress.Reporter
	parameters attest.Parameters
	generator  attest.Generator
	directory  string
	notes      string
	archives   map[string][]byte
}

type step struct {
	name string
	run  func(context.Context) error
}

func (r *dryRun) run(ctx context.Context) error {
	begin := time.Now()
	steps := r.steps()
	for i, step := range steps {
		name := fmt.Sprintf("[%d/%d] %s", i+1, len(steps), step.name)
		if err := r.progress.Step(name, func() error { return step.run(ctx) }); err != nil {
			return err
		}
	}
	r.progress.Say("%s of commit %s: built and checked in %.0f s", r.parameters.Version, r.parameters.Commit, time.Since(begin).Seconds())
	return writeSizes(os.Stdout, r.directory)
}

// steps are in the order in which they fail fast.
func (r *dryRun) steps() []step {
	steps := []step{{"compare the version with the sources", r.prepare}}
	for _, platform := range plugin.Platforms() {
		steps = append(steps, step{"build the command line for " + platform.String(), func(ctx context.Context) error { return r.commandLine(ctx, platform) }})
	}
	return append(steps,
		step{"write the manifests, the chart, the component and the man pages", func(context.Context) error {
			_, err := writeFiles(r.directory, r.archives)
			return err
		}},
		step{"build the images", func(ctx context.Context) error {
			_, err := images.Write(ctx, ".", filepath.Join(r.directory, attest.ImagesDirectory), defaultTag, images.Platforms())
			return err
		}},
		step{"write SBOMs, provenance and checksums", func(ctx context.Context) error {
			_, err := attest.Write(ctx, r.generator, r.directory, r.parameters)
			return err
		}},
		step{"write the release notes", func(context.Context) error {
			return os.WriteFile(filepath.Join(r.directory, verify.NotesFile), []byte(r.notes), 0o644)
		}},
		step{"check what was built", func(ctx context.Context) error {
			return verify.Release(ctx, verify.Options{Directory: r.directory}, os.Stdout)
		}},
	)
}

// prepare removes what an earlier run has built.
func (r *dryRun) prepare(ctx context.Context) error {
	var err error
	if r.notes, err = notesOf(r.parameters.Version); err != nil {
		return err
	}
	if err := dist.CheckVersion("config", r.parameters.Version); err != nil {
		return err
	}
	if r.parameters.Commit, r.parameters.Date, err = sources(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(r.directory); err != nil {
		return fmt.Errorf("remove the earlier files: %w", err)
	}
	return nil
}

func (r *dryRun) commandLine(ctx context.Context, platform v1.Platform) error {
	built, err := plugin.Archives(ctx, ".", []v1.Platform{platform})
	maps.Copy(r.archives, built)
	return err
}

// writeSizes writes the size of each file and each layout.
func writeSizes(output io.Writer, directory string) error {
	sizes, total := map[string]int64{}, int64(0)
	var names []string
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		// A layout is two directories below the release.
		if parts := strings.SplitN(filepath.ToSlash(name), "/", 3); len(parts) > 1 {
			name = parts[0] + "/" + parts[1]
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if _, known := sizes[name]; !known {
			names = append(names, name)
		}
		sizes[name] += info.Size()
		total += info.Size()
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the sizes: %w", err)
	}
	table := tabwriter.NewWriter(output, 0, 0, 2, ' ', tabwriter.AlignRight)
	const kib = 1024
	for _, name := range names {
		_, _ = fmt.Fprintf(table, "%.1f KiB\t  %s\n", float64(sizes[name])/kib, name)
	}
	_, _ = fmt.Fprintf(table, "%.1f KiB\t  %s\n", float64(total)/kib, directory)
	return table.Flush()
}
