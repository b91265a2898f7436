// SPDX-License-Identifier: Apache-2.0

// Package check is the subcommand that checks the operator's installation and its dependencies, one line each.
package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/settings"
)

// New returns the subcommand; now tells the time.
func New(now func() time.Time) *cobra.Command {
	o := &options{now: now, connection: source.NewConnection()}
	command := &cobra.Command{
		Use:   "check",
		Short: "Checks the operator's installation, its permissions and OpenKruise",
		Long: `Checks the version of Kubernetes, the operator's Deployment, CRDs, version, flags, metrics, lease, admission policies and
permissions, the policies, network plugins that disconnect a pod with a terminal phase, whether a NetworkPolicy limits who can
connect to the metrics port, and OpenKruise: its CRD, its webhook, its daemon on each node, and whether its own SidecarTerminator
acts on the same pods. The operator is found in its usual namespace or any other.

With --pre the command checks a cluster before anything is installed: the version of Kubernetes and its APIs, network plugins,
OpenKruise, and whether you may install the operator.

Each line is ok, a warning or a failure, with a hint that fits the installation.

The command only reads and creates access reviews. Missing permissions of the user are warnings. If the user may read nothing, the
command ends with an error.

The exit code is 0 without failures, 1 with a failure (or with a warning and --fail-on=warning), and 2 on errors.`,
		Example: fmt.Sprintf(`  # after installing, upgrading, or when Jobs hang
  %[1]s check

  # before installing
  %[1]s check --pre`, settings.PluginName),
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.format.Bind(command)
	o.failOn.Bind(command)
	command.Flags().BoolVar(&o.before, "pre", false, "check a cluster before the operator is installed: its version and APIs, and your permissions")
	o.connection.BindTo(command)
	output.SetHelp(command, nil, source.NewConnection().Bind)
	return command
}

type options struct {
	now        func() time.Time
	connection *source.Connection
	format     output.Format
	failOn     output.FailOn
	before     bool // the operator is not installed yet
}

func (o *options) run(cmd *cobra.Command) error {
	cluster, err := o.connection.Connect()
	if err != nil {
		return err
	}
	discovery, err := o.connection.ToDiscoveryClient()
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	version, err := discovery.ServerVersion()
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	c := &checker{options: o, Client: cluster, version: version, programVersion: cmd.Root().Version}
	r, err := c.check(cmd.Context())
	if err != nil {
		return err
	}
	if err := o.format.Write(cmd.OutOrStdout(), r, r.text); err != nil {
		return err
	}
	return o.failOn.Judge(r.worst())
}

// outcome is the result of a check.
type outcome string

const (
	outcomeOK      outcome = "OK"
	outcomeWarning outcome = "Warning"
	outcomeFailure outcome = "Failure"
)

// checkResult is the result of one check.
type checkResult struct {
	Section string `json:"section"`
	// Name identifies the check. A check may have several results.
	Name    string  `json:"name"`
	Outcome outcome `json:"outcome"`
	Message string  `json:"message"`
	// Hint says what to do about it.
	Hint string `json:"hint,omitempty"`
}

// result is the outcome of the command. Its JSON form is part of the versioned output.
type result struct {
	output.Header
	Summary summary       `json:"summary"`
	Checks  []checkResult `json:"checks"`
}

// summary counts the results.
type summary struct {
	OK       int `json:"ok"`
	Warnings int `json:"warnings"`
	Failures int `json:"failures"`
}

func newResult(checks []checkResult) *result {
	count := map[outcome]int{}
	for _, check := range checks {
		count[check.Outcome]++
	}
	return &result{
		Header: output.NewHeader("CheckReport"), Checks: checks,
		Summary: summary{OK: count[outcomeOK], Warnings: count[outcomeWarning], Failures: count[outcomeFailure]},
	}
}

func (r *result) worst() explain.Severity {
	switch {
	case r.Summary.Failures > 0:
		return explain.SeverityProblem
	case r.Summary.Warnings > 0:
		return explain.SeverityWarning
	}
	return ""
}

func (r *result) text(p *output.Printer) {
	section := ""
	for _, check := range r.Checks {
		if check.Section != section {
			if section != "" {
				p.Line("")
			}
			section = check.Section
			p.Line("%s", section)
		}
		p.Item(fmt.Sprintf("%-7s", strings.ToLower(string(check.Outcome))), check.Message, check.Hint)
	}
	p.Line("")
	p.Line("failures: %d, warnings: %d, ok: %d", r.Summary.Failures, r.Summary.Warnings, r.Summary.OK)
}
