// SPDX-License-Identifier: Apache-2.0

// Package lint is the subcommand that finds workloads that may hang because their sidecars are not declared.
package lint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

// New returns the subcommand; now tells the time.
func New(now func() time.Time) *cobra.Command {
	o := &options{now: now, connection: source.NewConnection()}
	command := &cobra.Command{
		Use:   "lint [FILE... | -f FILE | -k DIRECTORY]",
		Short: "Finds Jobs, CronJobs and pods that may hang because their sidecars are not declared",
		Long: `Checks Jobs, CronJobs and pods with restartPolicy Never or OnFailure in a namespace or in manifests. In manifests it also checks
the pod templates of other kinds, such as JobSet and Argo's Workflow. It finds containers that no policy or environment variable
declares a sidecar and that may keep their pod from finishing:

  - a container with the name or image of a well-known sidecar, such as istio-proxy or fluent-bit (a problem);
  - a container that an injector adds later, such as Istio or Vault (manifests; a problem, or a warning if the injector may add a
    native sidecar);
  - a container that is still running after another one has terminated (running pods; a problem);
  - several undeclared containers, since any may be a sidecar (a warning).

In manifests it finds mistakes in the fields of pods, and says what it could not check (a warning).

It also finds ineffective declarations: unreadable variables, pods without a main container, and policies in manifests that
the API server would reject or that have an invalid selector. In a Job it finds podFailurePolicy rules that match the exit
code of a sidecar, and deletions and finalizers that may shorten the grace period of sidecars.

To resolve a guess, list the container under sidecars or mainContainers of a policy.

The exit code is 0 without problems, 1 with a problem (or with a warning and --fail-on=warning), and 2 on errors, also if
manifests contain no object, and after the findings if a file could not be read. With -o policy it is 0 or 2, and without anything to declare standard output is empty.`,
		Example: fmt.Sprintf(`  # the current namespace, or the whole cluster
  %[1]s lint
  %[1]s lint -A

  # declare what was found, without acting yet (enforcement: DryRun)
  %[1]s lint -A -o policy | kubectl apply -f -

  # in CI, also failing on warnings, with annotations on GitHub
  %[1]s lint -k overlays/production --fail-on=warning -o github`, settings.PluginName),
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, arguments []string) error {
			o.files.Filenames = append(o.files.Filenames, arguments...)
			return o.run(cmd)
		},
	}
	flags := command.Flags()
	output.BindChoice(command, &o.format, "output", "o", "output format: table, json, yaml; name for the workloads with findings; policy for the policies that declare what was found; github, junit or sarif for CI",
		output.FormatTable, output.FormatJSON, output.FormatYAML, output.FormatName, formatPolicy, formatGitHub, output.FormatJUnit, formatSARIF)
	o.failOn.Bind(command)
	o.files.Bind(flags)
	flags.StringSliceVar(&o.ignoredKinds, "ignore-kind", nil, "kind of manifests not to check, such as ServiceMonitor.monitoring.coreos.com; may be repeated")
	flags.StringVarP(&o.selector, "selector", "l", "", "check only Jobs, CronJobs and pods with these labels, such as key=value, and pods of such Jobs")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "check all namespaces")
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
	ignoredKinds  []string
}

// workloadReport is a workload, a policy or another object with findings. In a cluster, a workload is what owns the pods.
type workloadReport struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	source.Place
	// Path is the place of the pod template in an object that may have several.
	Path string `json:"path,omitempty"`
	// Pods have the findings, in a cluster.
	Pods     []string          `json:"pods,omitempty"`
	Findings []explain.Finding `json:"findings"`
}

