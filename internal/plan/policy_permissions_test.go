// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/admissiontest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// prePull stands for the pull of images in advance, which is permitted like a mode.
const prePull v1alpha1.Mode = "PrePull"

// modePermission is what an author needs for a mode.
type modePermission struct {
	policy                string // the admission policy that requires it
	verb, group, resource string
}

var modePermissions = map[v1alpha1.Mode]modePermission{
	crr:      {"sidecar-termination-mode-crr", "create", "apps.kruise.io", "containerrecreaterequests"},
	image:    {"sidecar-termination-mode-image", "patch", "", "pods"},
	podPhase: {"sidecar-termination-mode-pod-phase", "patch", "", "pods/status"},
	prePull:  {"sidecar-termination-mode-pre-pull", "create", "apps.kruise.io", "imagepulljobs"},
}

// policyAuthor is an author of policies.
type policyAuthor struct {
	name   string
	grants []modeGrant
}

// modeGrant permits a mode in a namespace, or everywhere if that is empty.
type modeGrant struct {
	mode      v1alpha1.Mode
	namespace string
	// inPolicies permits the use of the mode by policies, instead of what the mode does.
	inPolicies bool
}

func (a policyAuthor) permitted(mode v1alpha1.Mode, namespace string) bool {
	return slices.ContainsFunc(a.grants, func(g modeGrant) bool { return g.mode == mode && (g.namespace == "" || g.namespace == namespace) })
}

func (a policyAuthor) permissions() admissiontest.Permissions {
	all := admissiontest.Permissions{}
	for _, g := range a.grants {
		needed := modePermissions[g.mode]
		rule := rbacv1.PolicyRule{Verbs: []string{needed.verb}, APIGroups: []string{needed.group}, Resources: []string{needed.resource}}
		if g.inPolicies {
			rule = rbacv1.PolicyRule{
				Verbs: []string{"use"}, APIGroups: []string{"modes." + v1alpha1.GroupName}, Resources: []string{"modes"}, ResourceNames: []string{string(g.mode)},
			}
		}
		all[g.namespace] = append(all[g.namespace], rule)
	}
	return all
}

// randomAuthor has a random subset of the permissions.
func randomAuthor(r *rand.Rand, name string) policyAuthor {
	author := policyAuthor{name: name}
	for _, mode := range []v1alpha1.Mode{crr, image, podPhase, prePull} {
		if r.IntN(2) == 0 {
			author.grants = append(author.grants, modeGrant{mode, []string{"", "batch", "batch", "other"}[r.IntN(4)], r.IntN(2) == 0})
		}
	}
	return author
}

// writtenPolicy is a policy that an author creates, or changes if it has an old spec. A policy without a namespace is a cluster policy.
type writtenPolicy struct {
	author          policyAuthor
	namespace, name string
	old             *v1alpha1.PolicySpec
	spec            v1alpha1.PolicySpec
}

func (w writtenPolicy) request() admissiontest.Request {
	resource := "sidecarterminationpolicies"
	if w.namespace == "" {
		resource = "cluster" + resource
	}
	request := admissiontest.Request{
		Operation: admission.Create, Resource: v1alpha1.GroupVersion.WithResource(resource), New: w.object(w.spec),
		User: &user.DefaultInfo{Name: w.author.name}, Authorizer: w.author.permissions(),
	}
	if w.old != nil {
		request.Operation, request.Old = admission.Update, w.object(*w.old)
	}
	return request
}

// object is the policy with this spec.
func (w writtenPolicy) object(spec v1alpha1.PolicySpec) runtime.Object {
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: w.name}
	if w.namespace == "" {
		return &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: meta, Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{PolicySpec: spec}}
	}
	return &v1alpha1.SidecarTerminationPolicy{ObjectMeta: meta, Spec: v1alpha1.SidecarTerminationPolicySpec{PolicySpec: spec}}
}

// needs reports whether the write needs the permission for the mode.
func (w writtenPolicy) needs(mode v1alpha1.Mode) bool {
	switch {
	case !w.spec.Enforcement.Acts(), w.old != nil && reflect.DeepEqual(*w.old, w.spec):
		return false
	case mode == prePull:
		return w.spec.PrePull != nil
	}
	return slices.ContainsFunc(resolve.SettingsOf(&w.spec), func(s resolve.Settings) bool { return s.MayUse(mode) })
}

