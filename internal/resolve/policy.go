// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
)

// PolicyKind is the Kubernetes kind of a policy.
type PolicyKind string

// The policy kinds.
const (
	KindNamespaced PolicyKind = "SidecarTerminationPolicy"
	KindCluster    PolicyKind = "ClusterSidecarTerminationPolicy"
)

// PolicyRef identifies a policy.
type PolicyRef struct {
	Kind      PolicyKind
	Namespace string // empty for the cluster kind
	Name      string
}

// String returns the policy as users write it on a command line: kind/name.
func (r PolicyRef) String() string {
	return string(r.Kind) + "/" + r.Name
}

// Policy is a policy of either kind with its selectors and its quickExitPaths parsed.
type Policy struct {
	Ref     PolicyRef
	Created time.Time
	Spec    *v1alpha1.PolicySpec

	pods       labels.Selector
	namespaces labels.Selector // nil for the namespaced kind
	// covers is the parsed quickExitPaths of the spec. sidecarCovers holds the parsed quickExitPaths of sidecars by name.
	covers        quickexit.Coverage
	sidecarCovers map[string]quickexit.Coverage
}

// RefOf returns the reference to the policy.
func RefOf(policy v1alpha1.Policy) PolicyRef {
	if _, ofCluster := policy.(*v1alpha1.ClusterSidecarTerminationPolicy); ofCluster {
		return PolicyRef{Kind: KindCluster, Name: policy.GetName()}
	}
	return PolicyRef{Kind: KindNamespaced, Namespace: policy.GetNamespace(), Name: policy.GetName()}
}

// Parse parses a policy. It fails when one of its selectors cannot be parsed; the error names the field, and the result must not select pods.
func Parse(policy v1alpha1.Policy) (parsed Policy, err error) {
	spec, _ := policy.Parts()
	parsed = Policy{
		Ref: RefOf(policy), Created: policy.GetCreationTimestamp().Time, Spec: spec,
		covers: quickexit.CoverageOf(spec.QuickExitPaths...), sidecarCovers: sidecarCoverage(spec.Sidecars),
	}
	if parsed.pods, err = parseSelector("spec.podSelector", &spec.PodSelector); err != nil {
		return parsed, err
	}
	if cluster, ok := policy.(*v1alpha1.ClusterSidecarTerminationPolicy); ok {
		selector := cmp.Or(cluster.Spec.NamespaceSelector, &metav1.LabelSelector{})
		parsed.namespaces, err = parseSelector("spec.namespaceSelector", selector)
	}
	return parsed, err
}

func parseSelector(field string, selector *metav1.LabelSelector) (labels.Selector, error) {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", field, err)
	}
	return parsed, nil
}

// Settings are settings that decide how a container may end, with the operator's defaults.
type Settings struct {
	Mode     v1alpha1.Mode
	Image    string // empty without one
	Fallback v1alpha1.Fallback
}

// SettingsOf returns the settings that a policy can have an effect with: those of each entry, with the spec's where the entry sets none,
// and the spec's own where a container needs no entry. The policy's author needs permission for each mode that they may use. Admission
// policies sidecar-termination-mode-* (config/admission) say the same.
func SettingsOf(spec *v1alpha1.PolicySpec) []Settings {
	var all []Settings
	add := func(mode v1alpha1.Mode, image string) {
		all = append(all, Settings{cmp.Or(mode, DefaultMode), image, cmp.Or(spec.Fallback, DefaultFallback)})
	}
	if len(spec.Sidecars) == 0 || spec.IncludeInjected {
		add(spec.Mode, spec.Image)
	}
	for i := range spec.Sidecars {
		add(cmp.Or(spec.Sidecars[i].Mode, spec.Mode), cmp.Or(spec.Sidecars[i].Image, spec.Image))
	}
	return all
}

