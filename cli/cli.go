// SPDX-License-Identifier: Apache-2.0

// Package cli is the command tree of the kubectl plugin. Only finish writes.
package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/cli/check"
	"github.com/sidecar-termination/operator/cli/explain"
	"github.com/sidecar-termination/operator/cli/finish"
	"github.com/sidecar-termination/operator/cli/lint"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/policytest"
	"github.com/sidecar-termination/operator/internal/settings"
)

// New returns the plugin.
func New() *cobra.Command { return newPlugin(time.Now) }

func newPlugin(now func() time.Time) *cobra.Command {
	command := &cobra.Command{
		Use:   settings.PluginProgram,
		Short: "Explains what ends the sidecars of Jobs, and why they still run",
		Long: `Explains what the sidecar-termination-operator does about pods, Jobs, CronJobs and policies, finds workloads whose
sidecars nothing will end, tests policies, and checks the operator's installation. Only finish writes: it ends the
sidecars of stuck pods.`,
		Example: `  # why is this Job still running?
  kubectl sidecar-termination explain job/report -n batch

  # which Jobs may hang, in the whole cluster or before they are applied?
  kubectl sidecar-termination lint -A
  kubectl sidecar-termination lint -k overlays/production

  # do the policies decide what their tests expect?
  kubectl sidecar-termination test policies/*_test.yaml

  # is the operator installed correctly?
  kubectl sidecar-termination check

  # end the sidecars of a stuck pod
  kubectl sidecar-termination finish pod/report-x4mfd -n batch`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: settings.PluginName},
		Version:           settings.Version(),
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
	}

	command.AddCommand(explain.New(now), lint.New(now), policytest.New(now), check.New(now), finish.New(now), newVersion())
	output.SetHelp(command, nil, nil)
	command.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nSee %q", err, cmd.CommandPath()+" --help")
	})
	return command
}
