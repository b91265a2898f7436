// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

func (o *options) offline(cmd *cobra.Command) (*result, error) {
	o.files.Correct = true
	manifests, err := o.files.Read(cmd.Context(), cmd.InOrStdin(), cmp.Or(*o.connection.Namespace, "default"))
	if err != nil {
		return nil, err
	}
	s, err := manifests.Source(o.now, cmd.Flags())
	if err != nil {
		return nil, err
	}
	r := newResult()
	r.err = manifests.Err
	for _, rejected := range manifests.Rejected {
		r.addPolicy(explain.RejectedPolicy(rejected.Policy(), rejected.Mistakes), rejected.Place)
	}
	l := &fileLinter{Source: s, ignoredKinds: o.ignoredKinds, result: r, assumed: sets.New[string]()}
	for _, manifest := range manifests.Objects {
		if err := l.object(cmd.Context(), manifest); err != nil {
			return nil, err
		}
	}
	r.Summary.UncheckedObjects = len(r.Objects)
	if r.Summary.CheckedWorkloads+r.Summary.CheckedPolicies+len(r.Objects) == 0 {
		nothing := explain.NotChecked("the manifests contain no policy, and no workload whose pods finish")
		nothing.Hint = "check that the right manifests were given"
		r.Findings = append(r.Findings, nothing)
	}
	r.Notes = l.Notes()
	if names := sets.List(l.assumed); len(names) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("not in the manifests: namespace %s; sidecars that injectors add because of its labels or annotations are not seen",
			strings.Join(names, ", ")))
	}
	return r, nil
}

// fileLinter checks manifests.
type fileLinter struct {
	*source.Source
	ignoredKinds []string
	result       *result
	// assumed are the namespaces of workloads that are not in the manifests.
	assumed sets.Set[string]
}

func (l *fileLinter) object(ctx context.Context, manifest source.Manifest) error {
	if policy, ok := source.PolicyOf(manifest.Object); ok {
		l.result.addPolicy(explain.DescribePolicy(policy, nil, l.Settings.Decisions, l.Cluster), manifest.Place)
		return nil
	}
	kind := manifest.Raw.GroupVersionKind().GroupKind()
	other := manifest.Object == nil && len(manifest.Mistakes) == 0 // of a kind that is not decoded
	ignored := slices.ContainsFunc(l.ignoredKinds, func(name string) bool {
		return strings.EqualFold(name, kind.String()) || strings.EqualFold(name, kind.Kind)
	})
	if ignored || other && source.MakesNoFinishingPods(kind) {
		return nil
	}
	workload, err := l.Workload(ctx, manifest)
	if err != nil {
		return err
	}
	findings := workload.Remarks
	for _, template := range workload.Templates {
		if template.NoRestartPolicy {
			findings = append(findings, explain.LeftAlone(template.Path+".spec.restartPolicy is not set: its pods are assumed to run forever"))
		}
		l.check(template, manifest.Place)
	}
	if len(workload.Templates) == 0 {
		findings = append(findings, explain.InvalidManifest(manifest.Mistakes)...)
	}
	if other && len(workload.Templates)+len(findings) == 0 {
		findings = append(findings, explain.NotChecked("no pod template was found in it"))
	}
	if len(findings) > 0 {
		object := manifest.Raw
		name := cmp.Or(object.GetName(), object.GetGenerateName()+"*")
		l.result.Objects = append(l.result.Objects, workloadReport{object.GetKind(), object.GetNamespace(), name, manifest.Place, "", nil, findings})
	}
	return nil
}

// check checks the pods of a workload. A pod with restartPolicy Always matters only if something declares a sidecar.
func (l *fileLinter) check(template source.WorkloadTemplate, place source.Place) {
	r, report, pod := l.result, l.Explain(template.Pod), template.Pod.Pod
	if !plan.IsJobType(pod) && len(report.Findings)+len(template.Mistakes) == 0 {
		return
	}
	r.Summary.CheckedWorkloads++
	r.propose(report)
	if findings := slices.Concat(explain.InvalidManifest(template.Mistakes), explain.Lint(report.Findings)); len(findings) > 0 {
		r.Workloads = append(r.Workloads, workloadReport{report.Kind, report.Namespace, report.Name, place, template.Path, nil, findings})
	}
	if l.Assumed(pod.Namespace) {
		l.assumed.Insert(pod.Namespace)
	}
}
