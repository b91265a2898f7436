// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/internal/cli/output"
	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
)

// formatKustomize writes a component of kustomize. It requires --native.
const formatKustomize = "kustomize"

// nativeResult is the outcome of --native. Its JSON form is part of the versioned output.
type nativeResult struct {
	output.Header
	Summary   nativeSummary          `json:"summary"`
	Workloads []explain.NativeReport `json:"workloads"`
	// Policies has the policies of manifests that the API server would reject.
	Policies []explain.PolicyReport `json:"policies,omitempty"`
	// Notes say what was assumed, and what was left out.
	Notes []string `json:"notes,omitempty"`
	// manifests has the manifest of each workload, or nil if it cannot be written.
	manifests []*unstructured.Unstructured
}

// nativeSummary counts the workloads and the findings.
type nativeSummary struct {
	CheckedWorkloads    int `json:"checkedWorkloads"`
	ConvertingWorkloads int `json:"convertingWorkloads"`
	explain.Summary
}

func (o *options) runNative(cmd *cobra.Command, arguments []string) error {
	if len(arguments) > 0 || o.watch {
		return errors.New("--native cannot be combined with TYPE or --watch; it reads a namespace, or manifests with -f or -k")
	}
	r := &nativeResult{Header: output.NewHeader("NativeReport"), Workloads: []explain.NativeReport{}}
	gather := o.nativeLive
	if o.files.Given() {
		gather = o.nativeOffline
	}
	s, err := gather(cmd, r)
	o.program.Progress.Clear()
	if err != nil {
		return err
	}
	r.Notes = append(r.Notes, s.Notes()...)
	if o.format == output.FormatTable || o.format == output.FormatJSON {
		r.Notes = append(r.Notes, "the operator's admission policies are assumed to be installed; run: "+o.program.Name+" check")
	}
	r.noteDryRun()
	findings := r.summarize()
	if err := r.write(cmd, o.format); err != nil {
		return err
	}
	return o.failOn.Judge(explain.Worst(findings))
}

func (o *options) nativeOffline(cmd *cobra.Command, r *nativeResult) (*source.Source, error) {
	manifests, err := o.files.Read(cmd.Context(), cmd.InOrStdin(), cmp.Or(*o.connection.Namespace, "default"))
	if err != nil {
		return nil, err
	}
	s, err := manifests.Source(o.program, cmd.Flags())
	if err != nil {
		return nil, err
	}
	for _, rejected := range manifests.Rejected {
		r.Policies = append(r.Policies, explain.RejectedPolicy(rejected.Policy, rejected.Errors))
	}
	for _, manifest := range manifests.Objects {
		pod, ok, err := s.Manifest(cmd.Context(), manifest)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		report, raw := s.DescribeConversion(pod), manifest.Raw
		if !explain.IsJobType(pod.Pod) && len(report.Containers) == 0 {
			continue // nothing declares a sidecar in a pod that does not end
		}
		if !pod.Template {
			raw = nil // it is a pod of a cluster, which admission has changed
		}
		r.add(report, manifest.File, raw)
	}
	return s, nil
}

func (o *options) nativeLive(cmd *cobra.Command, r *nativeResult) (*source.Source, error) {
	cluster, s, namespace, err := o.connection.Open(cmd.Context(), o.program, cmd.Flags(), o.allNamespaces)
	if err != nil {
		return nil, err
	}
	l := &live{Live: cluster, source: s, namespace: namespace}
	return s, l.native(cmd.Context(), r)
}