// denial is the message about an author without the permission for the mode. It names the fields that can lead to the mode.
func (w writtenPolicy) denial(mode v1alpha1.Mode) string {
	needed, place := modePermissions[mode], "all namespaces"
	if w.namespace != "" {
		place = "namespace " + w.namespace
	}
	resource := needed.resource
	if needed.group != "" {
		resource += "." + needed.group
	}
	lacks := fmt.Sprintf(", and %s cannot %s %s in %s; ", w.author.name, needed.verb, resource, place)
	if mode == prePull {
		return "the policy sets prePull" + lacks + "remove prePull, "
	}
	var fields []string
	add := func(field string, leads bool) {
		if leads {
			fields = append(fields, field)
		}
	}
	leads := func(m v1alpha1.Mode) bool { return m == mode || m == v1alpha1.ModeAuto || m == "" }
	images := w.spec.Image != ""
	for _, s := range w.spec.Sidecars {
		own := s.Mode
		if own == "" {
			own = w.spec.Mode
		}
		add("sidecars["+s.Name+"].mode", leads(own))
		images = images || s.Image != ""
	}
	add("mode", len(w.spec.Sidecars) == 0 && leads(w.spec.Mode))
	add("mode for injected containers", len(w.spec.Sidecars) > 0 && w.spec.IncludeInjected && leads(w.spec.Mode))
	add("fallback", w.spec.Fallback != v1alpha1.FallbackDisabled)
	add("image", mode == image && images)
	return fmt.Sprintf("the policy may use mode %s%sthis follows from %s; set mode ", mode, lacks, strings.Join(fields, ", "))
}

func randomSettings(r *rand.Rand) v1alpha1.TerminationSettings {
	s := v1alpha1.TerminationSettings{
		Mode:           []v1alpha1.Mode{"", "", "", v1alpha1.ModeAuto, crr, crr, image, image, podPhase, podPhase}[r.IntN(10)],
		ExitCodePolicy: []v1alpha1.ExitCodePolicy{"", v1alpha1.ExitCodePolicyIgnore, v1alpha1.ExitCodePolicyRespect}[r.IntN(3)],
		Image:          []string{"", "", "", "first:v1", "second:v1"}[r.IntN(5)],
	}
	if s.Image != "" && r.IntN(3) > 0 {
		s.QuickExitPaths = []v1alpha1.QuickExitPath{"*"}
	}
	if s.Mode == podPhase && s.ExitCodePolicy == v1alpha1.ExitCodePolicyRespect {
		s.ExitCodePolicy = v1alpha1.ExitCodePolicyIgnore
	}
	return s
}

func randomPolicySpec(r *rand.Rand) v1alpha1.PolicySpec {
	enabled, disabled := v1alpha1.FallbackEnabled, v1alpha1.FallbackDisabled
	enforce, dryRun := v1alpha1.EnforcementEnforce, v1alpha1.EnforcementDryRun
	spec := v1alpha1.PolicySpec{
		TerminationSettings: randomSettings(r), Priority: r.Int32N(3),
		Fallback:    []v1alpha1.Fallback{"", enabled, disabled, disabled, disabled}[r.IntN(5)],
		Enforcement: []v1alpha1.Enforcement{"", enforce, enforce, dryRun}[r.IntN(4)],
	}
	if r.IntN(4) == 0 {
		spec.PrePull = &v1alpha1.PrePull{}
	}
	switch r.IntN(5) {
	case 0:
		spec.MainContainers = []v1alpha1.ContainerName{"main", "logs"}[:1+r.IntN(2)]
	case 1:
		spec.IncludeInjected = true
	default:
		for _, i := range r.Perm(4)[:1+r.IntN(3)] {
			name := []string{"proxy", "logs", "mesh", "p*"}[i]
			spec.Sidecars = append(spec.Sidecars, v1alpha1.Sidecar{Name: name, TerminationSettings: randomSettings(r)})
		}
		spec.IncludeInjected = r.IntN(2) == 0
	}
	return spec
}

func randomPolicy(r *rand.Rand, author policyAuthor, name string) writtenPolicy {
	return writtenPolicy{author: author, namespace: []string{"batch", "batch", ""}[r.IntN(3)], name: name, spec: randomPolicySpec(r)}
}

