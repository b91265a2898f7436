// SPDX-License-Identifier: Apache-2.0

// Command packaging makes what people install: images, manifests, the Helm chart and the command line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/hack/packaging/images"
	"github.com/sidecar-termination/operator/hack/packaging/manual"
	"github.com/sidecar-termination/operator/hack/packaging/notes"
	"github.com/sidecar-termination/operator/hack/packaging/plugin"
	"github.com/sidecar-termination/operator/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use:           "packaging",
		Short:         "Makes what people install, from the repository in the working directory",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	output := command.PersistentFlags().String("output", "dist", "directory to write to")
	tag, thisMachine := defaultTag, false
	imagesCommand := &cobra.Command{
		Use:   "images",
		Short: "Builds the operator's image and the quick-exit image as OCI layouts",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			platforms := images.Platforms()
			if thisMachine {
				platforms = []v1.Platform{{OS: "linux", Architecture: runtime.GOARCH}}
			}
			built, err := images.Write(cmd.Context(), ".", filepath.Join(*output, "images"), tag, platforms)
			for _, image := range built {
				fmt.Println(image.Digest, image.Directory)
			}
			return err
		},
	}
	imagesCommand.Flags().StringVar(&tag, "tag", tag, "tag of the images in their layouts")
	imagesCommand.Flags().BoolVar(&thisMachine, "this-machine", thisMachine, "build for the processor of this machine alone")
	command.AddCommand(imagesCommand, newDistCommand(output), newAttestCommand(output), newVerifyCommand(output), newNotesCommand(), newReleaseCommand(output), &cobra.Command{
		Use:   "chart",
		Short: "Packages the Helm chart as a directory",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			directory := filepath.Join(*output, "chart", dist.ChartName)
			fmt.Println(directory)
			return dist.WriteChart("config", directory)
		},
	})
	command.AddCommand(newCheckoutCommands(output)...)
	return command
}

func newDistCommand(output *string) *cobra.Command {
	commandLine := true
	command := &cobra.Command{
		Use:   "dist",
		Short: "Writes the manifests, the kustomize component, the chart, the command line with its man pages and their checksums",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := writeDist(cmd.Context(), *output, commandLine)
			for _, name := range names {
				fmt.Println(filepath.Join(*output, name))
			}
			return err
		},
	}
	command.Flags().BoolVar(&commandLine, "command-line", commandLine, "compile the command line for every platform and write its man pages, which takes minutes the first time")
	return command
}

func newNotesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "notes TAG",
		Short: "Prints the notes of a release from the changelog",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			text, err := notesOf(arguments[0])
			fmt.Print(text)
			return err
		},
	}
}

// notesOf returns the notes of a release, which must be the version of the sources.
func notesOf(version string) (string, error) {
	if version != settings.Release {
		return "", fmt.Errorf("the sources have version %s, not %q", settings.Release, version)
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return "", fmt.Errorf("read the changelog: %w", err)
	}
	return notes.Of(string(changelog), version)
}

func writeDist(ctx context.Context, directory string, commandLine bool) ([]string, error) {
	var archives map[string][]byte
	if commandLine {
		var err error
		if archives, err = plugin.Archives(ctx, ".", plugin.Platforms()); err != nil {
			return nil, err
		}
	}
	return writeFiles(directory, archives)
}

// writeFiles writes the files of a release, and the man pages if there are archives of the command line.
func writeFiles(directory string, archives map[string][]byte) ([]string, error) {
	if archives != nil {
		var err error
		if archives[manual.FileName], err = manual.Archive(); err != nil {
			return nil, err
		}
	}
	return dist.Write("config", directory, archives)
}