// result is the outcome of the command. Its JSON form is part of the versioned output.
type result struct {
	output.Header
	Summary summary `json:"summary"`
	// Workloads has the workloads with findings.
	Workloads []workloadReport `json:"workloads"`
	// Policies has the policies of manifests with findings of their own.
	Policies []workloadReport `json:"policies,omitempty"`
	// Objects has the objects of manifests that could not be checked, or not entirely.
	Objects []workloadReport `json:"objects,omitempty"`
	// Findings are on the manifests as a whole.
	Findings []explain.Finding `json:"findings,omitempty"`
	// Notes say what was assumed because it could not be read, and what was ignored.
	Notes []string `json:"notes,omitempty"`
	// proposals are by namespace.
	proposals map[string]*proposal
	// err is why some manifests could not be read.
	err error
	// owners are the names of checked owners, and places has the index in Workloads of those with findings. reported are these findings.
	owners, reported sets.Set[string]
	places           map[string]int
}

// summary counts the checked workloads and the findings.
type summary struct {
	CheckedWorkloads int `json:"checkedWorkloads"`
	// CheckedPolicies and UncheckedObjects are of manifests.
	CheckedPolicies  int `json:"checkedPolicies,omitempty"`
	UncheckedObjects int `json:"uncheckedObjects,omitempty"`
	explain.Summary
}

func newResult() *result {
	return &result{
		Header: output.NewHeader("LintReport"), Workloads: []workloadReport{}, proposals: map[string]*proposal{},
		owners: sets.New[string](), reported: sets.New[string](), places: map[string]int{},
	}
}

func (o *options) run(cmd *cobra.Command) error {
	run := o.live
	if o.files.Given() {
		if o.allNamespaces || o.selector != "" {
			return errors.New("-f and -k cannot be combined with --all-namespaces or --selector")
		}
		run = o.offline
	} else if len(o.ignoredKinds) > 0 {
		return errors.New("--ignore-kind needs -f or -k")
	} else if o.format == formatSARIF {
		return errors.New("-o sarif shows findings in files: it needs -f or -k")
	}
	r, err := run(cmd)
	if err != nil {
		return err
	}
	var all []explain.Finding
	for _, object := range r.objects() {
		all = append(all, object.Findings...)
	}
	r.Summary.Summary = explain.Summarize(all)
	if err := o.write(cmd, r); err != nil {
		return err
	}
	if r.err != nil {
		return r.err
	}
	if o.format != formatPolicy {
		return o.failOn.Judge(explain.Worst(all))
	}
	// Findings are no failure of a pipe into kubectl apply.
	if len(r.proposals) == 0 {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), "note: nothing to declare, so no policy is printed")
	}
	return err
}

