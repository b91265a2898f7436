// SPDX-License-Identifier: Apache-2.0

// Package policytest is the subcommand that compares what the operator decides about the pods of manifests with expectations in
// test files. It makes no decisions of its own, and connects to no cluster.
package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
)

// none is the value of a field without a value, such as no mode.
const none = "None"

// New returns the subcommand; now tells the time.
func New(now func() time.Time) *cobra.Command {
	o := &options{now: now}
	command := &cobra.Command{
		Use:   "test (FILE | DIRECTORY)...",
		Short: "Tests policies: which containers are sidecars, and how they end",
		Long: `Tests policies. A test file names policies and workloads, and says which containers are sidecars, with which settings, by
which mode they end on a kind of node, and what explain finds. The command uses the code of the operator. It connects to no
cluster. Workloads are of the kinds that lint reads, such as CronJob, JobSet and Argo's Workflow.

Only the expectations that a case names are compared. docs/guides/testing-policies.md describes the files. Of a directory, the
files *_test.yaml are read, also those in directories below.

The exit code is 0 if every case passed, 1 if a case failed, and 2 on errors, such as an invalid file.`,
		Example: fmt.Sprintf(`  %[1]s test policies/
  %[1]s test policies/mesh_test.yaml --run='virtual node' -o junit`, settings.PluginName),
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error { return o.test(cmd, paths) },
	}
	output.BindChoice(command, &o.format, "output", "o", "output format: table, json, yaml; junit for CI",
		output.FormatTable, output.FormatJSON, output.FormatYAML, output.FormatJUnit)
	command.Flags().StringVar(&o.only, "run", "", "run only the cases whose name matches the regular expression")
	output.SetHelp(command, nil, nil)
	return command
}

type options struct {
	now    func() time.Time
	format output.Format
	only   string
}

// report is the outcome of the command. Its JSON form is part of the versioned output.
type report struct {
	output.Header
	Summary struct {
		Passed       int `json:"passed"`
		Failed       int `json:"failed"`
		InvalidFiles int `json:"invalidFiles"`
	} `json:"summary"`
	Files []fileReport `json:"files"`
}

// fileReport has the results of a test file. An invalid one has an error, and no cases.
type fileReport struct {
	File  string   `json:"file"`
	Error string   `json:"error,omitempty"`
	Cases []result `json:"cases"`
}

// result is the outcome of a case. It passed without differences.
type result struct {
	Name        string       `json:"name"`
	Differences []difference `json:"differences"`
}

// difference is an expectation that does not hold.
type difference struct {
	Field string `json:"field"`
	Want  string `json:"want"`
	Got   string `json:"got"`
}

func (o *options) test(cmd *cobra.Command, paths []string) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	files, err := testFiles(paths)
	if err != nil {
		return err
	}
	r := &report{Header: output.NewHeader("PolicyTestReport"), Files: []fileReport{}}
	for _, path := range files {
		results, err := run(cmd.Context(), o.now, path, only)
		r.add(path, results, err)
	}
	if o.format == output.FormatJUnit {
		err = output.WriteJUnit(cmd.OutOrStdout(), settings.PluginProgram+" test", r.junit())
	} else {
		err = o.format.Write(cmd.OutOrStdout(), r, r.text)
	}
	switch {
	case err != nil:
		return err
	case r.Summary.InvalidFiles > 0:
		return fmt.Errorf("%d of %d test files invalid", r.Summary.InvalidFiles, len(files))
	case r.Summary.Failed > 0:
		return output.ErrProblem
	case r.Summary.Passed == 0:
		return fmt.Errorf("--run: no case has a name that matches %q", o.only)
	}
	return nil
}

// testFiles returns the files, and the test files in and below the directories.
func testFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() { // reading the file reports the error
			files = append(files, path)
			continue
		}
		before := len(files)
		err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && strings.HasSuffix(file, "_test.yaml") {
				files = append(files, file)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if len(files) == before {
			return nil, fmt.Errorf("%s has no file *_test.yaml", path)
		}
	}
	return files, nil
}

