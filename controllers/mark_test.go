// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// marked reports whether the pod is marked and the admission policy has answered.
func marked(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.AnnotationMainContainers] != "" }

func withLogger(pod *corev1.Pod) {
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "logger", Image: "logger:v1"})
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, podtest.Running("logger"))
}

func TestMarkFollowsPolicies(t *testing.T) {
	b := newBench(t, testOptions(), nil)
	for name, tc := range map[string]struct {
		change func(*v1alpha1.PolicySpec) // nil deletes the policy
		marked string
		done   string // when main has ended
	}{
		"unchanged": {func(*v1alpha1.PolicySpec) {}, "Running proxy PodPhase Running", "Succeeded proxy PodPhase Decided"},
		"one more sidecar": {func(spec *v1alpha1.PolicySpec) {
			spec.Sidecars = append(spec.Sidecars, v1alpha1.Sidecar{Name: "logger"})
		},
			"Running logger,proxy PodPhase Running", "Succeeded logger,proxy PodPhase Decided"},
		"another sidecar": {func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "logger" },
			"Running logger PodPhase Running", "Running logger PodPhase Running"},
		"mode Image":   {mode(v1alpha1.ModeImage, ""), "Running proxy Running", "Running proxy Succeeded"},
		"drain":        {func(spec *v1alpha1.PolicySpec) { spec.DrainSeconds = ptr.To[int32](30) }, "Running proxy Running", "Running proxy Succeeded"},
		"Respect":      {mode("", v1alpha1.ExitCodesRespect), "Running Running", "Running Running"},
		"DryRun":       {func(spec *v1alpha1.PolicySpec) { spec.Enforcement = v1alpha1.EnforcementDryRun }, "Running Running", "Running Running"},
		"not selected": {func(spec *v1alpha1.PolicySpec) { spec.PodSelector.MatchLabels = map[string]string{"team": "web"} }, "Running Running", "Running Running"},
		"no main container": {func(spec *v1alpha1.PolicySpec) {
			spec.Sidecars = []v1alpha1.Sidecar{{Name: "main"}, {Name: "logger"}, {Name: "proxy"}}
		}, "Running Running", "Running Running"},
		"deleted": {nil, "Running Running", "Running Running"},
	} {
		b.run(name, func() {
			policy := b.newPolicy("mesh")
			pod := b.newPod("job-1", withLogger, func(p *corev1.Pod) { p.Status.ContainerStatuses[2] = podtest.Ended("logger", 0) })
			b.reconcile(pod)
			b.is(pod, "Running proxy PodPhase Running")
			if tc.change != nil {
				tc.change(&policy.Spec.PolicySpec)
				b.update(policy)
			} else {
				b.remove(policy)
			}
			for range 2 {
				b.reconcile(pod)
			}
			b.is(pod, tc.marked)
			if writes, want := len(b.writes.in(b.namespace)), map[bool]int{true: 2, false: 1}[name != "unchanged"]; writes != want {
				b.Errorf("%d writes, want %d", writes, want)
			}
			b.change(pod, podtest.MainDone)
			b.is(pod, tc.done)
		})
	}
}

func TestPodIsNotMarked(t *testing.T) {
	b := newBench(t, testOptions(), nil)
	unchanged := func(*v1alpha1.PolicySpec) {}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.PolicySpec)
		pod    func(*corev1.Pod)
		cached bool
	}{
		"DryRun":          {func(spec *v1alpha1.PolicySpec) { spec.Enforcement = v1alpha1.EnforcementDryRun }, nil, true},
		"Respect":         {mode("", v1alpha1.ExitCodesRespect), nil, true},
		"no sidecar":      {func(spec *v1alpha1.PolicySpec) { spec.Sidecars[0].Name = "other" }, nil, true},
		"no node":         {unchanged, func(p *corev1.Pod) { p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending} }, true},
		"finished":        {unchanged, func(p *corev1.Pod) { podtest.MainDone(p); podtest.SidecarDone(p); podtest.Succeeded(p) }, true},
		"restarts always": {unchanged, func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }, false},
	} {
		b.run(name, func() {
			b.newPolicy("mesh", tc.change)
			pod := b.newPod("job-1", tc.pod)
			if tc.cached {
				b.caughtUp(pod)
			}
			b.reconcileStale(pod)
			b.wrote()
		})
	}
}

