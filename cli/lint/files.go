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
	l := &fileLinter{Source: s, manifests: manifests, ignoredKinds: o.ignoredKinds, result: newResult(),
		assumed: sets.New[string]()}
	return l.result, l.run(cmd.Context())
}

// fileLinter checks manifests.
type fileLinter struct {
	*source.Source
	manifests    source.Manifests
	ignoredKinds []string
	result       *result
	// assumed are the namespaces of workloads that are not in the manifests.
	assumed sets.Set[string]
}

func (l *fileLinter) run(ctx context.Context) error {
	for _, rejected := range l.manifests.Rejected {
		l.result.addPolicy(explain.RejectedPolicy(rejected.Policy, rejected.Errors), location{File: rejected.File})
	}
	for _, manifest := range l.manifests.Objects {
		if err := l.object(ctx, manifest); err != nil {
			return err
		}
	}
	for _, manifest := range l.manifests.Others {
		if err := l.other(ctx, manifest); err != nil {
			return err
		}
	}
	r := l.result
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
	return nil
}

// object checks an object that affects decisions.
func (l *fileLinter) object(ctx context.Context, manifest source.Manifest) error {
	if policy, ok := source.PolicyOf(manifest.Object); ok {
		report := explain.DescribePolicy(policy, nil, l.Settings.Decisions)
		l.result.addPolicy(report, location{File: manifest.File})
		return nil
	}
	pod, ok, err := l.Manifest(ctx, manifest)
	if err != nil {
		return err
	}
	if ok {
		l.check(pod, location{manifest.File, "", manifest.Position}, explain.InvalidManifest(manifest.Mistakes))
	} else {
		l.addObject(manifest, explain.InvalidManifest(manifest.Mistakes))
	}
	return nil
}

// check checks the pods of a workload. A pod with restartPolicy Always matters only if something declares a sidecar.
func (l *fileLinter) check(pod explain.Pod, at location, further []explain.Finding) {
	report := l.Explain(pod)
	if !explain.IsJobType(pod.Pod) && len(report.Findings)+len(further) == 0 {
		return
	}
	l.result.add(report, at, further...)
	if l.Assumed(pod.Pod.Namespace) {
		l.assumed.Insert(pod.Pod.Namespace)
	}
}

// other checks an object of another kind.
func (l *fileLinter) other(ctx context.Context, manifest source.Manifest) error {
	kind := manifest.Raw.GroupVersionKind().GroupKind()
	if source.MakesNoFinishingPods(kind) || slices.ContainsFunc(l.ignoredKinds, func(name string) bool { return strings.EqualFold(name, kind.String()) }) {
		return nil
	}
	workload := source.ReadWorkload(manifest.Raw)
	findings := workload.Remarks
	for _, template := range workload.Templates {
		pod, err := l.Template(ctx, template.Pod)
		if err != nil {
			return err
		}
		if template.NoRestartPolicy {
			findings = append(findings, explain.LeftAlone(template.Path+".spec.restartPolicy is not set: its pods are assumed to run forever"))
		}
		l.check(pod, location{manifest.File, template.Path, manifest.Position}, explain.InvalidManifest(template.Mistakes))
	}
	for _, gap := range workload.Gaps {
		findings = append(findings, explain.NotChecked(gap))
	}
	if len(workload.Templates)+len(workload.Gaps)+len(workload.Remarks) == 0 {
		findings = append(findings, explain.NotChecked("no pod template was found in it"))
	}
	l.addObject(manifest, findings)
	return nil
}

// addObject adds findings on an object that was not checked entirely.
func (l *fileLinter) addObject(manifest source.Manifest, findings []explain.Finding) {
	if len(findings) == 0 {
		return
	}
	object := manifest.Raw
	l.result.Objects = append(l.result.Objects, workloadReport{
		object.GetKind(), object.GetNamespace(), cmp.Or(object.GetName(), object.GetGenerateName()+"*"),
		location{manifest.File, "", manifest.Position}, findings,
	})
}