// write writes the result without control characters from the objects.
func (o *options) write(cmd *cobra.Command, r *result) error {
	var text string
	var leftOut int
	var err error
	switch o.format {
	case output.FormatName:
		text = r.names()
	case formatPolicy:
		text, err = r.policies()
	case formatGitHub:
		text = r.github()
	case output.FormatJUnit:
		return output.WriteJUnit(cmd.OutOrStdout(), settings.PluginProgram+" lint", r.junit(o.failOn))
	case formatSARIF:
		text, leftOut, err = r.sarif()
	default:
		return o.format.Write(cmd.OutOrStdout(), r, r.text)
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	if leftOut > 0 {
		cmd.PrintErrf("%s left out: -o sarif shows only files of the repository. See all with -o table\n", count(leftOut, "finding is", "findings are"))
	}
	_, err = io.WriteString(cmd.OutOrStdout(), safetext.EscapeLines(text))
	return err
}

// addOwned adds a checked pod, or the template of a Job, to the workload that owns it. Findings that only differ in their commands are
// reported once.
func (r *result) addOwned(owner workloadReport, pod string, report explain.Report) {
	name := owner.name()
	r.owners.Insert(name)
	r.Summary.CheckedWorkloads = r.owners.Len()
	findings := explain.Lint(report.Findings)
	if len(findings) == 0 {
		return
	}
	i, known := r.places[name]
	if !known {
		i = len(r.Workloads)
		r.places[name] = i
		r.Workloads = append(r.Workloads, owner)
	}
	workload := &r.Workloads[i]
	if pod != "" {
		workload.Pods = append(workload.Pods, pod)
	}
	report.Findings = nil
	for _, finding := range findings {
		if text := fmt.Sprint(name, finding.Reason, finding.Message); !r.reported.Has(text) {
			r.reported.Insert(text)
			report.Findings = append(report.Findings, finding)
		}
	}
	workload.Findings = append(workload.Findings, report.Findings...)
	r.propose(report)
}

// addPolicy adds the findings on a policy itself.
func (r *result) addPolicy(policy explain.PolicyReport, place source.Place) {
	r.Summary.CheckedPolicies++
	if findings := explain.Lint(policy.Findings); len(findings) > 0 {
		r.Policies = append(r.Policies, workloadReport{policy.Kind, policy.Namespace, policy.Name, place, "", nil, findings})
	}
}

func (r *result) text(p *output.Printer) {
	reports := slices.Concat(r.Workloads, r.Objects)
	slices.SortStableFunc(reports, func(a, b workloadReport) int { return cmp.Compare(a.Position, b.Position) })
	for _, same := range groups(slices.Concat(r.Policies, reports)) {
		for _, workload := range same[:min(len(same), maxNamed)] {
			p.Line("%s", workload.title())
		}
		if more := len(same) - maxNamed; more > 0 {
			p.Line("and %d more with the same findings", more)
		}
		p.Findings(shown(same))
	}
	p.Findings(r.Findings)
	for _, note := range r.Notes {
		p.Note(note)
	}
	r.summaryLine(p)
}

// maxNamed is how many workloads with the same findings the text names.
const maxNamed = 3

// shown returns the findings of a group for the text.
func shown(same []workloadReport) []explain.Finding {
	findings := slices.Clone(same[0].Findings)
	for i := range findings {
		if len(same) > 1 || len(same[0].Pods) > 1 {
			findings[i] = findings[i].OfSeveral()
		}
	}
	return findings
}

// groups joins the reports whose findings differ in nothing but the commands for one of the pods, in the order of the first of each group.
func groups(reports []workloadReport) [][]workloadReport {
	var all [][]workloadReport
	place := map[string]int{}
	for _, report := range reports {
		findings := ""
		for _, f := range report.Findings {
			findings += fmt.Sprint(f.OfSeveral())
		}
		i, known := place[findings]
		if !known {
			i = len(all)
			place[findings] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], report)
	}
	return all
}

// names returns the workloads with findings as KIND/NAME.
func (r *result) names() string {
	var text strings.Builder
	for _, workload := range r.Workloads {
		text.WriteString(safetext.Escape(strings.ToLower(workload.Kind)+"/"+workload.Name) + "\n")
	}
	return text.String()
}

// name identifies the object in each run.
func (w workloadReport) name() string {
	// The manifests as a whole have no name.
	name := strings.TrimSuffix(w.Kind+" "+path.Join(w.Namespace, w.Name), " ")
	if w.Path != "" {
		name += " " + w.Path
	}
	return name
}

func (w workloadReport) inFile() string {
	if w.File == "" {
		return ""
	}
	return " (" + w.File + ")"
}

// title is the name with the file or the pods.
func (w workloadReport) title() string {
	if len(w.Pods) > 0 && w.Pods[0] != w.Name {
		return fmt.Sprintf("%s (pods: %s)", w.name(), safetext.List(w.Pods, maxNamed, ", "))
	}
	return w.name() + w.inFile()
}

func (r *result) summaryLine(p *output.Printer) {
	checked := count(r.Summary.CheckedWorkloads, "workload", "workloads")
	if r.Summary.CheckedWorkloads == 0 {
		checked = count(r.Summary.CheckedPolicies, "policy", "policies")
	}
	unchecked := ""
	if len(r.Objects) > 0 {
		unchecked = "; not checked: " + count(len(r.Objects), "object", "objects")
	}
	switch {
	case r.Summary.CheckedWorkloads+r.Summary.CheckedPolicies == 0:
		p.Line("No Jobs, CronJobs or pods with restartPolicy Never or OnFailure found%s", unchecked)
	case len(r.Workloads) > 0:
		p.Line("Checked %s: %s%s", checked, count(len(r.Workloads), "has findings", "have findings"), unchecked)
	case len(r.Policies) > 0:
		p.Line("Checked %s: only policies have findings%s", checked, unchecked)
	default:
		p.Line("Checked %s: no findings%s", checked, unchecked)
	}
}

