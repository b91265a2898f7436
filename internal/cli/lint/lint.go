// SPDX-License-Identifier: Apache-2.0

// Package lint is the subcommand that looks for workloads that may hang because nobody has declared their sidecars.
package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		Use:   "lint [-f FILE | -k DIRECTORY]",
		Short: "Finds Jobs, CronJobs and pods that may hang, because nothing declares their sidecars",
		Long: `Looks at the Jobs, CronJobs and pods with restartPolicy Never or OnFailure of a namespace, or of manifests, for containers
that no policy and no environment variable declares a sidecar and that may keep their pod from finishing:

  - a container with the name or the image of a well-known sidecar, such as istio-proxy or fluent-bit, beside others
    (a problem);
  - a container that runs on although another one has ended (live pods; a problem);
  - several containers of which any may be a sidecar (a warning).

It also finds declarations that come to nothing: variables that cannot be read, pods without a main container, and policies
of manifests that the API server would refuse, that have a selector which cannot be parsed, or of which a part does not
count. Of a Job it finds rules of its podFailurePolicy that may decide by the exit code of a sidecar. What is guesswork a policy
settles: name sidecars under sidecars, or all containers to wait for under mainContainers.

The exit code is 0 where nothing was found, 1 where a problem was found, or with --fail-on=warning a warning, and 2 where
it was not possible to look.`,
		Example: fmt.Sprintf(`  # the current namespace, or the whole cluster
  %[1]s lint
  %[1]s lint -A

  # in CI, and strictly
  %[1]s lint -k overlays/production --fail-on=warning`, name),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := command.Flags()
	o.format.Bind(command)
	o.failOn.Bind(command)
	o.files.Bind(flags)
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "look at all namespaces")
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
	allNamespaces bool
}

// linted is one workload with findings.
type linted struct {
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	File      string            `json:"file,omitempty"`
	Findings  []explain.Finding `json:"findings"`
}

// result is everything that was found. Its JSON form is what programs read.
type result struct {
	// Looked is how many workloads were looked at.
	Looked    int      `json:"looked"`
	Workloads []linted `json:"workloads"`
	// Policies are those of manifests with findings of their own: that the API server would refuse, or that do not count.
	Policies []linted `json:"policies,omitempty"`
	// Notes say what was assumed because it could not be read, and what was passed over.
	Notes []string `json:"notes,omitempty"`
}

func (o *options) run(cmd *cobra.Command) error {
	if err := errors.Join(o.format.Check(), o.failOn.Check()); err != nil {
		return err
	}
	look := o.live
	if o.files.Given() {
		if o.allNamespaces {
			return errors.New("-f and -k go without --all-namespaces")
		}
		look = o.offline
	}
	r, err := look(cmd)
	if err != nil {
		return err
	}
	if err := o.format.Write(cmd.OutOrStdout(), r, r.text); err != nil {
		return err
	}
	var all []explain.Finding
	for _, workload := range slices.Concat(r.Policies, r.Workloads) {
		all = append(all, workload.Findings...)
	}
	return o.failOn.Judge(explain.Worst(all))
}

func (r *result) add(report explain.Report, file string) {
	r.Looked++
	if findings := explain.Lint(report.Findings); len(findings) > 0 {
		r.Workloads = append(r.Workloads, linted{report.Kind, report.Namespace, report.Name, file, findings})
	}
}

// addPolicy takes over what is wrong with a policy whatever it selects.
func (r *result) addPolicy(policy explain.PolicyReport, file string) {
	if findings := explain.Lint(policy.Findings); len(findings) > 0 {
		r.Policies = append(r.Policies, linted{policy.Kind, policy.Namespace, policy.Name, file, findings})
	}
}

func (r *result) text(p *output.Printer) {
	for _, workload := range slices.Concat(r.Policies, r.Workloads) {
		name := workload.Kind + " " + path.Join(workload.Namespace, workload.Name)
		if workload.File != "" {
			name += " (" + workload.File + ")"
		}
		p.StyledLine(output.Bold, name)
		p.Findings(workload.Findings)
	}
	for _, note := range r.Notes {
		p.Note(note)
	}
	switch {
	case r.Looked == 0 && len(r.Policies) > 0:
		p.Line("No workload was looked at.")
	case r.Looked == 0:
		p.Line("Nothing to look at: no Job, no CronJob and no pod with restartPolicy Never or OnFailure was found.")
	case len(r.Workloads)+len(r.Policies) == 0:
		p.StyledLine(output.Green, fmt.Sprintf("Looked at %d %s and found nothing.", r.Looked, plural(r.Looked)))
	case len(r.Workloads) == 0:
		p.Line("Looked at %d %s and found something about policies alone.", r.Looked, plural(r.Looked))
	default:
		p.Line("Looked at %d %s and found something about %d.", r.Looked, plural(r.Looked), len(r.Workloads))
	}
}

func plural(count int) string {
	if count == 1 {
		return "workload"
	}
	return "workloads"
}

