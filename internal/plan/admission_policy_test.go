// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// admissionPolicy is a MutatingAdmissionPolicy that the API server's own code evaluates in this process.
type admissionPolicy struct {
	compiler *plugincel.CompositedCompiler
	selector labels.Selector
	matcher  matchconditions.Matcher
	patcher  patch.Patcher
}

func outcomePolicy(t *testing.T) *admissionv1.MutatingAdmissionPolicy {
	t.Helper()
	objects, err := config.OutcomePolicy()
	if err != nil {
		t.Fatal(err)
	}
	policy := &admissionv1.MutatingAdmissionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[0].Object, policy, true); err != nil {
		t.Fatal(err)
	}
	return policy
}

// compilePolicy does what compilePolicy in k8s.io/apiserver/pkg/admission/plugin/policy/mutating/compilation.go does.
func compilePolicy(policy *admissionv1.MutatingAdmissionPolicy) (*admissionPolicy, error) {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	var variables []plugincel.NamedExpressionAccessor
	for _, v := range policy.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, options, environment.StoredExpressions)
	var conditions []plugincel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	selector, err := metav1.LabelSelectorAsSelector(policy.Spec.MatchConstraints.ObjectSelector)
	if err != nil {
		return nil, err
	}
	compiled := &admissionPolicy{compiler: compiler, selector: selector}
	compiled.matcher = matchconditions.NewMatcher(compiler.CompileCondition(conditions, options, environment.StoredExpressions),
		ptr.To(admissionv1.Fail), "policy", "validate", policy.Name)
	options.HasPatchTypes = true
	expression := &patch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression}
	compiled.patcher = patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(expression, options, environment.StoredExpressions))
	return compiled, nil
}

// decide returns the pod that the API server stores.
func (p *admissionPolicy) decide(ctx context.Context, old, written *corev1.Pod) (*corev1.Pod, error) {
	if !p.selector.Matches(labels.Set(old.Labels)) && !p.selector.Matches(labels.Set(written.Labels)) {
		return written, nil
	}
	objects := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	attributes := admission.NewAttributesRecord(written, old, kind, old.Namespace, old.Name, resource, "status", admission.Update,
		&metav1.UpdateOptions{}, false, &user.DefaultInfo{Name: "kubelet"})
	versioned, err := admission.NewVersionedAttributes(attributes, kind, objects)
	if err != nil {
		return nil, err
	}
	ctx = p.compiler.CreateContext(ctx)
	if match := p.matcher.Match(ctx, versioned, nil, nil); match.Error != nil || !match.Matches {
		return written, match.Error
	}
	patched, err := p.patcher.Patch(ctx, patch.Request{MatchedResource: resource, VersionedAttributes: versioned, ObjectInterfaces: objects},
		celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	return pod, scheme.Scheme.Convert(patched, pod, nil)
}

// randomWrite returns a pod and a write of its status.
func randomWrite(r *rand.Rand) (old, written *corev1.Pod) {
	one := func(in int) bool { return r.IntN(in) == 0 }
	at := func() metav1.Time {
		return metav1.NewTime(done.Add(time.Duration([]int{0, 10, 59, 60, 61}[r.IntN(5)]) * time.Second))
	}
	names := []string{"main", "proxy", "logs"}[:1+r.IntN(3)]
	old = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "job-1", Namespace: "batch", UID: "4a1b"}}
	old.Spec.RestartPolicy = []corev1.RestartPolicy{never, never, never, onFailure, onFailure, onFailure, corev1.RestartPolicyAlways}[r.IntN(7)]
	old.Spec.TerminationGracePeriodSeconds = ptr.To([]int64{30, 3600, 3601}[r.IntN(3)])
	rules := []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}
	for _, name := range names {
		container := corev1.Container{Name: name}
		if one(10) {
			container.RestartPolicy = ptr.To([]corev1.ContainerRestartPolicy{corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever}[r.IntN(2)])
		}
		if one(20) {
			container.RestartPolicyRules = rules
		}
		old.Spec.Containers = append(old.Spec.Containers, container)
	}
	if one(30) {
		for i := range 126 + r.IntN(4) {
			old.Spec.Containers = append(old.Spec.Containers, corev1.Container{Name: fmt.Sprint("more-", i)})
		}
	}
	if one(4) {
		old.Spec.InitContainers = []corev1.Container{{Name: "init"}}
		if one(3) {
			old.Spec.InitContainers[0].RestartPolicyRules = rules
		}
	}
	if one(3) {
		old.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
	}
	if one(8) {
		old.DeletionTimestamp = ptr.To(metav1.NewTime(done))
	}
	written = old.DeepCopy()
	for _, pod := range []*corev1.Pod{old, written} {
		randomMetadata(r, pod)
		pod.Status.Phase = []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}[r.IntN(6)]
		if one(8) {
			pod.Status.Reason = "Evicted"
		}
		if !one(4) {
			pod.Status.StartTime = ptr.To(metav1.NewTime(done))
		}
		for _, kind := range []corev1.PodConditionType{corev1.DisruptionTarget, corev1.AllContainersRestarting, corev1.PodReady} {
			if one(8) {
				status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[r.IntN(2)]
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status})
			}
		}
	}
	for _, c := range old.Spec.Containers {
		for range []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2}[r.IntN(12)] {
			written.Status.ContainerStatuses = append(written.Status.ContainerStatuses, randomStatus(r, c.Name, at))
		}
	}
	for _, c := range old.Spec.InitContainers {
		written.Status.InitContainerStatuses = append(written.Status.InitContainerStatuses, randomStatus(r, c.Name, at))
	}
	return old, written
}

