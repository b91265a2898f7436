// SPDX-License-Identifier: Apache-2.0

// Package explain is the subcommand that explains what the operator does with a pod, Job, CronJob or policy.
package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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
		Use:   "explain (TYPE/NAME | TYPE NAME | [TYPE] -l SELECTOR | TYPE | FILE.yaml... | -f FILE | -k DIRECTORY)",
		Short: "Explains why a pod's sidecars are running and what ends them",
		Long: `Explains what the operator does with a pod: which containers are main containers or sidecars and what declares them, which
modes and images end each sidecar on each node type, what the operator waits for, what it has done, and what goes or may go
wrong. The command uses the code of the operator and shows the same reasons.

TYPE is pod, job, cronjob, policy or clusterpolicy, or another name that kubectl knows for them. A TYPE without a name shows one
line for each unfinished object, and with -l for each with the labels. Without a TYPE, -l selects pods. The line of a Job describes
its pod with the worst finding.

With -f or -k the command explains manifests and does not connect to a cluster. Manifests may contain policies, namespaces,
Jobs, CronJobs and pods. The flags of the operator are those of its Deployment in these manifests, and otherwise those of a
default installation. Flags on the command line, such as --quick-exit-image, override them.

A Job's template lacks the containers that webhooks inject: explain a running pod to see them.

The exit code is 0 without problems, 1 with a problem, and 2 on errors.`,
		Example: fmt.Sprintf(`  # why is this Job still running?
  %[1]s explain job/report -n batch

  # every unfinished Job of the cluster, or with a label, one line each
  %[1]s explain jobs -A
  %[1]s explain jobs -l team=etl -n batch

  # which pods does a policy apply to, and where does another policy take precedence?
  %[1]s explain policy/mesh -n batch

  # in CI, before applying manifests
  %[1]s explain -k overlays/production --quick-exit-image=registry.example/quick-exit:v1
  helm template . | %[1]s explain -f - --fail-on=warning`, settings.PluginName),
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, arguments []string) error { return o.run(cmd, arguments) },
	}
	flags := command.Flags()
	command.ValidArgsFunction = o.connection.Complete(source.Pods, source.Jobs, source.CronJobs, source.Policies, source.ClusterPolicies)
	o.format.Bind(command)
	o.failOn.Bind(command)
	o.files.Bind(flags)
	flags.StringVarP(&o.selector, "selector", "l", "", "show only objects with these labels, such as key=value; pods if there is no TYPE")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "with a TYPE and no name: show objects in all namespaces")
	settings.BindDecisions(flags)
	o.connection.BindTo(command)
	output.SetHelp(command, settings.BindDecisions, source.NewConnection().Bind)
	return command
}

type options struct {
	now           func() time.Time
	connection    *source.Connection
	files         source.Files
	format        output.Format
	failOn        output.FailOn
	selector      string
	allNamespaces bool
}

func (o *options) run(cmd *cobra.Command, arguments []string) error {
	var r *result
	var err error
	arguments = o.files.Take(arguments)
	switch {
	case o.files.Given() && (len(arguments) > 0 || o.allNamespaces || o.selector != ""):
		return errors.New("-f and -k cannot be combined with TYPE, --selector or --all-namespaces")
	case o.files.Given():
		r, err = o.offline(cmd)
	case len(arguments) == 0 && o.selector != "":
		r, err = o.live(cmd, []string{source.Pods.Names[0]})
	case len(arguments) == 0:
		return errors.New("specify what to explain: TYPE/NAME such as job/report, or -f FILE, or -k DIRECTORY")
	default:
		r, err = o.live(cmd, arguments)
	}
	if err != nil {
		return err
	}
	var findings []explain.Finding
	for _, pod := range r.Pods {
		findings = append(findings, pod.Findings...)
	}
	for _, policy := range r.Policies {
		findings = append(findings, policy.Findings...)
	}
	r.Summary = explain.Summarize(findings)
	if err := o.format.Write(cmd.OutOrStdout(), r, r.text); err != nil || r.err != nil {
		return cmp.Or(err, r.err)
	}
	return o.failOn.Judge(explain.Worst(findings))
}

// offline explains every object in the manifests. Its text leaves out policies that the reports on pods name.
func (o *options) offline(cmd *cobra.Command) (*result, error) {
	manifests, err := o.files.Read(cmd.Context(), cmd.InOrStdin(), cmp.Or(*o.connection.Namespace, "default"))
	if err != nil {
		return nil, err
	}
	s, err := manifests.Source(o.now, cmd.Flags())
	if err != nil {
		return nil, err
	}
	r := newResult()
	r.offline, r.err = true, manifests.Err
	for _, rejected := range manifests.Rejected {
		r.Policies = append(r.Policies, explain.RejectedPolicy(rejected.Policy(), rejected.Mistakes))
	}
	for _, manifest := range manifests.Objects {
		workload, err := s.Workload(cmd.Context(), manifest)
		if err != nil {
			return nil, err
		}
		for i, template := range workload.Templates {
			report := s.Explain(template.Pod)
			if i == 0 {
				report.Findings = append(report.Findings, workload.Remarks...)
			}
			r.Pods = append(r.Pods, report)
		}
		if len(workload.Templates) > 0 {
			continue
		}
		for _, remark := range workload.Remarks {
			r.Notes = append(r.Notes, fmt.Sprintf("%s %s: %s", manifest.Raw.GetKind(), manifest.Raw.GetName(), remark.Message))
		}
	}
	for _, manifest := range manifests.Objects {
		if policy, ok := source.PolicyOf(manifest.Object); ok {
			r.Policies = append(r.Policies, explain.DescribePolicy(policy, r.Pods, s.Settings.Decisions, s.Cluster))
		}
	}
	r.Notes = append(s.Notes(), r.Notes...)
	if slices.ContainsFunc(r.Pods, func(p explain.Report) bool { return !p.Template }) {
		r.Notes = append(r.Notes, "manifests do not show whether OpenKruise is installed: it is assumed to be absent for pods that have run")
	}
	if len(r.Pods)+len(r.Policies) == 0 {
		nothing := "the manifests contain no policy, and no workload whose pods finish; check that the right ones were given"
		return nil, cmp.Or(r.err, errors.New(strings.Join(append([]string{nothing}, r.Notes...), "; ")))
	}
	return r, nil
}
