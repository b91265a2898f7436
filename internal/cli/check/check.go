// SPDX-License-Identifier: Apache-2.0

// Package check is the subcommand that looks over the operator's installation and what it needs, one line each.
package check

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/internal/cli/exit"
	"github.com/sidecar-termination/operator/internal/cli/output"
	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
)

// New returns the subcommand. Its examples call the program by the name.
func New(name string, operator source.Operator) *cobra.Command {
	operator.Program = name
	o := &options{operator: operator, connection: source.NewConnection()}
	command := &cobra.Command{
		Use:   "check [--pre]",
		Short: "Checks the operator's installation, its rights and OpenKruise",
		Long: `Checks, line by line, the version of Kubernetes, the operator's definitions, Deployment, version, flags, metrics, lease,
admission policies and rights, the images that policies may name, its policies, networks that cut off a pod whose phase is
written, and OpenKruise: its definition, its webhook, its daemon on each node, and whether its own SidecarTerminator acts on
the same pods. Each line is ok, a warning or a failure, and says what to do. With --pre it checks, before anything is installed, what an installation needs.

It asks the API server and creates nothing but access reviews. What the user may not read is a warning.

The exit code is 0 unless something has failed, 1 if so, or with --fail-on=warning if there is a warning, and 2 where it
was not possible to look.`,
		Example: fmt.Sprintf(`  # before installing
  %[1]s check --pre

  # after installing, upgrading, or when Jobs hang
  %[1]s check`, name),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.format.Bind(command)
	o.failOn.Bind(command)
	command.Flags().BoolVar(&o.pre, "pre", false, "check what an installation needs, before there is one")
	o.connection.Bind(command.Flags())
	output.GroupFlags(command, nil, source.NewConnection().Bind)
	return exit.Wrap(command)
}

type options struct {
	operator   source.Operator
	connection *source.Connection
	format     output.Format
	failOn     output.FailOn
	pre        bool
}

func (o *options) run(cmd *cobra.Command) error {
	if err := errors.Join(o.format.Check(), o.failOn.Check()); err != nil {
		return err
	}
	cluster, err := o.connection.Connect()
	if err != nil {
		return err
	}
	discovery, err := o.connection.ToDiscoveryClient()
	if err != nil {
		return fmt.Errorf("find a cluster: %w", err)
	}
	version, err := discovery.ServerVersion()
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	c := &checker{
		Live: cluster, client: cluster.Client, namespace: o.connection.OperatorNamespace, version: version,
		program: o.operator.Program, own: cmd.Root().Version, parse: o.operator.Parse, now: o.operator.Now,
	}
	r, err := c.check(cmd.Context(), o.pre)
	if err != nil {
		return err
	}
	if err := o.format.Write(cmd.OutOrStdout(), r, r.text); err != nil {
		return err
	}
	return o.failOn.Judge(r.worst())
}

// level is how a check has turned out.
type level string

const (
	levelOK      level = "ok"
	levelWarning level = "warning"
	levelFailure level = "failure"
)

// line is the outcome of one check.
type line struct {
	Section string `json:"section"`
	Level   level  `json:"level"`
	Message string `json:"message"`
	// Hint says what to do about it.
	Hint string `json:"hint,omitempty"`
}

// result is everything that was found. Its JSON form is what programs read.
type result struct {
	Lines []line `json:"checks"`
}

func (r *result) count(of level) int {
	count := 0
	for _, l := range r.Lines {
		if l.Level == of {
			count++
		}
	}
	return count
}

func (r *result) worst() explain.Severity {
	switch {
	case r.count(levelFailure) > 0:
		return explain.SeverityProblem
	case r.count(levelWarning) > 0:
		return explain.SeverityWarning
	}
	return ""
}

var styles = map[level]output.Style{levelOK: output.Green, levelWarning: output.Yellow, levelFailure: output.Red}

func (r *result) text(p *output.Printer) {
	section := ""
	for _, l := range r.Lines {
		if l.Section != section {
			if section != "" {
				p.Line("")
			}
			section = l.Section
			p.StyledLine(output.Bold, section)
		}
		word := fmt.Sprintf("%-7s", l.Level)
		p.Prose([]output.Cell{{Text: "  "}, {Text: word, Style: styles[l.Level]}, {Text: "  "}}, l.Message)
		p.Hint(len(word)+4, l.Hint)
	}
	p.Line("")
	switch failures, warnings := r.count(levelFailure), r.count(levelWarning); {
	case failures > 0:
		p.StyledLine(output.Red, fmt.Sprintf("%d failed, %d to look at, %d ok", failures, warnings, r.count(levelOK)))
	case warnings > 0:
		p.StyledLine(output.Yellow, fmt.Sprintf("%d to look at, %d ok", warnings, r.count(levelOK)))
	default:
		p.StyledLine(output.Green, fmt.Sprintf("all %d ok", r.count(levelOK)))
	}
}
