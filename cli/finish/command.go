// SPDX-License-Identifier: Apache-2.0

// Package finish is the subcommand that ends the sidecars of stuck pods with the permissions of its user.
package finish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/settings"
)

// maxPods bounds the pods that -l selects.
const maxPods = 500

// dryRun is the value of --dry-run.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunServer dryRun = "server"
)

// New returns the subcommand; now tells the time.
func New(now func() time.Time) *cobra.Command {
	o := &options{now: now, connection: source.NewConnection()}
	command := &cobra.Command{
		Use:   "finish (pod/NAME... | job/NAME... | -l SELECTOR)",
		Short: "Ends the sidecars of stuck pods whose main containers are done",
		Long: `Ends the sidecars of stuck pods, so that the pods and their Jobs complete with the outcome of the main containers. Deleting
such a pod would start its work again. The command writes what the operator would write, with your permissions:

  - mode PodPhase, the default, marks the pod, and admission policy sidecar-termination-outcome sets phase Succeeded. If a main
    container has failed, the command writes phase Failed. The kubelet then ends the sidecars with their grace period. You need
    permission to patch pods/status.
  - mode Image swaps the images of the sidecars for the quick-exit image, which exits 0. Virtual nodes need it. You need
    permission to patch pods.

Sidecars are the containers that enforced policies and environment variables declare. Name others with --sidecars. The command
refuses a pod while a main container runs or may run again, while no sidecar or every container is declared, and while the
operator is ending the sidecars. Flags of the operator that turn modes off, and its longest grace period, do not count.

The admission policy looks at the pod as it is. For every other write the command reads a pod that has changed again, and decides
again. An event on the pod records the write. job/NAME stands for the unfinished pods of the Job. -l selects only unfinished pods with
restartPolicy Never or OnFailure. A pod that fails does not stop the others.

The exit code is 0 if nothing is left to do, 1 if a pod was refused, and 2 on errors.`,
		Example: fmt.Sprintf(`  # what would be written? The API server checks it and writes nothing
  %[1]s finish pod/report-x4mfd -n batch --dry-run=server

  # finish a pod
  %[1]s finish pod/report-x4mfd -n batch

  # no policy declares the sidecar
  %[1]s finish pod/report-x4mfd -n batch --sidecars istio-proxy

  # every stuck pod of a Job, or of all Jobs with a label
  %[1]s finish job/report -n batch
  %[1]s finish -l app=report -n batch`, settings.PluginName),
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, arguments []string) error { return o.run(cmd, arguments) },
	}
	flags := command.Flags()
	command.ValidArgsFunction = o.connection.Complete(source.Pods, source.Jobs)
	output.BindChoice(command, &o.format, "output", "o", "output format: table, json, yaml; name for the finished pods",
		output.FormatTable, output.FormatJSON, output.FormatYAML, output.FormatName)
	flags.StringVarP(&o.selector, "selector", "l", "", "finish the unfinished pods with these labels, such as key=value")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "with -l: select pods in all namespaces")
	output.BindChoice(command, &o.mode, "mode", "", "how to end the sidecars: PodPhase, Image", v1alpha1.ModePodPhase, v1alpha1.ModeImage)
	flags.StringSliceVar(&o.sidecars, "sidecars", nil, "containers that are sidecars, besides those that policies and environment variables declare")
	output.BindChoice(command, &o.dryRun, "dry-run", "", "none; server: let the API server check the write without storing it", dryRunNone, dryRunServer)
	settings.BindDecisions(flags)
	o.connection.BindTo(command)
	output.SetHelp(command, settings.BindDecisions, source.NewConnection().Bind)
	return command
}

type options struct {
	now           func() time.Time
	connection    *source.Connection
	format        output.Format
	selector      string
	allNamespaces bool
	mode          v1alpha1.Mode
	sidecars      []string
	dryRun        dryRun
}

