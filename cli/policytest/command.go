// SPDX-License-Identifier: Apache-2.0

// Package policytest is the subcommand that compares what the operator decides about the pods of manifests with expectations in
// test files. It makes no decisions of its own, and connects to no cluster.
package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	command := &cobra.Command{
		Use:   "test FILE...",
		Short: "Tests policies: which containers are sidecars, and how they end",
		Long: `Tests policies. A test file names policies and workloads, and says which containers are sidecars, with which settings, by
which mode they end on a kind of node, and what explain finds. The command uses the code of the operator. It connects to no
cluster.

Only the expectations that a case names are compared. docs/guides/testing-policies.md describes the files.

The exit code is 0 if every case passed, 1 if a case failed, and 2 on errors, such as an invalid file.`,
		Example: fmt.Sprintf("  %s test policies/*_test.yaml", settings.PluginName),
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, files []string) error { return test(cmd, now, files) },
	}
	output.GroupFlags(command, nil, nil)
	return command
}

func test(cmd *cobra.Command, now func() time.Time, files []string) error {
	var passed, failed, invalid int
	err := output.FormatTable.Write(cmd.OutOrStdout(), nil, func(p *output.Printer) {
		for _, path := range files {
			p.Line("%s", path)
			results, err := run(cmd.Context(), now, path)
			if err != nil {
				invalid++
				for text := range strings.Lines(err.Error()) {
					p.Item("ERROR", text, "")
				}
			}
			for _, r := range results {
				if len(r.differences) == 0 {
					passed++
					p.Item("PASS", r.name, "")
					continue
				}
				failed++
				p.Item("FAIL", r.name, "")
				var rows [][]string
				for _, d := range r.differences {
					rows = append(rows, []string{"        " + d[0], d[1], d[2]})
				}
				p.Table([]string{"        FIELD", "WANT", "GOT"}, rows)
			}
		}
		p.Line("Cases: %d passed, %d failed. Invalid files: %d", passed, failed, invalid)
	})
	switch {
	case err != nil:
		return err
	case invalid > 0:
		return fmt.Errorf("%d of %d test files invalid", invalid, len(files))
	case failed > 0:
		return output.ErrProblem
	}
	return nil
}

// run runs the cases of a file. If one of them is invalid, the file is.
func run(ctx context.Context, now func() time.Time, path string) ([]result, error) {
	f, err := load(ctx, path)
	if err != nil {
		return nil, err
	}
	var results []result
	for i, c := range f.cases {
		r, err := f.run(ctx, now, c)
		if err != nil {
			return nil, fmt.Errorf("cases[%d].%w", i, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// result is the outcome of a case: the field, the expected value and the value of each expectation that does not hold.
type result struct {
	name        string
	differences [][3]string
}

// run runs a case. An error starts with the field of the case.
func (f *testFile) run(ctx context.Context, now func() time.Time, c testCase) (result, error) {
	r := result{name: c.Name}
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
			r.differences = append(r.differences, [3]string{"findings", want, cmp.Or(strings.Join(found, ", "), none)})
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
				r.differences = append(r.differences, [3]string{"containers." + name + "." + field, want, cmp.Or(got, none)})
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
	manifest, err := f.workload(c.Workload)
	var workload source.Workload
	if err == nil {
		workload, err = from.Workload(ctx, manifest)
	}
	if err != nil {
		return explain.Report{}, fmt.Errorf("workload: %w", err)
	}
	pod := workload.Templates[0].Pod
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

// workload returns the Pod, Job or CronJob KIND/NAME or KIND/NAMESPACE/NAME, or the only one. A pod of a cluster loses its status:
// the cases are about its spec.
func (f *testFile) workload(name string) (source.Manifest, error) {
	var names []string
	var found []source.Manifest
	for _, manifest := range f.manifests.Objects {
		kind := manifest.Raw.GetKind()
		if !slices.Contains([]string{"Pod", "Job", "CronJob"}, kind) {
			continue
		}
		long := kind + "/" + manifest.Object.GetNamespace() + "/" + manifest.Object.GetName()
		names = append(names, long)
		if name == "" || name == long || name == kind+"/"+manifest.Object.GetName() {
			found = append(found, manifest)
		}
	}
	if len(found) != 1 {
		return source.Manifest{}, fmt.Errorf("%d match %q; set it to one of: %s", len(found), name, cmp.Or(strings.Join(names, ", "), none))
	}
	if pod, ok := found[0].Object.(*corev1.Pod); ok {
		pod = pod.DeepCopy()
		pod.Status = corev1.PodStatus{}
		found[0].Object = pod
	}
	return found[0], nil
}
