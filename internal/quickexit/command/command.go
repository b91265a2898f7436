// SPDX-License-Identifier: Apache-2.0

// Package command implements the subcommand quick-exit-image, which builds a quick-exit image.
package command

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// New returns the subcommand quick-exit-image.
func New() *cobra.Command {
	options := &options{}
	command := &cobra.Command{
		Use:   "quick-exit-image (--output oci:DIRECTORY | --output tar:FILE | --push REFERENCE) [flags]",
		Short: "Builds a quick-exit image, with which mode Image ends sidecars",
		Long: `Builds an image whose only program exits with 0 at once, whatever its arguments are. Mode Image ends a sidecar by
restarting it with this image; the restarted container keeps its command, so the image needs the program at that
command's path. The image has the paths of well-known sidecars and shells, those given by --path, and those of the
commands in the manifests given by --from-file.

The same paths and platforms always give the same digest.`,
		Example: `  # for the sidecars of a workload, to a registry, with the credentials of docker login
  kubectl get cronjob report -o yaml | sidecar-termination-operator quick-exit-image --from-file - --push registry.example/quick-exit:v1

  # for one more command, to a directory
  sidecar-termination-operator quick-exit-image --path /opt/proxy/bin/proxy --output oci:quick-exit

  # for docker load
  sidecar-termination-operator quick-exit-image --platform linux/arm64 --output tar:quick-exit.tar --tag quick-exit:v1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd, options)
		},
	}
	options.bind(command.Flags())
	return command
}

// options are the subcommand's flags.
type options struct {
	paths          []string
	files          []string
	containers     []string
	noDefaultPaths bool
	platforms      []string
	output         string
	push           string
	tag            string
	force          bool
	insecure       bool
	format         string
}

func (o *options) bind(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.paths, "path", nil, "absolute path of a command; may be repeated")
	flags.StringArrayVarP(&o.files, "from-file", "f", nil,
		"YAML or JSON file with pods or objects of any kind that have pod templates, whose commands are added; - is the standard input; may be repeated")
	flags.StringArrayVar(&o.containers, "container", nil, "name of a container in those files; all others are left out; may be repeated")
	flags.BoolVar(&o.noDefaultPaths, "no-default-paths", false, "leave the paths of well-known sidecars and shells out")
	flags.StringArrayVar(&o.platforms, "platform", nil, "linux/amd64 or linux/arm64; may be repeated; both by default")
	flags.StringVar(&o.output, "output", "",
		"oci:DIRECTORY for an OCI layout, or tar:FILE for a tarball with the image of one platform that docker load takes")
	flags.StringVar(&o.push, "push", "", "reference in a registry to push to, with the credentials that container engines keep for the user")
	flags.StringVar(&o.tag, "tag", "localhost/quick-exit:latest", "name of the image in what --output writes")
	flags.BoolVar(&o.force, "force", false, "replace an existing output, or move an existing tag")
	flags.BoolVar(&o.insecure, "insecure", false, "permit plain HTTP with a registry that is not on this machine")
	flags.StringVarP(&o.format, "format", "o", formatText, fmt.Sprintf("format of the result: %s or %s", formatText, formatJSON))
}