// native adds every workload of the namespace.
func (l *live) native(ctx context.Context, r *nativeResult) error {
	for _, step := range []func(context.Context, *nativeResult) error{l.nativeCronJobs, l.nativeJobs, l.nativePods} {
		if err := step(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (l *live) nativeCronJobs(ctx context.Context, r *nativeResult) error {
	var crons batchv1.CronJobList
	if err := l.Client.List(ctx, &crons, client.InNamespace(l.namespace)); err != nil {
		return fmt.Errorf("list CronJobs: %w", err)
	}
	for i := range crons.Items {
		manifest, err := manifestOfCronJob(&crons.Items[i])
		if err != nil {
			return err
		}
		if err := l.nativeTemplate(ctx, r, source.OfCronJob(&crons.Items[i]), &crons.Items[i], manifest); err != nil {
			return err
		}
	}
	return nil
}

// nativeJobs adds the unfinished Jobs without those of CronJobs.
func (l *live) nativeJobs(ctx context.Context, r *nativeResult) error {
	var jobs batchv1.JobList
	if err := l.Client.List(ctx, &jobs, client.InNamespace(l.namespace)); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if owner := metav1.GetControllerOf(job); source.FinalCondition(job) != nil || owner != nil && owner.Kind == "CronJob" {
			continue
		}
		manifest, err := manifestOfJob(job)
		if err != nil {
			return err
		}
		if err := l.nativeTemplate(ctx, r, source.OfJob(job), job, manifest); err != nil {
			return err
		}
	}
	return nil
}

// nativeTemplate adds a workload with a template. A controller would not keep a changed manifest.
func (l *live) nativeTemplate(ctx context.Context, r *nativeResult, template source.Template, object metav1.Object, manifest *unstructured.Unstructured) error {
	pod, err := l.source.Template(ctx, template)
	if err != nil {
		return err
	}
	if metav1.GetControllerOf(object) != nil {
		manifest = nil
	}
	r.add(l.source.DescribeConversion(pod), "", manifest)
	return nil
}

// nativePods adds the unfinished pods without those of Jobs.
func (l *live) nativePods(ctx context.Context, r *nativeResult) error {
	pods, err := l.UnfinishedPods(ctx, l.namespace)
	if err != nil {
		return err
	}
	for i := range pods {
		if owner := metav1.GetControllerOf(&pods[i]); owner != nil && owner.Kind == "Job" {
			continue
		}
		pod, err := l.source.Pod(ctx, &pods[i], nil)
		if err != nil {
			return err
		}
		r.add(l.source.DescribeConversion(pod), "", nil)
	}
	return nil
}

// add adds a workload. Its manifest is nil if it cannot be written.
func (r *nativeResult) add(report explain.NativeReport, file string, manifest *unstructured.Unstructured) {
	report.File = file
	r.Workloads, r.manifests = append(r.Workloads, report), append(r.manifests, manifest)
}

// noteDryRun names the policies that were treated as if they were enforced.
func (r *nativeResult) noteDryRun() {
	var names []string
	for _, workload := range r.Workloads {
		for _, container := range workload.Containers {
			if container.DryRun && !slices.Contains(names, container.By) {
				names = append(names, container.By)
			}
		}
	}
	if len(names) > 0 {
		r.Notes = append(r.Notes, "reported as if it were enforced, although its enforcement is DryRun: "+strings.Join(names, ", "))
	}
}

// summarize counts, and returns the findings.
func (r *nativeResult) summarize() []explain.Finding {
	var all []explain.Finding
	for _, policy := range r.Policies {
		all = append(all, policy.Findings...)
	}
	for _, workload := range r.Workloads {
		all = append(all, workload.Findings...)
		if workload.Converts {
			r.Summary.ConvertingWorkloads++
		}
	}
	r.Summary.CheckedWorkloads, r.Summary.Summary = len(r.Workloads), explain.Summarize(all)
	return all
}

// write writes the report, or the converted manifests.
func (r *nativeResult) write(cmd *cobra.Command, format output.Format) error {
	switch format {
	case output.FormatYAML:
		return r.writeManifests(cmd)
	case formatKustomize:
		return r.writeComponent(cmd)
	}
	return format.Write(cmd.OutOrStdout(), r, r.text)
}

// writeManifests writes the manifests of the workloads that convert, with native sidecars.
func (r *nativeResult) writeManifests(cmd *cobra.Command) error {
	separator := ""
	for i := range r.Workloads {
		if !r.canWrite(i) {
			continue
		}
		converted, err := withNativeSidecars(r.manifests[i], r.Workloads[i].Sidecars())
		if err != nil {
			return err
		}
		if _, err := fmt.Fprint(cmd.OutOrStdout(), separator); err != nil {
			return err
		}
		separator = "---\n"
		if err := output.Format(output.FormatYAML).Write(cmd.OutOrStdout(), converted.Object, nil); err != nil {
			return err
		}
	}
	return r.writeNotes(cmd)
}

// writeComponent writes a component of kustomize with a patch for each workload that converts.
func (r *nativeResult) writeComponent(cmd *cobra.Command) error {
	result := newComponent()
	for i, manifest := range r.manifests {
		if !r.canWrite(i) {
			continue
		}
		if manifest.GetName() == "" {
			r.Notes = append(r.Notes, notWritten(&r.Workloads[i])+": kustomize selects objects by name")
			continue
		}
		if err := result.add(manifest, r.Workloads[i].Sidecars()); err != nil {
			return err
		}
	}
	if err := output.Format(output.FormatYAML).Write(cmd.OutOrStdout(), result, nil); err != nil {
		return err
	}
	return r.writeNotes(cmd)
}

// canWrite reports whether the workload converts and has a manifest. It adds a note if only the manifest is missing.
func (r *nativeResult) canWrite(i int) bool {
	workload := &r.Workloads[i]
	if workload.Converts && r.manifests[i] == nil {
		r.Notes = append(r.Notes, notWritten(workload)+": it contains what others have added; use -f with its own manifest, or change what creates it")
	}
	return workload.Converts && r.manifests[i] != nil
}

func notWritten(workload *explain.NativeReport) string {
	return fmt.Sprintf("not written: %s %s/%s", workload.Kind, workload.Namespace, workload.Name)
}

// writeNotes writes to the standard error what is not part of the manifests.
func (r *nativeResult) writeNotes(cmd *cobra.Command) error {
	return output.Format(output.FormatTable).Write(cmd.ErrOrStderr(), nil, func(p *output.Printer) {
		r.writePolicies(p)
		for _, note := range r.Notes {
			p.Note(note)
		}
	})
}

func (r *nativeResult) writePolicies(p *output.Printer) {
	for i := range r.Policies {
		writePolicy(p, &r.Policies[i])
		p.Line("")
	}
}

func (r *nativeResult) text(p *output.Printer) {
	r.writePolicies(p)
	for i := range r.Workloads {
		writeNative(p, &r.Workloads[i])
	}
	for _, note := range r.Notes {
		p.Note(note)
	}
	workloads := "workloads"
	if r.Summary.CheckedWorkloads == 1 {
		workloads = "workload"
	}
	p.Line("Checked %d %s: %d with native sidecars after conversion", r.Summary.CheckedWorkloads, workloads, r.Summary.ConvertingWorkloads)
}

func writeNative(p *output.Printer, r *explain.NativeReport) {
	name := fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
	if r.File != "" {
		name += " (" + r.File + ")"
	}
	if len(r.Containers) == 0 {
		name += ": no declared sidecar"
	}
	p.StyledLine(output.Bold, name)
	var rows [][]output.Cell
	for _, c := range r.Containers {
		converts := output.Cell{Text: "no"}
		if c.Converts {
			converts = output.Cell{Text: "yes", Style: output.Green}
		}
		by := c.By
		if c.DryRun {
			by += " (DryRun)"
		}
		rows = append(rows, []output.Cell{{Text: c.Name}, converts, {Text: by}, {Text: string(c.Reason)}})
	}
	if len(rows) > 0 {
		p.Table([]string{"SIDECAR", "CONVERTS", "REQUESTED BY", "REASON"}, rows)
	}
	p.Findings(r.Findings)
	p.Line("")
}