// randomMetadata marks most pods. An annotation is missing, empty, for this pod or for another.
func randomMetadata(r *rand.Rand, pod *corev1.Pod) {
	if r.IntN(8) > 0 {
		pod.Labels = map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}
	}
	for key, values := range map[string][]string{
		v1alpha1.AnnotationIgnoredExitCodes: {"", "-", "proxy/4a1b", "proxy/4a1b", "proxy,logs/4a1b", "logs/4a1b", "main/4a1b", "proxy", "main/other"},
		v1alpha1.AnnotationEnd:              {"", "", "", "PodPhase/4a1b", "CRR/4a1b", "PodPhase/other", "Failed/4a1b"},
		v1alpha1.AnnotationMainContainers:   {"", "", "Running/4a1b", "Running/4a1b", "Succeeded/4a1b", "Decided/4a1b", "Succeeded/other"},
	} {
		if value := values[r.IntN(len(values))]; value != "" {
			annotate(pod, key, strings.TrimPrefix(value, "-"))
		}
	}
}

func randomStatus(r *rand.Rand, name string, at func() metav1.Time) corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: name, RestartCount: int32(r.IntN(2))}
	switch r.IntN(8) {
	case 0:
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	case 1, 2:
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: at()}
	case 3:
		status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 7, FinishedAt: at()}
	case 4:
		status.State.Terminated = &corev1.ContainerStateTerminated{}
	default:
		status.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: at()}
	}
	return status
}

// differences returns how the policy differs from decide in one of so many random writes, or "".
func differences(ctx context.Context, policy *admissionPolicy, writes int) string {
	r := rand.New(rand.NewPCG(1, 2))
	for range writes {
		old, written := randomWrite(r)
		got, err := policy.decide(ctx, old.DeepCopy(), written.DeepCopy())
		if err != nil {
			return fmt.Sprintf("evaluation fails: %v", err)
		}
		want := decide(old, written)
		if got.Status.Phase != want.Status.Phase || !maps.Equal(got.Labels, want.Labels) || !maps.Equal(got.Annotations, want.Annotations) {
			shown := func(pod *corev1.Pod) string { content, _ := yaml.Marshal(pod); return string(content) }
			return fmt.Sprintf("pod\n%s\nwritten\n%s\nresult (-want +got):\n%s", shown(old), shown(written),
				cmp.Diff([]any{want.Status.Phase, want.Labels, want.Annotations}, []any{got.Status.Phase, got.Labels, got.Annotations}))
		}
	}
	return ""
}

// The simulation decides as the admission policy does.
func TestModelDecidesAsAdmissionPolicy(t *testing.T) {
	policy, err := compilePolicy(outcomePolicy(t))
	if err != nil {
		t.Fatal(err)
	}
	if difference := differences(t.Context(), policy, 5000); difference != "" {
		t.Error(difference)
	}
}

// mutations are changes of an expression, each of one occurrence.
var mutations = []struct {
	pattern *regexp.Regexp
	by      func(string) string
}{
	{regexp.MustCompile(`&&`), func(string) string { return "||" }},
	{regexp.MustCompile(`\|\|`), func(string) string { return "&&" }},
	{regexp.MustCompile(` == `), func(string) string { return " != " }},
	{regexp.MustCompile(` != `), func(string) string { return " == " }},
	{regexp.MustCompile(` [<>]=? `), func(s string) string {
		return map[string]string{" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > "}[s]
	}},
	{regexp.MustCompile(`\.exists\(`), func(string) string { return ".all(" }},
	{regexp.MustCompile(`\.all\(`), func(string) string { return ".exists(" }},
	{regexp.MustCompile(`!(\(|has|variables)`), func(s string) string { return s[1:] }},
	{regexp.MustCompile(`\b[0-9]+\b`), func(s string) string { return s + "1" }},
	{regexp.MustCompile(`'[A-Za-z./-]+'`), func(s string) string { return s[:len(s)-1] + "x'" }},
	{regexp.MustCompile(`\.max\(\)`), func(string) string { return ".min()" }},
}

// Each change of an expression is found.
func TestMutationsOfAdmissionPolicyAreFound(t *testing.T) {
	if !testenv.Long() {
		t.Skip("Takes minutes, for which LONG=1 asks")
	}
	original := outcomePolicy(t)
	expressions := func(policy *admissionv1.MutatingAdmissionPolicy) map[string]*string {
		all := map[string]*string{"mutation": &policy.Spec.Mutations[0].JSONPatch.Expression}
		for i := range policy.Spec.MatchConditions {
			all["condition "+policy.Spec.MatchConditions[i].Name] = &policy.Spec.MatchConditions[i].Expression
		}
		for i := range policy.Spec.Variables {
			all["variable "+policy.Spec.Variables[i].Name] = &policy.Spec.Variables[i].Expression
		}
		return all
	}
	mutants, found := 0, 0
	for name, expression := range expressions(original) {
		for _, mutation := range mutations {
			for _, place := range mutation.pattern.FindAllStringIndex(*expression, -1) {
				text := (*expression)[:place[0]] + mutation.by((*expression)[place[0]:place[1]]) + (*expression)[place[1]:]
				mutant := original.DeepCopy()
				*expressions(mutant)[name] = text
				mutants++
				policy, err := compilePolicy(mutant)
				if err != nil || differences(t.Context(), policy, 20000) != "" {
					found++
					continue
				}
				t.Logf("not found in %s: %s", name, text)
			}
		}
	}
	t.Logf("%d of %d mutants are found", found, mutants)
	if found*100 < mutants*95 {
		t.Errorf("%d of %d mutants are found, want 95 %%", found, mutants)
	}
}
