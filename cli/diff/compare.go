// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// none is the value of a field that is not set.
const none = "None"

// change is one difference between two decisions.
type change struct {
	// Field is decision, mainContainers or sidecars of the pod, or a field of Container.
	Field     string `json:"field"`
	Container string `json:"container,omitempty"`
	// NodeType is the type of node of Field modes, if the pod may run on several types.
	NodeType string `json:"nodeType,omitempty"`
	Before   string `json:"before"`
	After    string `json:"after"`
}

// comparison compares the decisions of two sources.
type comparison struct {
	before, after *source.Source
	applied       []resolve.PolicyRef
	result        *result
}

func newComparison(before *source.Source, policies []client.Object) *comparison {
	c := &comparison{before: before, after: before.WithPolicies(policies), result: newResult()}
	for _, object := range policies {
		policy, _ := source.PolicyOf(object)
		c.applied = append(c.applied, policy.Ref)
		if policy.Invalid != nil {
			c.result.note(fmt.Sprintf("%s selects nothing: %v", policy.Ref, policy.Invalid))
		}
	}
	return c
}

// pod compares the decisions about a pod of a cluster.
func (c *comparison) pod(ctx context.Context, pod *corev1.Pod) error {
	before, err := c.before.Pod(ctx, pod, nil)
	if err != nil {
		return err
	}
	after, err := c.after.Pod(ctx, pod, nil)
	if err != nil {
		return err
	}
	c.compare(before, after)
	return nil
}

// manifest compares the decisions about the pods of a manifest.
func (c *comparison) manifest(ctx context.Context, manifest source.Manifest) error {
	before, ok, err := c.before.Manifest(ctx, manifest)
	if err != nil || !ok {
		return err
	}
	after, _, err := c.after.Manifest(ctx, manifest)
	if err != nil {
		return err
	}
	c.compare(before, after)
	return nil
}

// compare adds the changes, unless the operator ignores the pod: it has finished, or never finishes by itself. Only a pod that an
// applied policy selects, or selected before, can have changes.
func (c *comparison) compare(before, after explain.Pod) {
	if !explain.IsJobType(before.Pod) || plan.HasTerminalPhase(before.Pod) {
		return
	}
	c.result.Summary.CheckedPods++
	var policies []string
	for _, ref := range c.applied {
		if selects(before, ref) || selects(after, ref) {
			policies = append(policies, ref.String())
		}
	}
	if len(policies) == 0 {
		return
	}
	old, changed := c.before.Explain(before), c.after.Explain(after)
	if changes := changesOf(&old, &changed); len(changes) > 0 {
		c.result.add(podDiff{Kind: after.Kind, Namespace: after.Pod.Namespace, Name: after.Name, Policies: policies, Changes: changes})
	}
}

func selects(pod explain.Pod, ref resolve.PolicyRef) bool {
	return slices.ContainsFunc(pod.Policies, func(p resolve.Policy) bool { return p.Ref == ref })
}

// finish returns the result with the assumptions of both sources.
func (c *comparison) finish() *result {
	c.noteOmitted()
	for _, note := range slices.Concat(c.before.Notes(), c.after.Notes()) {
		c.result.note(note)
	}
	return c.result
}

// noteOmitted says how many pods the result leaves out.
func (c *comparison) noteOmitted() {
	if omitted := c.result.Summary.ChangedPods - len(c.result.Pods); omitted > 0 {
		c.result.note(fmt.Sprintf("%d more pods with another decision are not shown", omitted))
	}
}

// changesOf compares two reports on the same pod.
func changesOf(before, after *explain.Report) []change {
	var changes []change
	add := func(c change) {
		if c.Before, c.After = cmp.Or(c.Before, none), cmp.Or(c.After, none); c.Before != c.After {
			changes = append(changes, c)
		}
	}
	add(change{Field: "decision", Before: decision(before), After: decision(after)})
	add(change{Field: "mainContainers", Before: withRole(before, explain.RoleMain), After: withRole(after, explain.RoleMain)})
	add(change{Field: "sidecars", Before: withRole(before, explain.RoleSidecar), After: withRole(after, explain.RoleSidecar)})
	for i := range before.Containers {
		// Both reports list the containers of the pod in its order.
		old, changed := &before.Containers[i], &after.Containers[i]
		add(change{Field: "declaredBy", Container: old.Name, Before: old.DeclaredBy, After: changed.DeclaredBy})
		types := nodeTypes(old.Settings, changed.Settings)
		for _, nodeType := range types {
			difference := change{Field: "modes", Container: old.Name, Before: modes(old.Settings, nodeType), After: modes(changed.Settings, nodeType)}
			if len(types) > 1 {
				difference.NodeType = nodeType
			}
			add(difference)
		}
		if old.Settings == nil || changed.Settings == nil {
			continue
		}
		was, is := settingsOf(old.Settings), settingsOf(changed.Settings)
		for j := range was {
			add(change{Field: was[j].name, Container: old.Name, Before: was[j].value, After: is[j].value})
		}
	}
	return changes
}

// decision returns the stage and the reason. A template has none.
func decision(r *explain.Report) string {
	if r.Stage == "" {
		return ""
	}
	return fmt.Sprintf("%s (%s)", r.Stage, r.Reason)
}

// withRole lists the containers of the role.
func withRole(r *explain.Report, role explain.Role) string {
	var names []string
	for i := range r.Containers {
		if r.Containers[i].Role == role {
			names = append(names, r.Containers[i].Name)
		}
	}
	return strings.Join(names, ", ")
}

// nodeTypes lists the node types on which the sidecar may run, before or after.
func nodeTypes(settings ...*explain.Settings) []string {
	var all []string
	for _, s := range settings {
		if s == nil {
			continue
		}
		for _, method := range s.Methods {
			if !slices.Contains(all, method.NodeType) {
				all = append(all, method.NodeType)
			}
		}
	}
	return all
}

// modes lists the modes on the node type in the order of use, or says why there is none.
func modes(s *explain.Settings, nodeType string) string {
	if s == nil {
		return ""
	}
	i := slices.IndexFunc(s.Methods, func(m explain.Method) bool { return m.NodeType == nodeType })
	if i < 0 {
		return ""
	}
	var names []string
	for _, mode := range s.Methods[i].Modes {
		names = append(names, string(mode))
	}
	return cmp.Or(strings.Join(names, ", "), fmt.Sprintf("%s (%s)", none, s.Methods[i].Reason))
}

// setting is a setting of a sidecar besides its mode.
type setting struct{ name, value string }

func settingsOf(s *explain.Settings) []setting {
	return []setting{
		{"image", s.Image.Value},
		{"quickExitPaths", strings.Join(s.QuickExitPaths.Value, ",")},
		{"exitCodes", string(s.ExitCodes.Value)},
		{"drainSeconds", strconv.FormatInt(s.DrainSeconds.Value, 10)},
		{"terminationDeadlineSeconds", strconv.FormatInt(s.TerminationDeadlineSeconds.Value, 10)},
		{"fallback", string(s.Fallback.Value)},
	}
}