// count returns the number with the singular or the plural.
func count(number int, one, many string) string {
	if number == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", number, many)
}

func (o *options) live(cmd *cobra.Command) (*result, error) {
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	s, namespace, err := o.connection.Open(cmd.Context(), o.now(), cmd.Flags(), o.allNamespaces)
	if err != nil {
		return nil, err
	}
	l := &linter{Source: s, selector: selector, result: newResult(), seenOwners: sets.New[types.UID]()}
	err = l.run(cmd.Context(), namespace)
	l.result.Notes = s.Notes()
	return l.result, err
}

// linter checks a cluster. Injected containers are in pods only, so it checks the templates of Jobs and CronJobs without
// pods only.
type linter struct {
	*source.Source
	selector   labels.Selector
	result     *result
	seenOwners sets.Set[types.UID] // owners of checked pods and Jobs
}

func (l *linter) run(ctx context.Context, namespace string) error {
	var jobs batchv1.JobList
	if err := l.Client.List(ctx, &jobs, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		l.KnownJobs[jobs.Items[i].UID] = &jobs.Items[i]
	}
	pods, err := l.UnfinishedPods(ctx, namespace)
	if err != nil {
		return err
	}
	for i := range pods {
		if err := l.pod(ctx, &pods[i]); err != nil {
			return err
		}
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if source.FinalCondition(job) != nil {
			continue
		}
		if owner := metav1.GetControllerOf(job); owner != nil {
			l.seenOwners.Insert(owner.UID)
		}
		if err := l.template(ctx, job, source.OfJob(job)); err != nil {
			return err
		}
	}
	var crons batchv1.CronJobList
	if err := l.Client.List(ctx, &crons, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list CronJobs: %w", err)
	}
	for i := range crons.Items {
		if err := l.template(ctx, &crons.Items[i], source.OfCronJob(&crons.Items[i])); err != nil {
			return err
		}
	}
	return nil
}

func (l *linter) pod(ctx context.Context, pod *corev1.Pod) error {
	owner, selected := ownerOf(pod, "Pod"), l.selects(pod)
	if controller := metav1.GetControllerOf(pod); controller != nil {
		l.seenOwners.Insert(controller.UID)
		if job := l.KnownJobs[controller.UID]; job != nil {
			owner, selected = ownerOf(job, "Job"), selected || l.selects(job)
		}
	}
	if !selected {
		return nil
	}
	input, err := l.Pod(ctx, pod)
	if err != nil {
		return err
	}
	l.result.addOwned(owner, pod.Name, l.Explain(input))
	return nil
}

// ownerOf returns the controller of the object, or the object itself. Pods without a controller whose names are generated count as one.
func ownerOf(object client.Object, kind string) workloadReport {
	name := object.GetName()
	if generated := object.GetGenerateName(); kind == "Pod" && generated != "" {
		name = generated + "*"
	}
	if controller := metav1.GetControllerOf(object); controller != nil {
		kind, name = controller.Kind, controller.Name
	}
	return workloadReport{Kind: kind, Namespace: object.GetNamespace(), Name: name}
}

func (l *linter) selects(object client.Object) bool {
	return l.selector.Matches(labels.Set(object.GetLabels()))
}

// template checks the template of an object, unless its pods or Jobs were checked.
func (l *linter) template(ctx context.Context, object client.Object, template explain.Pod) error {
	if l.seenOwners.Has(object.GetUID()) || !l.selects(object) {
		return nil
	}
	pod, err := l.WithPolicies(ctx, template)
	if err != nil {
		return err
	}
	l.result.addOwned(ownerOf(object, template.Kind), "", l.Explain(pod))
	return nil
}
