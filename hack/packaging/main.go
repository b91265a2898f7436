// SPDX-License-Identifier: Apache-2.0

// Command packaging makes what people install, from the repository in the working directory: images, manifests, the Helm chart and the
// kubectl plugin.
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
	command := &cobra.Command{Use: "packaging", SilenceUsage: true, SilenceErrors: true}
	output := command.PersistentFlags().String("output", "dist", "directory to write to")
	layouts := func() string { return filepath.Join(*output, "images") }
	add := func(use, short string, run func(context.Context) ([]string, error)) *cobra.Command {
		added := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			lines, err := run(cmd.Context())
			if err != nil {
				return err
			}
			for _, line := range lines {
				fmt.Println(line)
			}
			return nil
		}}
		command.AddCommand(added)
		return added
	}
	pinned := false
	add("manifests", "Writes the manifests, the kustomize component and the Helm chart", func(context.Context) ([]string, error) {
		var digests map[string]string
		if pinned {
			var err error
			if digests, err = dist.Digests(layouts()); err != nil {
				return nil, err
			}
		}
		return dist.WriteManifests("config", *output, digests)
	}).Flags().BoolVar(&pinned, "pin-images", false, "name the images by tag and digest; they must have been built")
	add("plugin", "Writes an archive of the kubectl plugin for every platform", func(ctx context.Context) ([]string, error) {
		return dist.WritePlugin(ctx, ".", *output, dist.PluginPlatforms())
	})
	thisMachine := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	platforms, onlyThis := dist.ImagePlatforms(), false
	add("images", "Builds the operator's image and the quick-exit image as OCI layouts", func(ctx context.Context) ([]string, error) {
		if onlyThis {
			platforms = []v1.Platform{thisMachine}
		}
		return dist.WriteImages(ctx, ".", layouts(), platforms)
	}).Flags().BoolVar(&onlyThis, "this-machine", false, "build for the processor of this machine alone")

	var references dist.References
	push := add("push", "Pushes the images that were built", func(ctx context.Context) ([]string, error) {
		return dist.Push(ctx, layouts(), references)
	})
	save := add("save", "Writes the images that were built, for this machine's processor, as archives for a cluster without a registry",
		func(context.Context) ([]string, error) {
			return dist.Save(layouts(), filepath.Join(*output, "archives"), references, thisMachine)
		})
	var installation string
	overlay := add("overlay", "Writes a kustomization that makes an installation use the images", func(context.Context) ([]string, error) {
		directory := filepath.Join(*output, "deploy")
		return []string{directory}, dist.WriteOverlay(installation, directory, references)
	})
	overlay.Flags().StringVar(&installation, "installation", "config/default", "directory of the kustomization")
	for _, command := range []*cobra.Command{push, save, overlay} {
		command.Flags().StringVar(&references.Operator, "image", "", "name of the operator's image, with a tag")
		command.Flags().StringVar(&references.QuickExit, "quick-exit-image", "",
			"name of the quick-exit image; the default is quick-exit next to the operator's image, with its tag")
	}
	return command
}
