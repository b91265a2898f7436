// SPDX-License-Identifier: Apache-2.0

// Package cli is the command tree of the kubectl plugin. Only finish writes.
package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/cli/check"
	"github.com/sidecar-termination/operator/cli/explain"
	"github.com/sidecar-termination/operator/cli/finish"
	"github.com/sidecar-termination/operator/cli/lint"
	"github.com/sidecar-termination/operator/cli/policytest"
	"github.com/sidecar-termination/operator/cli/source"
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
		Args:              cobra.ArbitraryArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
	}
	program := source.Program{Name: settings.PluginName, Now: now}
	command.AddCommand(
		explain.New(program), lint.New(program), policytest.New(program), check.New(program), finish.New(program),
	)
	return rejectUnknownCommands(command)
}

// rejectUnknownCommands makes the root reject unknown subcommands, and point to the help of a command after a wrong flag.
func rejectUnknownCommands(root *cobra.Command) *cobra.Command {
	root.SuggestionsMinimumDistance = 2
	root.Args = func(_ *cobra.Command, arguments []string) error { return unknownCommand(root, arguments) }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// A flag that the root does not have may belong to a misspelled subcommand.
		if unknown := unknownCommand(root, root.Flags().Args()); cmd == root && unknown != nil {
			return unknown
		}
		return fmt.Errorf("%w\nSee %q", err, cmd.CommandPath()+" --help")
	})
	return root
}

// unknownCommand returns an error for arguments of the root, which takes none itself.
func unknownCommand(root *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return nil
	}
	hint := ""
	if suggestions := root.SuggestionsFor(arguments[0]); len(suggestions) > 0 {
		hint = "; did you mean " + strings.Join(suggestions, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q%s\nSee %q", arguments[0], root.CommandPath(), hint, root.CommandPath()+" --help")
}