// modePolicies compiles the admission policy of each mode.
func modePolicies(t *testing.T) map[v1alpha1.Mode]*admissiontest.Validating {
	t.Helper()
	compiled := map[v1alpha1.Mode]*admissiontest.Validating{}
	for mode := range modePermissions {
		policy, err := admissiontest.CompileValidating(shippedModePolicy(t, mode))
		if err != nil {
			t.Fatal(err)
		}
		compiled[mode] = policy
	}
	return compiled
}

func shippedModePolicy(t *testing.T, mode v1alpha1.Mode) *admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	policy, err := admissiontest.Shipped[admissionv1.ValidatingAdmissionPolicy](modePermissions[mode].policy)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// permissionDifference returns how the admission policy of the mode differs from package resolve in one of so many random writes, or "".
func permissionDifference(ctx context.Context, policy *admissiontest.Validating, mode v1alpha1.Mode, writes int) string {
	r := rand.New(rand.NewPCG(5, 6))
	for range writes {
		w := randomPolicy(r, randomAuthor(r, "jane"), "p")
		switch r.IntN(6) {
		case 0: // Nothing changes.
			w.old = w.spec.DeepCopy()
		case 1: // Only one field changes.
			w.old = w.spec.DeepCopy()
			w.old.Priority = 5
		case 2: // DryRun ends.
			w.old = w.spec.DeepCopy()
			w.old.Enforcement = v1alpha1.EnforcementDryRun
		}
		want := ""
		if w.needs(mode) && !w.author.permitted(mode, w.namespace) {
			want = w.denial(mode)
		}
		allowed, message, err := policy.Validate(ctx, w.request())
		if err != nil {
			return fmt.Sprintf("evaluation fails: %v", err)
		}
		if allowed != (want == "") || !strings.HasPrefix(message, want) {
			content, _ := yaml.Marshal(map[string]any{"namespace": w.namespace, "old": w.old, "spec": w.spec})
			return fmt.Sprintf("%v writes\n%s\ngot %t, %q\nwant %q", w.author, content, allowed, message, want)
		}
	}
	return ""
}

// The admission policies require permission for the modes that the settings of a policy may use, according to package resolve, and their
// messages name the fields.
func TestModePoliciesAgreeWithSettings(t *testing.T) {
	for mode, policy := range modePolicies(t) {
		if difference := permissionDifference(t.Context(), policy, mode, 1000); difference != "" {
			t.Errorf("%s: %s", mode, difference)
		}
	}
}

// Each change of an expression is found.
func TestMutationsOfModePoliciesAreFound(t *testing.T) {
	var all mutation
	for mode := range modePermissions {
		policy := shippedModePolicy(t, mode)
		all.run(t, &policy.Spec.Validations[0].Expression, policy.Spec.MatchConditions, policy.Spec.Variables, func() bool {
			mutant, err := admissiontest.CompileValidating(policy)
			return err != nil || permissionDifference(t.Context(), mutant, mode, 5000) != ""
		})
	}
	all.mustSuffice(t)
}

// setterOfMode returns the policy that sets a mode with which the sidecar can end. That is the one that sets mode, or else the one that
// enables the fallback; where no policy enables it, the fallback belongs to the mode. Where no policy sets a mode, it is the one that
// declares the sidecar.
func setterOfMode(mode v1alpha1.Mode, sidecar resolve.Sidecar, origins resolve.Origins) resolve.PolicyRef {
	origin := origins.Mode
	if sidecar.Mode != mode && sidecar.Mode != v1alpha1.ModeAuto && origins.Fallback.Policy.Name != "" {
		origin = origins.Fallback
	}
	if origin.Policy.Name == "" {
		return *sidecar.Policy
	}
	return origin.Policy
}

