// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/admissiontest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/plan"
)

const outcomePolicy = "sidecar-termination-outcome"

// stored returns the pod that the API server stores when a kubelet writes a pod's status.
func stored(ctx context.Context, policy *admissiontest.Mutating, old, written *corev1.Pod) (*corev1.Pod, error) {
	pod, err := policy.Mutate(ctx, admissiontest.Request{
		Operation: admission.Update, Resource: admissiontest.Pods, Subresource: "status", Old: old, New: written, User: &user.DefaultInfo{Name: "kubelet"},
	})
	if err != nil {
		return nil, err
	}
	return pod.(*corev1.Pod), nil
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
	old.Spec.TerminationGracePeriodSeconds = ptr.To([]int64{30, 60, 61, 3600, 3601}[r.IntN(5)])
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
		pod.Status.StartTime = []*metav1.Time{nil, {}, {Time: done}, {Time: done}, {Time: done}, {Time: done}}[r.IntN(6)]
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
	for _, annotation := range []struct {
		key    string
		values []string
	}{
		{v1alpha1.AnnotationIgnoredExitCodes, []string{"", "-", "proxy/4a1b", "proxy/4a1b", "proxy,logs/4a1b", "logs/4a1b", "main/4a1b", "proxy", "main/other"}},
		{v1alpha1.AnnotationEnd, []string{
			"", "", "PodPhase/4a1b", "CRR/4a1b", "PodPhase/other", "Failed/4a1b", "Exited/4a1b", "Restarted/4a1b", "Restarted/4a1b", "Waiting/4a1b", "Waiting/4a1b", "Waiting/other",
		}},
		{v1alpha1.AnnotationMainContainers, []string{"", "", "Running/4a1b", "Running/4a1b", "Succeeded/4a1b", "Decided/4a1b", "Succeeded/other"}},
	} {
		if value := annotation.values[r.IntN(len(annotation.values))]; value != "" {
			annotate(pod, annotation.key, strings.TrimPrefix(value, "-"))
		}
	}
}

func randomStatus(r *rand.Rand, name string, at func() metav1.Time) corev1.ContainerStatus {
	status := corev1.ContainerStatus{Name: name, RestartCount: int32(r.IntN(2))}
	if r.IntN(3) == 0 {
		status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 7}
		if r.IntN(4) > 0 {
			status.LastTerminationState.Terminated.FinishedAt = at()
		}
	}
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
func differences(ctx context.Context, policy *admissiontest.Mutating, writes int) string {
	r := rand.New(rand.NewPCG(1, 2))
	for range writes {
		old, written := randomWrite(r)
		got, err := stored(ctx, policy, old, written)
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
	shipped, err := admissiontest.Shipped[admissionv1.MutatingAdmissionPolicy](outcomePolicy)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := admissiontest.CompileMutating(shipped)
	if err != nil {
		t.Fatal(err)
	}
	if difference := differences(t.Context(), policy, 5000); difference != "" {
		t.Error(difference)
	}
}

// Each change of an expression is found.
func TestMutationsOfAdmissionPolicyAreFound(t *testing.T) {
	if !testenv.Long() {
		t.Skip("Takes minutes, for which LONG=1 asks")
	}
	policy, err := admissiontest.Shipped[admissionv1.MutatingAdmissionPolicy](outcomePolicy)
	if err != nil {
		t.Fatal(err)
	}
	var all mutation
	all.run(t, &policy.Spec.Mutations[0].JSONPatch.Expression, policy.Spec.MatchConditions, policy.Spec.Variables, func() bool {
		mutant, err := admissiontest.CompileMutating(policy)
		return err != nil || differences(t.Context(), mutant, 20000) != ""
	})
	all.mustSuffice(t)
}

// mutation counts the changes of expressions, and those that a test has found.
type mutation struct{ mutants, found int }

// run changes each expression of an admission policy in turn. decision is the one that decides.
func (m *mutation) run(t *testing.T, decision *string, conditions []admissionv1.MatchCondition, variables []admissionv1.Variable, isFound func() bool) {
	t.Helper()
	expressions := []*string{decision}
	for i := range conditions {
		expressions = append(expressions, &conditions[i].Expression)
	}
	for i := range variables {
		expressions = append(expressions, &variables[i].Expression)
	}
	for _, expression := range expressions {
		original := *expression
		for _, text := range admissiontest.Mutants(original) {
			*expression = text
			m.mutants++
			if isFound() {
				m.found++
				continue
			}
			t.Logf("not found: %s\nof: %s", text, original)
		}
		*expression = original
	}
}

func (m *mutation) mustSuffice(t *testing.T) {
	t.Helper()
	t.Logf("%d of %d mutants are found", m.found, m.mutants)
	if m.found*100 < m.mutants*95 {
		t.Errorf("%d of %d mutants are found, want 95 %%", m.found, m.mutants)
	}
}

// decide is admission policy sidecar-termination-outcome (config/admission/outcome.yaml, whose variables it names): it returns the pod
// that the API server stores when a client writes a pod's status.
func decide(old, written *corev1.Pod) *corev1.Pod {
	pod := written.DeepCopy()
	marked := func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelOutcome] == v1alpha1.OutcomeMainContainers }
	jobType := old.Spec.RestartPolicy == never || old.Spec.RestartPolicy == onFailure
	if !marked(old) && !marked(written) || !jobType || len(old.Spec.Containers) > plan.MaxContainers {
		return pod
	}
	unprotected := func(key string) bool {
		value, found := old.Annotations[key]
		other, kept := written.Annotations[key]
		return !marked(old) && found && kept && value == other
	}
	believed := func(key string) string {
		value, found := written.Annotations[key]
		switch {
		case unprotected(key):
			return ""
		case !found && marked(old):
			return old.Annotations[key]
		}
		return value
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
	for _, key := range []string{v1alpha1.AnnotationIgnoredExitCodes, v1alpha1.AnnotationEnd} {
		if _, found := old.Annotations[key]; found && marked(old) {
			annotate(pod, key, believed(key))
		}
		if unprotected(key) {
			delete(pod.Annotations, key)
		}
	}
	if unprotected(v1alpha1.AnnotationMainContainers) {
		delete(pod.Annotations, v1alpha1.AnnotationMainContainers)
	}
	record, phase := plan.DecideOutcome(old, pod)
	annotate(pod, v1alpha1.AnnotationMainContainers, record+"/"+string(old.UID))
	pod.Status.Phase = phase
	return pod
}
