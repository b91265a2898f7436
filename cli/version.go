// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/settings"
)

// versionResult is the outcome of version. Its JSON form is part of the versioned output.
type versionResult struct {
	output.Header
	// Client is the version of the plugin.
	Client string `json:"client"`
	// Operator is nil if no operator was found. Note then says why.
	Operator *operatorVersion `json:"operator,omitempty"`
	Note     string           `json:"note,omitempty"`
}

type operatorVersion struct {
	Namespace string `json:"namespace"`
	// Image is that of the Deployment. Version is its tag if that is a version.
	Image   string `json:"image"`
	Version string `json:"version,omitempty"`
}

func newVersion() *cobra.Command {
	connection, format := source.NewConnection(), output.FormatTable
	command := &cobra.Command{
		Use:   "version",
		Short: "Shows the versions of this program and of the operator",
		Long: `Shows the version of this program, and of the operator in the cluster if it can be read within a few seconds.

The exit code is 0, also without a cluster.`,
		Example: fmt.Sprintf("  %s version -o json", settings.PluginName),
		Args:    cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := versionResult{Header: output.NewHeader("VersionReport"), Client: settings.Version()}
			r.read(cmd, connection)
			return format.Write(cmd.OutOrStdout(), r, r.text)
		},
	}
	format.Bind(command)
	connection.BindTo(command)
	output.SetHelp(command, nil, source.NewConnection().Bind)
	return command
}

func (r *versionResult) read(cmd *cobra.Command, connection *source.Connection) {
	connection.LimitTime()
	cluster, err := connection.Connect()
	if err != nil {
		r.Note = err.Error()
		return
	}
	found, err := connection.FindOperator(cmd.Context(), cluster)
	switch {
	case err != nil:
		r.Note = err.Error()
	case found.Deployment == nil:
		r.Note = "no operator found in " + found.Where
	default:
		image := source.OperatorImage(found.Deployment)
		r.Operator = &operatorVersion{found.Deployment.Namespace, image, source.VersionOf(image)}
	}
}

func (r *versionResult) text(p *output.Printer) {
	p.Line("Client:   %s", r.Client)
	switch {
	case r.Operator == nil:
		p.Prose("Operator: ", "unknown: "+r.Note)
	case r.Operator.Version == "":
		p.Line("Operator: image %s in namespace %s", r.Operator.Image, r.Operator.Namespace)
	default:
		p.Line("Operator: %s in namespace %s", r.Operator.Version, r.Operator.Namespace)
	}
}
