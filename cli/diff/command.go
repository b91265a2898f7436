// SPDX-License-Identifier: Apache-2.0

// Package diff is the subcommand that shows which decisions about pods change if policies are applied.
package diff

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/cli/exit"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/settings"
)

// New returns the subcommand of the program.
func New(program source.Program) *cobra.Command {
	o := &options{program: program, connection: source.NewConnection()}
	command := &cobra.Command{
		Use:   "diff (-f FILE | -k DIRECTORY)",
		Short: "Shows which decisions about pods change if policies are applied",
		Long: `Lists the unfinished pods about which the operator would decide differently if the policies of the manifests were applied, and
what changes: main containers and sidecars, the policy that declares each of them, its modes and settings, and the current
decision. The command uses the code of the operator and changes nothing.

A policy of the manifests replaces the policy of its name. Other policies stay. Other objects of the manifests do not count. The
pods are those of the namespaces of the policies, and all pods for a cluster policy.

--against takes the current policies, namespaces, pods, Jobs and CronJobs from manifests, such as a dump of a cluster or the
manifests of another branch. The command then does not connect to a cluster. The flags of the operator are those of its Deployment
in these manifests or in --install, and otherwise those of a default installation. Flags on the command line override them.

The exit code is 0 if no decision changes, 1 if one does, and 2 on errors, such as a policy that the API server would reject.`,
		Example: fmt.Sprintf(`  # what do the policies change in the cluster?
  %[1]s diff -f policies.yaml

  # the same for a kustomization
  %[1]s diff -k overlays/production

  # without a cluster, compared with a dump
  kubectl get stp,cstp,namespaces,pods -A -o yaml > dump.yaml
  %[1]s diff -f policies.yaml --against dump.yaml`, program.Name),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := command.Flags()
	o.format.Bind(command)
	o.files.Bind(flags)
	flags.Lookup("filename").Usage = "file, directory or URL with policies, or - for standard input; may be repeated"
	flags.Lookup("kustomize").Usage = "directory or URL of a kustomization with policies to build"
	flags.Lookup("install").Usage = "with --against: file, directory or URL with the operator's manifests, whose flags are used; by default its Deployment in --against, or the default installation"
	flags.StringSliceVar(&o.against.Filenames, "against", nil, "file, directory or URL with the current policies, namespaces and pods; may be repeated. Does not connect to a cluster")
	o.connection.Bind(flags)
	settings.BindDecisions(flags)
	output.GroupFlags(command, settings.BindDecisions, source.NewConnection().Bind)
	return exit.Wrap(command)
}

type options struct {
	program        source.Program
	connection     *source.Connection
	files, against source.Files
	format         output.Format
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.format.Check(); err != nil {
		return err
	}
	if !o.files.Given() {
		return errors.New("specify the policies with -f or -k")
	}
	// The operator's flags belong to the current state.
	o.against.Install, o.files.Install = o.files.Install, ""
	if o.against.Install != "" && !o.against.Given() {
		return errors.New("--install requires --against: without it the flags of the operator in the cluster are used")
	}
	compare := o.live
	if o.against.Given() {
		compare = o.offline
	}
	r, err := compare(cmd)
	if err != nil {
		return err
	}
	if err := o.format.Write(cmd.OutOrStdout(), r, r.text); err != nil {
		return err
	}
	if r.Summary.ChangedPods > 0 {
		return exit.ErrProblem
	}
	return nil
}

// policies returns the policies of the manifests. It is an error if there are none, or if the API server would reject one.
func (o *options) policies(cmd *cobra.Command, namespace string) ([]client.Object, error) {
	manifests, err := o.files.Read(cmd.Context(), cmd.InOrStdin(), namespace)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, rejected := range manifests.Rejected {
		problems = append(problems, fmt.Errorf("%s: the API server would reject %s: %s", rejected.File, rejected.Policy, strings.Join(rejected.Errors, "; ")))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	var policies []client.Object
	for _, manifest := range manifests.Objects {
		if _, ok := source.PolicyOf(manifest.Object); ok {
			policies = append(policies, manifest.Object)
		}
	}
	if len(policies) == 0 {
		return nil, errors.New("the manifests contain no policy")
	}
	return policies, nil
}

// live compares the decisions about the pods of a cluster.
func (o *options) live(cmd *cobra.Command) (*result, error) {
	cluster, before, namespace, err := o.connection.Open(cmd.Context(), o.program, cmd.Flags(), false)
	if err != nil {
		return nil, err
	}
	policies, err := o.policies(cmd, namespace)
	if err != nil {
		return nil, err
	}
	c := newComparison(before, policies)
	for _, namespace := range namespacesOf(policies) {
		pods, err := cluster.UnfinishedPods(cmd.Context(), namespace)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			if err := c.pod(cmd.Context(), &pods[i]); err != nil {
				return nil, err
			}
		}
	}
	return c.finish(), nil
}

// namespacesOf returns the namespaces whose pods the policies may select, or the empty one for all.
func namespacesOf(policies []client.Object) []string {
	namespaces := sets.New[string]()
	for _, policy := range policies {
		namespaces.Insert(policy.GetNamespace())
	}
	if namespaces.Has(metav1.NamespaceAll) {
		return []string{metav1.NamespaceAll}
	}
	return sets.List(namespaces)
}

// offline compares the decisions about the workloads of manifests.
func (o *options) offline(cmd *cobra.Command) (*result, error) {
	namespace := cmp.Or(*o.connection.Namespace, metav1.NamespaceDefault)
	policies, err := o.policies(cmd, namespace)
	if err != nil {
		return nil, err
	}
	current, err := o.against.Read(cmd.Context(), cmd.InOrStdin(), namespace)
	if err != nil {
		return nil, err
	}
	before, err := current.Source(o.program, cmd.Flags())
	if err != nil {
		return nil, err
	}
	c := newComparison(before, policies)
	for _, manifest := range current.Objects {
		if err := c.manifest(cmd.Context(), manifest); err != nil {
			return nil, err
		}
	}
	for _, rejected := range current.Rejected {
		c.result.note(fmt.Sprintf("%s of %s does not count: the API server would reject it", rejected.Policy, rejected.File))
	}
	return c.finish(), nil
}