// Somebody removes the mark each time, after the write or within it.
func TestMarksAreBounded(t *testing.T) {
	b := newBench(t, testOptions(), nil)
	const bound = 10
	for name, within := range map[string]bool{"after the write": false, "within the write": true} {
		b.run(name, func() {
			policy := b.newPolicy("mesh")
			pod := b.newPod("job-1")
			if within {
				b.stripMarks(pod)
			}
			for range bound + 2 {
				result := b.reconcile(pod)
				before := pod.ResourceVersion
				if b.reload(pod); pod.ResourceVersion == before && result.RequeueAfter == 0 && len(b.writes.in(b.namespace)) < bound {
					b.Error("nothing requeues the pod after a mark that changed nothing")
				}
				if pod.Labels[v1alpha1.LabelOutcome] != "" {
					pod.Labels, pod.Annotations = nil, nil
					b.update(pod)
				}
			}
			if marks := len(b.writes.in(b.namespace)); marks != bound {
				b.Errorf("marked %d times, want %d", marks, bound)
			}
			b.change(pod, podtest.MainDone)
			b.reconcile(pod)
			b.reload(pod)
			if _, marked := pod.Labels[v1alpha1.LabelOutcome]; marked || !imageSwapped(pod) {
				b.Errorf("the next mode does not follow: %q", b.writes.in(b.namespace))
			}
			b.caughtUp(pod)
			b.summarise(policy)
			if b.reload(policy); policy.Status.TerminatingPods != 1 {
				b.Errorf("status %+v", policy.Status)
			}
		})
	}
}