// ModesOf lists the modes of SettingsOf for people, each once. Where the policy sets none, a variable of the pod may set one.
func ModesOf(spec *v1alpha1.PolicySpec) string {
	var modes []string
	for _, settings := range SettingsOf(spec) {
		if mode := string(settings.Mode); !slices.Contains(modes, mode) {
			modes = append(modes, mode)
		}
	}
	return strings.Join(modes, ",")
}

// MayUse reports whether a container can end with the mode because of these settings. Each field may be combined with fields of other
// policies: an image counts as mode Image, and exitCodePolicy rules no mode out. An unknown fallback counts as Enabled.
func (s Settings) MayUse(mode v1alpha1.Mode) bool {
	return s.Mode == mode || s.Mode == v1alpha1.ModeAuto || s.Fallback != v1alpha1.FallbackDisabled || mode == v1alpha1.ModeImage && s.Image != ""
}

// sidecarCoverage parses the quickExitPaths of the sidecars that set it. Few do, so the map is often nil.
func sidecarCoverage(sidecars []v1alpha1.Sidecar) map[string]quickexit.Coverage {
	var covers map[string]quickexit.Coverage
	for i := range sidecars {
		if len(sidecars[i].QuickExitPaths) == 0 {
			continue
		}
		if covers == nil {
			covers = map[string]quickexit.Coverage{}
		}
		covers[sidecars[i].Name] = quickexit.CoverageOf(sidecars[i].QuickExitPaths...)
	}
	return covers
}

// Selects reports whether the policy selects the pod, given the labels of the pod's namespace. It ignores the pod's
// containers.
func (p Policy) Selects(pod *corev1.Pod, namespaceLabels map[string]string) bool {
	return p.MaySelect(pod) && (p.namespaces == nil || p.namespaces.Matches(labels.Set(namespaceLabels)))
}

// MaySelect reports whether the policy selects the pod with the metadata, ignoring the labels of the pod's namespace.
func (p Policy) MaySelect(pod metav1.Object) bool {
	return (p.namespaces != nil || p.Ref.Namespace == pod.GetNamespace()) && p.pods.Matches(labels.Set(pod.GetLabels()))
}

// UnmetRequirements returns the requirements of podSelector that the pod's labels do not meet, and those of namespaceSelector
// that the labels of its namespace do not meet.
func (p Policy) UnmetRequirements(pod *corev1.Pod, namespaceLabels map[string]string) (ofPod, ofNamespace []labels.Requirement) {
	return unmet(p.pods, pod.Labels), unmet(p.namespaces, namespaceLabels)
}

// unmet returns the requirements of a selector, which may be nil, that the labels do not meet.
func unmet(selector labels.Selector, set labels.Set) []labels.Requirement {
	if selector == nil {
		return nil
	}
	all, _ := selector.Requirements()
	return slices.DeleteFunc(slices.Clone(all), func(r labels.Requirement) bool { return r.Matches(set) })
}

// SelectsNamespaces reports whether the policy is of the cluster kind, which selects pods by namespace labels.
func (p Policy) SelectsNamespaces() bool {
	return p.namespaces != nil
}

func (p Policy) dryRun() bool {
	return !p.Spec.Enforcement.Acts()
}

// UnknownEnforcement returns a message about an enforcement that this version does not know and treats as DryRun, or ""
// for a known one.
func UnknownEnforcement(enforcement v1alpha1.Enforcement) string {
	if enforcement.Acts() || enforcement == v1alpha1.EnforcementDryRun {
		return ""
	}
	return fmt.Sprintf("this version of the operator does not know enforcement %q and treats it as DryRun; upgrade the operator, or set it to Enforce", enforcement)
}

// byPrecedence orders policies by precedence, highest first.
func byPrecedence(a, b roles) int {
	return cmp.Or(
		-strings.Compare(string(a.Ref.Kind), string(b.Ref.Kind)), // KindNamespaced is after KindCluster
		cmp.Compare(b.Spec.Priority, a.Spec.Priority),
		a.Created.Compare(b.Created),
		strings.Compare(a.Ref.Name, b.Ref.Name),
	)
}
