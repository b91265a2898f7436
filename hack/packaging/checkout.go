// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/attest"
	"github.com/sidecar-termination/operator/hack/packaging/checkout"
)

// newCheckoutCommands returns the commands that install the checkout with images of one's own.
func newCheckoutCommands(output *string) []*cobra.Command {
	references := checkout.References{}
	options := ociimage.PushOptions{Replace: true}
	layouts := func() string { return filepath.Join(*output, attest.ImagesDirectory) }

	push := &cobra.Command{
		Use:   "push",
		Short: "Pushes the images that were built",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printLines(checkout.Push(cmd.Context(), layouts(), references, options))
		},
	}
	push.Flags().BoolVar(&options.PlainHTTP, "insecure", false, "push without TLS to any host; loopback addresses need no flag")
	save := &cobra.Command{
		Use:   "save",
		Short: "Writes the images that were built, for this machine's processor, as archives for a cluster without a registry",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
			return printLines(checkout.Save(layouts(), filepath.Join(*output, "archives"), references, platform))
		},
	}
	overlay := &cobra.Command{
		Use:   "overlay",
		Short: "Writes a kustomization that makes config/default use the images",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			directory := filepath.Join(*output, "deploy")
			fmt.Println(directory)
			return checkout.WriteOverlay("config", directory, references)
		},
	}
	commands := []*cobra.Command{push, save, overlay}
	for _, command := range commands {
		command.Flags().StringVar(&references.Operator, "image", "", "name of the operator's image, with a tag")
		command.Flags().StringVar(&references.QuickExit, "quick-exit-image", "",
			"name of the quick-exit image; the default is quick-exit next to the operator's image, with its tag")
	}
	return commands
}

func printLines(lines []string, err error) error {
	for _, line := range lines {
		fmt.Println(line)
	}
	return err
}
