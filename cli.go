// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sidecar-termination/operator/internal/cli/check"
	"github.com/sidecar-termination/operator/internal/cli/exit"
	explaincommand "github.com/sidecar-termination/operator/internal/cli/explain"
	"github.com/sidecar-termination/operator/internal/cli/lint"
	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

const (
	// pluginProgram is the name by which kubectl finds the program as its plugin, and pluginName what users type.
	pluginProgram = "kubectl-sidecar_termination"
	pluginName    = "kubectl sidecar-termination"
	// completionProgram is the name by which kubectl asks for completions of the plugin's arguments.
	completionProgram = "kubectl_complete-sidecar_termination"
)

// commandFor returns the command that the program is called as: the operator, or a plugin of kubectl.
func commandFor(program string) *cobra.Command {
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
	case pluginProgram:
		return newPlugin(time.Now)
	case completionProgram:
		plugin := newPlugin(time.Now)
		plugin.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
		return plugin
	}
	return newCommand()
}

// newPlugin returns the plugin of kubectl: the subcommands that look at things, and nothing that acts.
func newPlugin(now func() time.Time) *cobra.Command {
	command := &cobra.Command{
		Use:   "kubectl-sidecar_termination",
		Short: "Explains what ends the sidecars of Jobs, and why they still run",
		Long: `Explains what the sidecar-termination-operator makes of pods, Jobs, CronJobs and policies, finds workloads whose
sidecars nobody will end, and checks the operator's installation. It reads and never writes.`,
		Example: `  # why is this Job still running?
  kubectl sidecar-termination explain job/report -n batch

  # which Jobs may hang, in the whole cluster or before they are applied?
  kubectl sidecar-termination lint -A
  kubectl sidecar-termination lint -k overlays/production

  # is the operator installed as it should be?
  kubectl sidecar-termination check`,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: pluginName},
		Version:           version(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              cobra.ArbitraryArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:      true,
		SilenceErrors:     true,
	}
	command.AddCommand(lookingCommands(pluginName, now)...)
	return refuseUnknownCommands(exit.Wrap(command))
}

// lookingCommands returns the subcommands that read and never write. Their examples call the program by the name.
func lookingCommands(name string, now func() time.Time) []*cobra.Command {
	operator := source.Operator{
		Bind:  func(flags *pflag.FlagSet) { defaultOptions().bindDecisions(flags) },
		Parse: parseDecisions,
		Now:   now,
	}
	return []*cobra.Command{explaincommand.New(name, operator), lint.New(name, operator), check.New(name, operator)}
}

// parseDecisions reads, of the operator's arguments, those that bear on decisions.
func parseDecisions(arguments []string) (explain.OperatorSettings, error) {
	o := defaultOptions()
	flags := pflag.NewFlagSet("operator", pflag.ContinueOnError)
	o.bind(flags)
	// An operator of another version may have other flags.
	flags.ParseErrorsAllowlist.UnknownFlags = true
	if err := flags.Parse(arguments); err != nil {
		return explain.OperatorSettings{}, err
	}
	decisions, err := o.controllerOptions()
	if err != nil {
		return explain.OperatorSettings{}, err
	}
	return explain.OperatorSettings{
		Resolve:   decisions.Resolve,
		NodeMarks: decisions.NodeMarks,
		Capabilities: plan.Capabilities{
			PodPhase: decisions.PodPhase, MaxGracePeriod: decisions.MaxGracePeriod, CRRDisabled: decisions.CRRDisabled, ImageDisabled: decisions.ImageDisabled,
			Images: decisions.Images,
		},
		SettlePeriod:    decisions.SettlePeriod,
		PrePullDisabled: decisions.PrePullDisabled,
		Metrics:         o.metricsSettings(),
		Lease:           o.leaseSettings(),
	}, nil
}