// add adds the results of a file, or why it is invalid.
func (r *report) add(path string, results []result, err error) {
	file := fileReport{File: path, Cases: append([]result{}, results...)}
	if err != nil {
		r.Summary.InvalidFiles++
		file.Error = err.Error()
	}
	for _, result := range results {
		if len(result.Differences) == 0 {
			r.Summary.Passed++
		} else {
			r.Summary.Failed++
		}
	}
	r.Files = append(r.Files, file)
}

func (r *report) text(p *output.Printer) {
	for _, file := range r.Files {
		p.Line("%s", file.File)
		for text := range strings.Lines(file.Error) {
			p.Item("ERROR", text, "")
		}
		for _, result := range file.Cases {
			if len(result.Differences) == 0 {
				p.Item("PASS", result.Name, "")
				continue
			}
			p.Item("FAIL", result.Name, "")
			var rows [][]string
			for _, d := range result.Differences {
				rows = append(rows, []string{"        " + d.Field, d.Want, d.Got})
			}
			p.Table([]string{"        FIELD", "WANT", "GOT"}, rows)
		}
	}
	p.Line("Cases: %d passed, %d failed. Invalid files: %d", r.Summary.Passed, r.Summary.Failed, r.Summary.InvalidFiles)
}

// junit returns a test for each case, in a class for each file.
func (r *report) junit() []output.JUnitCase {
	var cases []output.JUnitCase
	for _, file := range r.Files {
		if file.Error != "" {
			cases = append(cases, output.JUnitCase{Class: file.File, Name: "test file", Errors: []string{file.Error}})
		}
		for _, result := range file.Cases {
			test := output.JUnitCase{Class: file.File, Name: result.Name}
			for _, d := range result.Differences {
				test.Failures = append(test.Failures, fmt.Sprintf("%s: want %s, got %s", d.Field, d.Want, d.Got))
			}
			cases = append(cases, test)
		}
	}
	return cases
}