func (o *options) run(cmd *cobra.Command, arguments []string) error {
	named, err := parseNames(arguments)
	if err != nil {
		return err
	}
	if err := o.check(named); err != nil {
		return err
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	ctx := cmd.Context()
	from, namespace, err := o.connection.Open(ctx, o.now(), cmd.Flags(), o.allNamespaces)
	if err != nil {
		return err
	}
	pods, err := podsOf(ctx, from, namespace, named)
	if err == nil && o.selector != "" {
		pods, err = unfinished(cmd, from.Client, namespace, selector)
	}
	if err != nil {
		return err
	}
	f := &finisher{options: o, client: from.Client, source: from}
	f.result = result{Header: output.NewHeader("FinishReport"), DryRun: o.dryRun, Pods: []podResult{}}
	if o.dryRun == dryRunServer {
		f.client = client.NewDryRunClient(from.Client)
	}
	for i := 0; i < len(pods) && ctx.Err() == nil; i++ {
		f.finish(ctx, &pods[i])
	}
	f.result.Notes = append(f.result.Notes, from.Notes()...)
	text := f.result.text
	if o.format == output.FormatName {
		text = f.result.names
	}
	if err := o.format.Write(cmd.OutOrStdout(), f.result, text); err != nil {
		return err
	}
	return errors.Join(ctx.Err(), f.result.judge())
}

// check returns an error for flags that contradict the names.
func (o *options) check(named []object) error {
	switch {
	case len(named) == 0 && o.selector == "":
		return errors.New("specify pods as pod/NAME or job/NAME, or select them with -l")
	case len(named) > 0 && o.selector != "":
		return errors.New("-l cannot be combined with names")
	case o.allNamespaces && o.selector == "":
		return errors.New("--all-namespaces requires -l")
	}
	return nil
}

// object is a pod, or a Job with its pods.
type object struct {
	job  bool
	name string
}

// parseNames reads TYPE/NAME..., TYPE NAME... and NAME..., which is a pod.
func parseNames(arguments []string) ([]object, error) {
	usual := source.Pods
	if len(arguments) > 0 && (source.Pods.HasName(arguments[0]) || source.Jobs.HasName(arguments[0])) {
		if source.Jobs.HasName(arguments[0]) {
			usual = source.Jobs
		}
		arguments = arguments[1:]
	}
	var all []object
	for _, argument := range arguments {
		typed, name, ok := strings.Cut(argument, "/")
		if !ok {
			typed, name = usual.Names[0], argument
		}
		named := object{source.Jobs.HasName(typed), name}
		if !named.job && !source.Pods.HasName(typed) || name == "" {
			return nil, fmt.Errorf("%q is not pod/NAME or job/NAME", argument)
		}
		all = append(all, named)
	}
	return all, nil
}

// podsOf returns the pods by their names alone, and the unfinished pods of the Jobs. Each pod counts once.
func podsOf(ctx context.Context, from *source.Source, namespace string, all []object) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	add := func(pod corev1.Pod) {
		if !slices.ContainsFunc(pods, func(known corev1.Pod) bool { return known.Name == pod.Name }) {
			pods = append(pods, pod)
		}
	}
	for _, named := range all {
		if !named.job {
			add(corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: named.name}})
			continue
		}
		job := &batchv1.Job{}
		if err := from.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: named.name}, job); err != nil {
			return nil, fmt.Errorf("get Job: %w", err)
		}
		from.KnownJobs[job.UID] = job
		ofJob, err := from.PodsOf(ctx, job)
		if err != nil {
			return nil, err
		}
		for i := range ofJob {
			if !plan.HasTerminalPhase(&ofJob[i]) {
				add(ofJob[i])
			}
		}
		if len(pods) > maxPods {
			return nil, fmt.Errorf("the Jobs have more than %d unfinished pods; name pods, or select them with -l", maxPods)
		}
	}
	return pods, nil
}

// unfinished lists the unfinished Job-type pods that the selector matches. An empty namespace means all.
func unfinished(cmd *cobra.Command, reader client.Reader, namespace string, selector labels.Selector) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := reader.List(cmd.Context(), &list, client.InNamespace(namespace), client.Limit(maxPods),
		client.MatchingFieldsSelector{Selector: podcache.UnfinishedPods()}, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	if list.Continue != "" {
		return nil, fmt.Errorf("more than %d unfinished pods match; use a narrower selector, or one namespace at a time", maxPods)
	}
	return list.Items, nil
}