// modesOf returns the modes with which the sidecar can end, whatever the node, the cluster, the operator's flags and the main container.
func modesOf(pod *corev1.Pod, view resolve.View, sidecar resolve.Sidecar) []v1alpha1.Mode {
	var all []v1alpha1.Mode
	for i := range 1 << 4 {
		is := func(bit int) bool { return i&(1<<bit) != 0 }
		for _, node := range []plan.NodeKind{plan.NodeReal, plan.NodeDaemonless, plan.NodeVirtual, plan.NodeNotRead} {
			snapshot := plan.Snapshot{Pod: pod.DeepCopy(), View: view, Node: node, AssumeMarked: is(0)}
			snapshot.Capabilities = plan.Capabilities{EnabledModes: modes(plan.PodPhaseEnabled), CRRServed: is(1)}
			if is(2) {
				snapshot.Capabilities.PodPhase = plan.PodPhaseLastResort
			}
			if is(3) {
				snapshot.Pod.Status.ContainerStatuses[0].State.Terminated.ExitCode = 1
			}
			for _, option := range plan.ModeOptions(snapshot, sidecar) {
				if option.Usable() {
					all = append(all, option.Mode)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Each mode and each image with which a container can end is permitted to the author of the policy that sets it: random policies of two
// authors, as far as the admission policies accept them, for random pods.
func TestPoliciesGiveNobodyMoreModes(t *testing.T) {
	policies := modePolicies(t)
	worlds := 2000
	if testenv.Long() {
		worlds = 20000
	}
	r := rand.New(rand.NewPCG(7, 8))
	ends := map[v1alpha1.Mode]int{} // of policies whose authors are not permitted every mode
	for range worlds {
		authors := []policyAuthor{randomAuthor(r, "jane"), randomAuthor(r, "joe")}
		if r.IntN(2) == 0 {
			authors[1].grants = []modeGrant{{crr, "", false}, {image, "", false}, {podPhase, "", false}, {prePull, "", false}}
		}
		writers := map[resolve.PolicyRef]policyAuthor{}
		var selecting []resolve.Policy
		for i := range 6 {
			w := randomPolicy(r, authors[r.IntN(2)], fmt.Sprint("p", i))
			if policy, accepted := acceptedPolicy(t, policies, w); accepted {
				selecting, writers[policy.Ref] = append(selecting, policy), w.author
			}
		}
		pod := finishedMain([]corev1.RestartPolicy{never, onFailure}[r.IntN(2)], running("proxy"), running("logs"), running("mesh"))
		options := resolve.Options{IgnoreEnv: true, Image: []string{"", quickExit}[r.IntN(2)], QuickExitPaths: quickexit.CoverageOf(quickexit.Everything)}
		if r.IntN(2) == 0 {
			options.Injected = []string{"mesh", "logs"}[:1+r.IntN(2)]
		}
		view := resolve.Resolve(pod, selecting, options).Enforced
		for _, sidecar := range view.Sidecars {
			origins := sidecar.Origins
			for _, mode := range modesOf(pod, view, sidecar) {
				setters := []resolve.PolicyRef{setterOfMode(mode, sidecar, origins)}
				if mode == image && origins.Image.Policy.Name != "" {
					setters = append(setters, origins.Image.Policy)
				}
				for _, setter := range setters {
					author := writers[setter]
					if !author.permitted(mode, setter.Namespace) {
						t.Fatalf("container %s can end with mode %s (image %q) by %s of %v; policies:\n%s",
							sidecar.Container, mode, sidecar.Image, setter, author, shownPolicies(selecting))
					}
					if !author.permitted(crr, "batch") || !author.permitted(image, "batch") || !author.permitted(podPhase, "batch") {
						ends[mode]++
					}
				}
			}
		}
	}
	t.Logf("ends by policies of authors who are not permitted every mode: %v", ends)
	for mode := range modePermissions {
		if mode != prePull && ends[mode] < worlds/40 {
			t.Errorf("only %d ends with mode %s tell something", ends[mode], mode)
		}
	}
}

// acceptedPolicy returns the policy of the write, and whether every admission policy accepts it.
func acceptedPolicy(t *testing.T, policies map[v1alpha1.Mode]*admissiontest.Validating, w writtenPolicy) (resolve.Policy, bool) {
	t.Helper()
	request := w.request()
	for _, policy := range policies {
		allowed, _, err := policy.Validate(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if !allowed {
			return resolve.Policy{}, false
		}
	}
	parsed, err := resolve.Parse(request.New.(v1alpha1.Policy))
	if err != nil {
		t.Fatal(err)
	}
	return parsed, true
}

func shownPolicies(policies []resolve.Policy) string {
	all := map[string]*v1alpha1.PolicySpec{}
	for i := range policies {
		all[policies[i].Ref.String()] = policies[i].Spec
	}
	content, _ := yaml.Marshal(all)
	return string(content)
}