// run runs the cases of a file whose names match. If one of them is invalid, the file is.
func run(ctx context.Context, now func() time.Time, path string, only *regexp.Regexp) ([]result, error) {
	f, err := load(ctx, path)
	if err != nil {
		return nil, err
	}
	var results []result
	for i, c := range f.cases {
		if !only.MatchString(c.Name) {
			continue
		}
		r, err := f.run(ctx, now, c)
		if err != nil {
			return nil, fmt.Errorf("cases[%d].%w", i, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// run runs a case. An error starts with the field of the case.
func (f *testFile) run(ctx context.Context, now func() time.Time, c testCase) (result, error) {
	r := result{Name: c.Name, Differences: []difference{}}
	report, err := f.explain(ctx, now, c)
	if err != nil {
		return r, err
	}
	var found []string
	for _, finding := range report.Findings {
		found = append(found, string(finding.Reason))
	}
	for _, want := range c.Expect.Findings {
		if !slices.Contains(found, want) {
			r.Differences = append(r.Differences, difference{"findings", want, cmp.Or(strings.Join(found, ", "), none)})
		}
	}
	compared := len(c.Expect.Findings)
	for _, name := range slices.Sorted(maps.Keys(c.Expect.Containers)) {
		i := slices.IndexFunc(report.Containers, func(c explain.Container) bool { return c.Name == name })
		if i < 0 {
			return r, fmt.Errorf("expect.containers.%s: the pod has no such container", name)
		}
		values := valuesOf(report.Containers[i])
		for _, field := range slices.Sorted(maps.Keys(c.Expect.Containers[name])) {
			got, ok := values[field]
			if !ok {
				return r, fmt.Errorf("expect.containers.%s.%s: unknown field; docs/guides/testing-policies.md lists the fields", name, field)
			}
			if want := fmt.Sprint(c.Expect.Containers[name][field]); want != cmp.Or(got, none) {
				r.Differences = append(r.Differences, difference{"containers." + name + "." + field, want, cmp.Or(got, none)})
			}
			compared++
		}
	}
	if compared == 0 {
		return r, errors.New("expect: names nothing to compare")
	}
	return r, nil
}

// valuesOf returns the values of a container by the field of a test file. Only a sidecar has settings.
func valuesOf(container explain.Container) map[string]string {
	values := map[string]string{
		"role": string(container.Role), "declaredBy": container.DeclaredBy, "mode": "", "image": "", "exitCodePolicy": "", "drainSeconds": "", "terminationOrder": "",
	}
	if s := container.Settings; s != nil {
		values["image"], values["exitCodePolicy"], values["drainSeconds"] = s.Image.Value, string(s.ExitCodePolicy.Value), fmt.Sprint(s.DrainSeconds.Value)
		values["terminationOrder"] = fmt.Sprint(s.TerminationOrder.Value)
		// The pod has one kind of node, so there is one entry.
		if modes := s.Nodes[0].Modes; len(modes) > 0 {
			values["mode"] = string(modes[0])
		}
	}
	return values
}

// explain returns the report on the pod of a case, before the pod starts. An error starts with the field.
func (f *testFile) explain(ctx context.Context, now func() time.Time, c testCase) (explain.Report, error) {
	flags := pflag.NewFlagSet(settings.Name, pflag.ContinueOnError)
	settings.BindDecisions(flags)
	err := flags.Parse(slices.Concat(f.Cluster.OperatorFlags, c.Cluster.OperatorFlags))
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	var from *source.Source
	if err == nil {
		from, err = f.manifests.Source(now, flags)
	}
	if err != nil {
		return explain.Report{}, fmt.Errorf("cluster.operatorFlags: %w", err)
	}
	at, err := f.workload(c.Workload)
	var workload source.Workload
	if err == nil {
		workload, err = from.Workload(ctx, at.manifest)
	}
	if err == nil && len(workload.Templates[at.template].Mistakes) > 0 {
		err = errors.New(strings.Join(workload.Templates[at.template].Mistakes, "; "))
	}
	if err != nil {
		return explain.Report{}, fmt.Errorf("workload: %w", err)
	}
	pod := workload.Templates[at.template].Pod
	pod.Node = plan.NodeKind(cmp.Or(c.Node, string(plan.NodeReal)))
	if !slices.Contains([]plan.NodeKind{plan.NodeReal, plan.NodeDaemonless, plan.NodeVirtual}, pod.Node) {
		return explain.Report{}, fmt.Errorf("node: is %q; it must be Real, Daemonless or Virtual", c.Node)
	}
	if *cmp.Or(c.Cluster.EnforceDryRun, f.Cluster.EnforceDryRun, new(false)) {
		for i := range pod.Policies {
			enforced := *pod.Policies[i].Spec
			enforced.Enforcement = v1alpha1.EnforcementEnforce
			pod.Policies[i].Spec = &enforced
		}
	}
	kruise := cmp.Or(c.Cluster.OpenKruise, f.Cluster.OpenKruise, new(false))
	return explain.Explain(pod, from.Settings.Decisions, explain.Cluster{Kruise: kruise}, now()), nil
}

// candidate is a pod, or a pod template of an object.
type candidate struct {
	// long and short are names of it, with and without its namespace.
	long, short string
	manifest    source.Manifest
	template    int
}

// findWorkloads lists the pods and pod templates of the manifests. A pod of a cluster loses its status: the cases are about its spec.
func (f *testFile) findWorkloads() {
	for _, manifest := range f.manifests.Objects {
		if pod, ok := manifest.Object.(*corev1.Pod); ok {
			pod.Status = corev1.PodStatus{}
		}
		kind, namespace := manifest.Raw.GetKind(), manifest.Raw.GetNamespace()
		name := cmp.Or(manifest.Raw.GetName(), manifest.Raw.GetGenerateName()+"*")
		templates := source.ReadWorkload(manifest).Templates
		for i, template := range templates {
			name := name
			if len(templates) > 1 {
				name += " " + template.Path
			}
			f.workloads = append(f.workloads, candidate{kind + "/" + namespace + "/" + name, kind + "/" + name, manifest, i})
		}
	}
}

// workload returns the workload KIND/NAME or KIND/NAMESPACE/NAME, or the only one. Where an object has several pod templates, the path
// of one follows, after a space.
func (f *testFile) workload(name string) (candidate, error) {
	var names []string
	var found []candidate
	for _, c := range f.workloads {
		names = append(names, c.long)
		if name == "" || name == c.long || name == c.short {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		return candidate{}, fmt.Errorf("%d match %q; set it to one of: %s", len(found), name, cmp.Or(strings.Join(names, ", "), none))
	}
	return found[0], nil
}