// stripMarks removes marks in the writes to pods of the namespace.
func (b *bench) stripMarks(probe *corev1.Pod) {
	b.Helper()
	name := "strip-" + b.namespace
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: b.ownNamespace(), ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: updatesOf("pods/status")}},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: fmt.Sprintf(`%[1]q in object.metadata.?labels.orValue({}) ?
					[JSONPatch{op: "remove", path: "/metadata/labels/" + jsonpatch.escapeKey(%[1]q)}] : []`, v1alpha1.LabelOutcome)},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	b.install(binding, policy)
	testenv.Eventually(b.T, "marks are removed", func(ctx context.Context) error {
		target := probe.DeepCopy()
		mark := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"probe"}}}`, v1alpha1.LabelOutcome))
		if err := b.Status().Patch(ctx, target, mark, client.DryRunAll); err != nil {
			return err
		}
		if _, marked := target.Labels[v1alpha1.LabelOutcome]; marked {
			return errors.New("the mark is there")
		}
		return nil
	})
}

// A pod that is marked in time ends as it should while no operator runs.
func TestMarkedPodEndsWithoutOperator(t *testing.T) {
	f := newFixture(t)
	stop := f.startOperator(testOptions())
	f.newPolicy("mesh", mode(v1alpha1.ModePodPhase, ""))
	f.newPolicy("draining", func(spec *v1alpha1.PolicySpec) {
		spec.PodSelector.MatchLabels, spec.Priority, spec.DrainSeconds = map[string]string{"drain": "yes"}, 1, ptr.To[int32](60)
	})
	byPhase, drains := f.newPod("by-phase"), f.newPod("drains", func(p *corev1.Pod) { p.Labels["drain"] = "yes" })
	fails := f.newPod("fails")
	for _, pod := range []*corev1.Pod{byPhase, drains, fails} {
		f.until(pod, "is marked", marked)
	}
	stop()
	for _, step := range []struct {
		pod    *corev1.Pod
		change []func(*corev1.Pod)
		want   string
	}{
		{byPhase, []func(*corev1.Pod){podtest.MainDone}, "Succeeded proxy PodPhase Decided"},
		{byPhase, []func(*corev1.Pod){sidecarExits(143)}, "Succeeded proxy PodPhase Decided"},
		{drains, []func(*corev1.Pod){podtest.MainDone}, "Running proxy Succeeded"},
		{drains, []func(*corev1.Pod){sidecarExits(7)}, "Succeeded proxy Decided"},
		{fails, []func(*corev1.Pod){mainExits(3)}, "Running proxy PodPhase Running"},
		{fails, []func(*corev1.Pod){sidecarExits(0)}, "Failed proxy PodPhase Running"},
	} {
		if f.change(step.pod, step.change...); outcomeOf(step.pod) != step.want {
			t.Errorf("%s is %q, want %q", step.pod.Name, outcomeOf(step.pod), step.want)
		}
	}
	f.nothingWentWrong()
}

// Where the admission policy is not installed, exit codes count as in Kubernetes. The operator works by itself once it is installed.
func TestOutcomeNotDecided(t *testing.T) {
	for name, tc := range map[string]struct {
		withKruise bool
		spec       func(*v1alpha1.PolicySpec)
		writes     []string // when main has ended
		stuck      bool
	}{
		"PodPhase": {false, mode(v1alpha1.ModePodPhase, ""), []string{"PATCH pods"}, false},
		"PodPhase alone": {false, func(spec *v1alpha1.PolicySpec) {
			spec.Mode, spec.Fallback = v1alpha1.ModePodPhase, v1alpha1.FallbackDisabled
		}, nil, true},
		"Auto": {true, mode(v1alpha1.ModeAuto, ""), []string{"PATCH pods"}, false},
		"CRR":  {true, mode(v1alpha1.ModeCRR, ""), []string{"POST containerrecreaterequests"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var k = newKruise(t)
			if !tc.withKruise {
				k = nil
			}
			b, clock := newTimedBench(t, k)
			b.inNewNamespace(map[string]string{undecidedLabel: "true"})
			policy := b.newPolicy("mesh", tc.spec)
			pod := b.newPod("job-1")
			for range 3 {
				b.reconcile(pod)
			}
			if _, answered := pod.Annotations[v1alpha1.AnnotationMainContainers]; answered || pod.Labels[v1alpha1.LabelOutcome] == "" {
				t.Fatalf("pod is %q", outcomeOf(pod))
			}
			before := len(b.writes.in(b.namespace))
			b.summarise(policy)
			b.reload(policy)
			if degraded := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionDegraded); degraded == nil || degraded.Reason != string(v1alpha1.ReasonOutcomeNotDecided) {
				t.Errorf("the policy is degraded as %+v", degraded)
			}
			b.change(pod, podtest.MainDone)
			var wait time.Duration
			for range 3 {
				wait = b.reconcile(pod).RequeueAfter
			}
			if got := slices.DeleteFunc(b.writes.in(b.namespace)[before:], func(w string) bool { return w == "PUT sidecarterminationpolicies/status" }); !slices.Equal(got, tc.writes) && !tc.stuck {
				t.Errorf("writes %q, want %q", got, tc.writes)
			}
			if succeeded(pod) {
				t.Error("the phase ends the pod")
			}
			if !tc.stuck {
				return
			}
			b.labelNamespace(undecidedLabel, "")
			b.untilDecided()
			for range 5 {
				if b.reload(pod); succeeded(pod) {
					break
				}
				if wait == 0 {
					t.Fatal("the pod is not requeued")
				}
				clock.SetTime(clock.Now().Add(wait))
				wait = b.reconcile(pod).RequeueAfter
			}
			b.is(pod, "Succeeded proxy PodPhase Decided")
		})
	}
}
