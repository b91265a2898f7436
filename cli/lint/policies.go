// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"io"
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

// proposal is what the policies of a namespace should declare.
type proposal struct {
	// workloads counts the workloads by the name of the sidecar.
	workloads map[string]int
	// injected is true if a webhook adds one of the sidecars.
	injected bool
	// earlier is the policy of an earlier run, or nil.
	earlier *v1alpha1.PolicySpec
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
			p = &proposal{workloads: map[string]int{}}
			r.proposals[report.Namespace] = p
		}
		p.workloads[f.Container]++
		p.injected = p.injected || !slices.ContainsFunc(report.Containers, func(c explain.Container) bool { return c.Name == f.Container })
		if spec := report.Policy(resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: report.Namespace, Name: proposedName}); spec != nil {
			p.earlier = spec
		}
	}
}

// writePolicies prints the policies, one or more for each namespace.
func (r *result) writePolicies(w io.Writer) error {
	var text strings.Builder
	for _, namespace := range slices.Sorted(maps.Keys(r.proposals)) {
		p := r.proposals[namespace]
		text.WriteString("---\n" + p.comment())
		spec := v1alpha1.PolicySpec{Enforcement: v1alpha1.EnforcementDryRun}
		if p.earlier != nil {
			spec = *p.earlier.DeepCopy()
		}
		sidecars := spec.Sidecars
		for _, name := range slices.Sorted(maps.Keys(p.workloads)) {
			sidecars = append(sidecars, v1alpha1.Sidecar{Name: name})
		}
		number := 0
		for chunk := range slices.Chunk(sidecars, maxSidecars) {
			name := proposedName
			if number++; number > 1 {
				name = fmt.Sprintf("%s-%d", proposedName, number)
				text.WriteString("---\n")
			}
			spec.Sidecars = chunk
			encoded, err := yaml.Marshal(map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": string(resolve.KindNamespaced),
				"metadata": map[string]string{"namespace": namespace, "name": name}, "spec": spec,
			})
			if err != nil {
				return fmt.Errorf("encode a policy: %w", err)
			}
			text.Write(encoded)
		}
	}
	if len(r.proposals) == 0 {
		text.WriteString("# nothing to declare\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// comment says why the policy is proposed, for the person who applies it.
func (p *proposal) comment() string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(p.workloads)) {
		lines = append(lines, fmt.Sprintf("# %s in %s\n", name, count(p.workloads[name], "workload", "workloads")))
	}
	if p.injected {
		lines = append(lines, "# includeInjected: true instead declares whatever webhooks inject; it needs the operator's component include-injected\n")
	}
	if p.earlier == nil {
		lines = append(lines, "# set enforcement to Enforce after you have read its events and its status\n")
	}
	return strings.Join(lines, "")
}
