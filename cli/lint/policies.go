// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// formatPolicy prints the policies that declare what was found.
const formatPolicy output.Format = "policy"

const (
	// proposedName is the name of the policies that lint prints. A number follows after the first of a namespace.
	proposedName = "undeclared-sidecars"
	// maxSidecars is the most that a policy can list.
	maxSidecars = 32
)

// nameOf returns the name of one of the policies of a namespace, which count from 1.
func nameOf(number int) string {
	if number == 1 {
		return proposedName
	}
	return fmt.Sprintf("%s-%d", proposedName, number)
}

// proposal is what the policies of a namespace should declare.
type proposal struct {
	// workloads counts the workloads by the name of the sidecar.
	workloads map[string]int
	// injected is true if a webhook adds one of the sidecars.
	injected bool
	// enforced has the names of policies of earlier runs that somebody has enforced. They stay as they are.
	enforced map[string]bool
	// earlier is the first other policy of earlier runs with the sidecars of all, or nil.
	earlier *v1alpha1.PolicySpec
}

// newProposal returns an empty proposal for the namespace of the report, which has the policies of earlier runs.
func newProposal(report explain.Report) *proposal {
	p := &proposal{workloads: map[string]int{}, enforced: map[string]bool{}}
	for number := 1; ; number++ {
		name := nameOf(number)
		policy := report.Policy(resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: report.Namespace, Name: name})
		switch {
		case policy == nil:
			return p
		case policy.Spec.Enforcement.Acts():
			p.enforced[name] = true
		case p.earlier == nil:
			p.earlier = policy.Spec.DeepCopy()
		default:
			p.earlier.Sidecars = append(p.earlier.Sidecars, policy.Spec.Sidecars...)
		}
	}
}

// propose adds the undeclared sidecars of a workload to the proposal for its namespace. It leaves out names that the API server would
// reject.
func (r *result) propose(report explain.Report) {
	for _, f := range report.Findings {
		if f.Reason != v1alpha1.ReasonMayHang || len(validation.IsDNS1123Label(f.Container))+len(validation.IsDNS1123Label(report.Namespace)) > 0 {
			continue
		}
		p := r.proposals[report.Namespace]
		if p == nil {
			p = newProposal(report)
			r.proposals[report.Namespace] = p
		}
		p.workloads[f.Container]++
		p.injected = p.injected || !slices.ContainsFunc(report.Containers, func(c explain.Container) bool { return c.Name == f.Container })
	}
}

// policies returns one or more policies for each namespace, with the reasons in comments.
func (r *result) policies() (string, error) {
	var text strings.Builder
	for _, namespace := range slices.Sorted(maps.Keys(r.proposals)) {
		p := r.proposals[namespace]
		spec := cmp.Or(p.earlier, &v1alpha1.PolicySpec{Enforcement: v1alpha1.EnforcementDryRun})
		sidecars := spec.Sidecars
		text.WriteString("---\n")
		for _, name := range slices.Sorted(maps.Keys(p.workloads)) {
			fmt.Fprintf(&text, "# %s in %s\n", name, count(p.workloads[name], "workload", "workloads"))
			if !slices.ContainsFunc(sidecars, func(s v1alpha1.Sidecar) bool { return s.Name == name }) {
				sidecars = append(sidecars, v1alpha1.Sidecar{Name: name})
			}
		}
		if p.injected {
			text.WriteString("# includeInjected: true instead declares whatever webhooks inject; it needs the operator's component include-injected\n")
		}
		number, separator := 0, ""
		for spec.Sidecars = range slices.Chunk(sidecars, maxSidecars) {
			number++
			for p.enforced[nameOf(number)] {
				number++
			}
			text.WriteString(separator)
			separator = "---\n"
			encoded, err := yaml.Marshal(map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": string(resolve.KindNamespaced),
				"metadata": map[string]string{"namespace": namespace, "name": nameOf(number)}, "spec": spec,
			})
			if err != nil {
				return "", err
			}
			text.Write(encoded)
		}
	}
	return text.String(), nil
}
