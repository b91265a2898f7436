// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

// The limits of the findings on policies that do not select the pod.
const (
	maxNotSelecting = 3  // policies
	maxMismatches   = 3  // labels for each policy
	maxValues       = 5  // values for each label
	maxLabel        = 80 // bytes of a value: manifests may have longer ones than the API server accepts
)

// notSelecting is a policy that does not select the pod.
type notSelecting struct {
	policy resolve.PolicyRef
	// relevant is true if the policy would declare a container a sidecar that nothing declares now.
	relevant bool
	// mismatches are the labels that do not match. misspelled counts those that a correction of one name would match.
	mismatches []string
	misspelled int
	// hint proposes the first of these corrections, or is empty.
	hint string
}

// checkNotSelecting says why policies do not select the pod, the nearest policy first. In a pod with declared sidecars, it omits
// policies that would declare no further one. In a pod with one container there is no sidecar to declare, unless a webhook adds
// one to a template.
func (x *explainer) checkNotSelecting() {
	undeclared := x.undeclared()
	if len(undeclared) == 0 || len(x.Pod.Pod.Spec.Containers) == 1 && !x.Template {
		return
	}
	hangs := slices.ContainsFunc(x.found, func(f Finding) bool { return f.Reason == v1alpha1.ReasonMayHang })
	var near []notSelecting
	for _, policy := range x.NotSelecting {
		if n := whyNotSelecting(policy, &x.Pod, undeclared); n.relevant || len(x.view.Sidecars) == 0 && x.resolution.DryRun == nil {
			near = append(near, n)
		}
	}
	slices.SortStableFunc(near, notSelecting.compare)
	for _, n := range near[:min(len(near), maxNotSelecting)] {
		f := x.add(SeverityNote, v1alpha1.ReasonNotSelected, "", "%s does not select the pod: %s", n.policy, n)
		f.Hint, f.lint = n.hint, hangs
	}
	if more := len(near) - maxNotSelecting; more > 0 {
		f := x.add(SeverityNote, v1alpha1.ReasonNotSelected, "", "%d more policies do not select the pod", more)
		x.command(f, "%s explain policies -n %s", settings.PluginName, x.Pod.Pod.Namespace)
		f.lint = hangs
	}
}

// nearest says why the policy selects none of the pods of the reports, with the pod that it is nearest to.
func nearest(policy resolve.Policy, reports []Report) []Finding {
	var all []Finding
	var least notSelecting
	for i := range reports {
		pod := &reports[i].input
		if !plan.IsJobType(pod.Pod) || !policy.SelectsNamespaces() && pod.Pod.Namespace != policy.Ref.Namespace {
			continue
		}
		if n := whyNotSelecting(policy, pod, RegularContainers(pod.Pod)); all == nil || n.compare(least) < 0 {
			least, all = n, []Finding{finding(SeverityNote, v1alpha1.ReasonNotSelected, "",
				fmt.Sprintf("%s %s/%s is the nearest: %s", pod.Kind, pod.Pod.Namespace, pod.Name, n))}
			all[0].Hint = n.hint
		}
	}
	return all
}

// compare orders relevant policies first, then by the number of labels to change, where a misspelling counts half.
func (n notSelecting) compare(other notSelecting) int {
	switch {
	case n.relevant == other.relevant:
		return cmp.Compare(2*len(n.mismatches)-n.misspelled, 2*len(other.mismatches)-other.misspelled)
	case n.relevant:
		return -1
	}
	return 1
}

func (n notSelecting) String() string { return safetext.List(n.mismatches, maxMismatches, "; ") }

// whyNotSelecting compares the selectors of the policy with the pod. The policy is relevant if it would declare one of the containers a
// sidecar. A policy that lists main containers would declare every other one, if the pod has one of these.
func whyNotSelecting(policy resolve.Policy, pod *Pod, undeclared []string) notSelecting {
	n := notSelecting{policy: policy.Ref, relevant: slices.ContainsFunc(undeclared, func(name string) bool {
		return policy.Role(pod.Pod, name, resolve.Options{}) == resolve.RoleSidecar
	})}
	ofPod, ofNamespace := policy.UnmetRequirements(pod.Pod, pod.NamespaceLabels)
	n.add(ofPod, pod.Pod.Labels, "podSelector", "pod")
	n.add(ofNamespace, pod.NamespaceLabels, "namespaceSelector", "namespace")
	return n
}

// add adds the requirements of the selector that the labels of the object do not meet.
func (n *notSelecting) add(unmet []labels.Requirement, has labels.Set, selector, object string) {
	// Requirements for the same label have no fixed order.
	slices.SortFunc(unmet, func(a, b labels.Requirement) int { return strings.Compare(a.String(), b.String()) })
	for i := range unmet {
		wanted := &unmet[i]
		value, present := has[wanted.Key()]
		inPolicy, inObject, shown := "", value, "none"
		switch operator := wanted.Operator(); {
		case !present:
			inPolicy, inObject = wanted.Key(), Similar(wanted.Key(), slices.Sorted(maps.Keys(has)))
		case strings.Contains(value, "*"): // generated, so nobody has misspelled it
		case operator == selection.In || operator == selection.Equals:
			inPolicy = Similar(value, wanted.ValuesUnsorted())
		}
		if present {
			shown = shownValue(value)
		}
		n.mismatches = append(n.mismatches, fmt.Sprintf("label %s: want %s, %s has %s", wanted.Key(), wantedValue(wanted), object, shown))
		if inPolicy == "" || inObject == "" {
			continue
		}
		n.misspelled++
		n.hint = cmp.Or(n.hint, fmt.Sprintf("if it is a misspelling, change %[2]s to %[1]s in the labels of the %[4]s, or %[1]s to %[2]s in %[3]s if no other %[4]s has %[1]s",
			inPolicy, inObject, selector, object))
	}
}

// wantedValue describes the values that meet the requirement.
func wantedValue(r *labels.Requirement) string {
	values := r.ValuesUnsorted()
	slices.Sort(values)
	for i, value := range values {
		values[i] = shownValue(value)
	}
	listed := safetext.List(values, maxValues, ", ")
	switch r.Operator() {
	case selection.Exists:
		return "any value"
	case selection.DoesNotExist:
		return "no such label"
	case selection.NotIn:
		return "a value other than " + listed
	}
	if len(values) > 1 {
		return "one of " + listed
	}
	return listed
}

// shownValue returns the value of a label for a message.
func shownValue(value string) string { return cmp.Or(safetext.Truncate(value, maxLabel), `""`) }
