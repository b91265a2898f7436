// SPDX-License-Identifier: Apache-2.0

// Package explain is the subcommand that says what the operator makes of a pod, a Job, a CronJob or a policy, and why.
package explain

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sidecar-termination/operator/internal/cli/exit"
	"github.com/sidecar-termination/operator/internal/cli/output"
	"github.com/sidecar-termination/operator/internal/cli/source"
)

// New returns the subcommand. Its examples call the program by the name.
func New(name string, operator source.Operator) *cobra.Command {
	operator.Program = name
	o := &options{operator: operator, connection: source.NewConnection()}
	command := &cobra.Command{
		Use:   "explain (TYPE/NAME | TYPE NAME | TYPE | -f FILE | -k DIRECTORY)",
		Short: "Says why a pod's sidecars are running, and what will end them",
		Long: `Says what the operator makes of a pod: which containers are mains and which are sidecars and by whose word, by which
mode and image each sidecar will be ended on which kind of node, what is being waited for now, what was done and when,
and what goes wrong or would go wrong. It decides by the same code as the operator and gives the same reasons.

TYPE is pod, job, cronjob, policy or clusterpolicy, or a short name: po, cj, stp, cstp. A TYPE without a name gives one
line for each unfinished object; a Job's is about that of its pods that fares worst. With -f or -k manifests are explained
and no cluster is asked; they may hold policies, namespaces, Jobs, CronJobs and pods, and the operator's flags may be given
(--quick-exit-image and others).

Containers that a webhook injects are not in the template of a Job: explain a live pod to see them.

The exit code is 0 where all is well, 1 where a problem was found, and 2 where it was not possible to look.`,
		Example: fmt.Sprintf(`  # why is this Job still running?
  %[1]s explain job/report -n batch

  # watch a pod to its end
  %[1]s explain pod/report-x4mfd -n batch --watch

  # every unfinished Job of the cluster, one line each
  %[1]s explain jobs -A

  # which pods does a policy decide over, and which does it lose to others?
  %[1]s explain policy/mesh -n batch

  # in CI, before anything is applied
  %[1]s explain -k overlays/production --quick-exit-image=registry.example/quick-exit:v1
  helm template . | %[1]s explain -f - --fail-on=warning`, name),
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: o.complete,
		RunE:              func(cmd *cobra.Command, arguments []string) error { return o.run(cmd, arguments) },
	}
	flags := command.Flags()
	o.format.Bind(command)
	o.failOn.Bind(command)
	o.files.Bind(flags)
	flags.BoolVarP(&o.watch, "watch", "w", false, "show one object again whenever something changes: a pod or a Job until it has finished, any other until you interrupt it")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "with a TYPE and no name: in all namespaces")
	o.connection.Bind(flags)
	operator.Bind(flags)
	output.GroupFlags(command, operator.Bind, source.NewConnection().Bind)
	return exit.Wrap(command)
}

type options struct {
	operator      source.Operator
	connection    *source.Connection
	files         source.Files
	format        output.Format
	failOn        output.FailOn
	watch         bool
	allNamespaces bool
}

func (o *options) run(cmd *cobra.Command, arguments []string) error {
	if err := errors.Join(o.format.Check(), o.failOn.Check()); err != nil {
		return err
	}
	if o.files.Given() {
		if len(arguments) > 0 || o.watch || o.allNamespaces {
			return errors.New("-f and -k explain everything that they hold, and go with neither TYPE, --watch nor --all-namespaces")
		}
		return o.runOffline(cmd)
	}
	subjects, err := parseSubjects(arguments)
	if err != nil {
		return err
	}
	return o.runLive(cmd, subjects)
}