func (o *options) offline(cmd *cobra.Command) (*result, error) {
	manifests, err := o.files.Read(cmd.Context(), cmd.InOrStdin(), cmp.Or(*o.connection.Namespace, "default"))
	if err != nil {
		return nil, err
	}
	s, err := manifests.Source(o.operator, cmd.Flags())
	if err != nil {
		return nil, err
	}
	r := &result{Workloads: []linted{}}
	for _, refused := range manifests.Refused {
		policy := explain.RefusedPolicy(refused.Policy, refused.Why)
		r.Policies = append(r.Policies, linted{policy.Kind, policy.Namespace, policy.Name, refused.File, policy.Findings})
	}
	for _, manifest := range manifests.Objects {
		if policy, ok := source.PolicyOf(manifest.Object); ok {
			r.addPolicy(explain.DescribePolicy(policy, nil), manifest.File)
			continue
		}
		pod, ok, err := s.Manifest(cmd.Context(), manifest)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		// A pod that is restarted for ever is a service, and nobody's business here unless something declares a sidecar.
		if report := s.Explain(pod); explain.IsJobType(pod.Pod) || len(report.Findings) > 0 {
			r.add(report, manifest.File)
		}
	}
	r.Notes = s.Notes()
	return r, nil
}

func (o *options) live(cmd *cobra.Command) (*result, error) {
	namespace, err := o.connection.CurrentNamespace()
	if err != nil {
		return nil, err
	}
	if o.allNamespaces {
		namespace = ""
	}
	cluster, err := o.connection.Connect()
	if err != nil {
		return nil, err
	}
	s, err := cluster.Source(cmd.Context(), o.operator, cmd.Flags())
	if err != nil {
		return nil, err
	}
	l := &linter{Live: cluster, look: s, result: &result{Workloads: []linted{}}, looked: sets.New[types.UID](), known: sets.New[string]()}
	for _, look := range []func(context.Context, string) error{l.listJobs, l.pods, l.jobTemplates, l.cronJobs} {
		if err := look(cmd.Context(), namespace); err != nil {
			return nil, err
		}
	}
	l.result.Notes = s.Notes()
	return l.result, nil
}

// linter looks at a cluster. What a webhook has injected shows in pods only, so that a template is looked at where it
// has no pod.
type linter struct {
	*source.Live
	look   *source.Source
	result *result
	jobs   []*batchv1.Job
	looked sets.Set[types.UID] // owners of which a pod was looked at
	known  sets.Set[string]    // what was found about pods of Jobs
}

func (l *linter) listJobs(ctx context.Context, namespace string) error {
	var jobs batchv1.JobList
	if err := l.Client.List(ctx, &jobs, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		l.jobs = append(l.jobs, &jobs.Items[i])
	}
	return nil
}

func (l *linter) pods(ctx context.Context, namespace string) error {
	pods, err := l.Unfinished(ctx, namespace)
	if err != nil {
		return err
	}
	byUID := map[types.UID]*batchv1.Job{}
	for _, job := range l.jobs {
		byUID[job.UID] = job
	}
	for i := range pods {
		owner := metav1.GetControllerOf(&pods[i])
		var job *batchv1.Job
		if owner != nil {
			job = byUID[owner.UID]
			l.looked.Insert(owner.UID)
		}
		gathered, err := l.look.Pod(ctx, &pods[i], job)
		if err != nil {
			return err
		}
		report := l.look.Explain(gathered)
		if !l.isKnown(owner, report) {
			l.result.add(report, "")
		}
	}
	return nil
}

// isKnown reports whether the same was found about another pod of the same Job. Pods of other owners, such as workflows,
// have little in common.
func (l *linter) isKnown(owner *metav1.OwnerReference, report explain.Report) bool {
	if owner == nil || owner.Kind != "Job" || !strings.HasPrefix(owner.APIVersion, batchv1.GroupName+"/") {
		return false
	}
	found := fmt.Sprint(owner.UID, explain.Lint(report.Findings))
	known := l.known.Has(found)
	l.known.Insert(found)
	return known
}

// jobTemplates looks at those of the Jobs that have no pod.
func (l *linter) jobTemplates(ctx context.Context, _ string) error {
	for _, job := range l.jobs {
		if isFinished(job) {
			continue
		}
		if owner := metav1.GetControllerOf(job); owner != nil {
			l.looked.Insert(owner.UID)
		}
		if l.looked.Has(job.UID) {
			continue
		}
		if err := l.template(ctx, source.OfJob(job)); err != nil {
			return err
		}
	}
	return nil
}

func (l *linter) cronJobs(ctx context.Context, namespace string) error {
	var crons batchv1.CronJobList
	if err := l.Client.List(ctx, &crons, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list CronJobs: %w", err)
	}
	for i := range crons.Items {
		if l.looked.Has(crons.Items[i].UID) {
			continue
		}
		if err := l.template(ctx, source.OfCronJob(&crons.Items[i])); err != nil {
			return err
		}
	}
	return nil
}

func (l *linter) template(ctx context.Context, template source.Template) error {
	gathered, err := l.look.Template(ctx, template)
	if err != nil {
		return err
	}
	l.result.add(l.look.Explain(gathered), "")
	return nil
}

func isFinished(job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && strings.EqualFold(string(condition.Status), "true") {
			return true
		}
	}
	return false
}
