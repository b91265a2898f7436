// SPDX-License-Identifier: Apache-2.0

// Package cli is the command tree of the program: the operator, its subcommands, and the kubectl plugin.
package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/internal/cli/check"
	"github.com/sidecar-termination/operator/internal/cli/diff"
	"github.com/sidecar-termination/operator/internal/cli/exit"
	"github.com/sidecar-termination/operator/internal/cli/explain"
	"github.com/sidecar-termination/operator/internal/cli/finish"
	"github.com/sidecar-termination/operator/internal/cli/lint"
	"github.com/sidecar-termination/operator/internal/cli/output"
	"github.com/sidecar-termination/operator/internal/cli/policytest"
	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/settings"
)

// RunOperator runs the operator until the context ends.
type RunOperator func(context.Context, settings.Operator) error

// New returns the command that the first argument, the name of the program, selects: the operator or the kubectl plugin.
func New(arguments []string, run RunOperator) *cobra.Command {
	switch strings.TrimSuffix(filepath.Base(arguments[0]), ".exe") {
	case settings.PluginProgram:
		return newPlugin(time.Now)
	case settings.CompletionProgram:
		plugin := newPlugin(time.Now)
		plugin.SetArgs(append([]string{cobra.ShellCompRequestCmd}, arguments[1:]...))
		return plugin
	}
	return newOperator(run)
}

func newOperator(run RunOperator) *cobra.Command {
	command := &cobra.Command{
		Use:   settings.Name,
		Short: "Ends sidecar containers once the main containers of a Job-type pod are done",
		Long: `Runs the operator: it watches pods with restartPolicy Never or OnFailure. Sidecars are the containers that a
SidecarTerminationPolicy or OpenKruise's environment variables declare. Once every other regular container is done, the
operator ends the sidecars, so that the pod and its Job complete.`,
		Example: `  # on your machine, for the cluster of KUBECONFIG, if no other replica runs there
  sidecar-termination-operator --leader-elect=false --quick-exit-image=registry.example/quick-exit:v1

  # check the installation in the cluster
  sidecar-termination-operator check`,
		Version:           settings.Version(),
		ValidArgsFunction: cobra.NoFileCompletions,
		SilenceUsage:      true,
		SilenceErrors:     true,
	}
	flags := settings.Bind(command.Flags())
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		operator, err := flags.Operator()
		if err != nil {
			return err
		}
		return run(cmd.Context(), operator)
	}
	command.AddCommand(subcommands(settings.Name, time.Now)...)
	return rejectUnknownCommands(command)
}

func newPlugin(now func() time.Time) *cobra.Command {
	command := &cobra.Command{
		Use:   settings.PluginProgram,
		Short: "Explains what ends the sidecars of Jobs, and why they still run",
		Long: `Explains what the sidecar-termination-operator does about pods, Jobs, CronJobs and policies, finds workloads whose
sidecars nothing will end, tests and compares policies, and checks the operator's installation. Only finish writes: it ends the
sidecars of stuck pods.`,
		Example: `  # why is this Job still running?
  kubectl sidecar-termination explain job/report -n batch

  # which Jobs may hang, in the whole cluster or before they are applied?
  kubectl sidecar-termination lint -A
  kubectl sidecar-termination lint -k overlays/production

  # do the policies decide what their tests expect?
  kubectl sidecar-termination test policies/

  # about which pods does the operator decide differently after a change of policies?
  kubectl sidecar-termination diff -f policies.yaml

  # is the operator installed correctly?
  kubectl sidecar-termination check

  # end the sidecars of a stuck pod
  kubectl sidecar-termination finish pod/report-x4mfd -n batch`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: settings.PluginName},
		Version:           settings.Version(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              cobra.ArbitraryArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
	}
	command.AddCommand(subcommands(settings.PluginName, now)...)
	return rejectUnknownCommands(exit.Wrap(command))
}

// subcommands returns the subcommands of both programs, for the program that users call by the name. Only finish writes.
func subcommands(name string, now func() time.Time) []*cobra.Command {
	program := source.Program{Name: name, Now: now, Progress: output.NewProgress(os.Stderr, now)}
	return []*cobra.Command{
		explain.New(program), lint.New(program), policytest.New(program), diff.New(program), check.New(program), finish.New(program),
	}
}
