// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

// ruleFor is a rule of a podFailurePolicy. Without a container it has no containerName.
func ruleFor(container string, action batchv1.PodFailurePolicyAction, operator batchv1.PodFailurePolicyOnExitCodesOperator, codes ...int32) batchv1.PodFailurePolicyRule {
	requirement := &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: operator, Values: codes}
	if container != "" {
		requirement.ContainerName = &container
	}
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: requirement}
}

// shown lists the findings with the reason that lint shows, as SEVERITY CONTAINER. Each must have a hint.
func shown(t *testing.T, w *fixture, reason v1alpha1.Reason) []string {
	t.Helper()
	var all []string
	for _, f := range explain.Lint(explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings) {
		if f.Reason != reason {
			continue
		}
		if f.Hint == "" {
			t.Errorf("finding without a hint: %+v", f)
		}
		all = append(all, fmt.Sprintf("%s %s", f.Severity, f.Container))
	}
	return all
}

func TestFailurePolicy(t *testing.T) {
	const (
		ignore, count      = batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionCount
		failJob, failIndex = batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionFailIndex
		in, notIn          = batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn
	)
	proxy := func(w *fixture) { w.policy(asIs, "proxy") }
	stopped := ruleFor("", ignore, in, 137, 143)
	onCondition := batchv1.PodFailurePolicyRule{Action: ignore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}
	for name, tc := range map[string]struct {
		change func(w *fixture)
		rules  []batchv1.PodFailurePolicyRule
		want   []string // SEVERITY CONTAINER
	}{
		"no rule":                      {proxy, nil, nil},
		"rule on a condition":          {proxy, []batchv1.PodFailurePolicyRule{onCondition}, nil},
		"Ignore":                       {proxy, []batchv1.PodFailurePolicyRule{stopped}, []string{"Warning proxy"}},
		"FailJob on SIGTERM":           {proxy, []batchv1.PodFailurePolicyRule{ruleFor("", failJob, in, 143)}, []string{"Warning proxy"}},
		"FailIndex on SIGKILL":         {proxy, []batchv1.PodFailurePolicyRule{ruleFor("", failIndex, in, 137)}, []string{"Warning proxy"}},
		"Count is the default":         {proxy, []batchv1.PodFailurePolicyRule{ruleFor("", count, in, 143)}, nil},
		"Count before another rule":    {proxy, []batchv1.PodFailurePolicyRule{ruleFor("", count, in, 143), ruleFor("main", failJob, in, 42)}, []string{"Warning proxy"}},
		"rule names main":              {proxy, []batchv1.PodFailurePolicyRule{ruleFor("main", ignore, in, 137, 143)}, nil},
		"rule names the sidecar":       {proxy, []batchv1.PodFailurePolicyRule{ruleFor("proxy", failJob, in, 143)}, []string{"Warning proxy"}},
		"rule names its own code":      {proxy, []batchv1.PodFailurePolicyRule{ruleFor("proxy", failJob, in, 42)}, nil},
		"rule names another container": {proxy, []batchv1.PodFailurePolicyRule{ruleFor("init", failJob, in, 143)}, nil},
		"other codes":                  {proxy, []batchv1.PodFailurePolicyRule{ruleFor("", failJob, in, 1, 42)}, []string{"Note proxy"}},
		"all codes except one":         {proxy, []batchv1.PodFailurePolicyRule{ruleFor("", failJob, notIn, 42)}, []string{"Warning proxy"}},
		"all codes except these":       {proxy, []batchv1.PodFailurePolicyRule{ruleFor("", failJob, notIn, 137, 143)}, []string{"Note proxy"}},
		"every failure":                {proxy, []batchv1.PodFailurePolicyRule{ruleFor("", failJob, notIn, 0)}, nil},
		"every failure of main first":  {proxy, []batchv1.PodFailurePolicyRule{ruleFor("main", failJob, notIn, 0), stopped}, nil},
		"some failures of main first":  {proxy, []batchv1.PodFailurePolicyRule{ruleFor("main", failJob, in, 42), stopped}, []string{"Warning proxy"}},
		"unknown action":               {proxy, []batchv1.PodFailurePolicyRule{ruleFor("", "Retry", in, 143)}, nil},
		"two rules": {proxy, []batchv1.PodFailurePolicyRule{stopped, ruleFor("", failJob, in, 143)},
			[]string{"Warning proxy", "Warning proxy"}},
		"two sidecars": {func(w *fixture) { w.policy(asIs, "proxy", "logs"); w.also("logs") }, []batchv1.PodFailurePolicyRule{stopped}, []string{"Warning "}},
		"native sidecar": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers = w.Pod.Pod.Spec.Containers[:1]
			w.Pod.Pod.Spec.InitContainers = []corev1.Container{
				{Name: "setup"}, {Name: "native", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			}
		}, []batchv1.PodFailurePolicyRule{stopped}, []string{"Warning native"}},
		"no sidecar":                  {func(w *fixture) { w.only("main") }, []batchv1.PodFailurePolicyRule{stopped}, nil},
		"sidecar of a DryRun policy":  {func(w *fixture) { w.policy(dryRun, "proxy") }, []batchv1.PodFailurePolicyRule{stopped}, nil},
		"only sidecars":               {func(w *fixture) { w.policy(asIs, "main", "proxy") }, []batchv1.PodFailurePolicyRule{stopped}, nil},
		"image that exits with 0":     {withImage(mode(v1alpha1.ModeImage)), []batchv1.PodFailurePolicyRule{stopped}, nil},
		"image that Auto tries first": {withImage(asIs), []batchv1.PodFailurePolicyRule{stopped}, nil},
		"image on some nodes only": {func(w *fixture) {
			w.policy(mode(v1alpha1.ModeCRR), "proxy")
			w.operator.Resolve.Image, w.cluster.VirtualNodes = "quick-exit:v1", ptr.To(true)
		}, []batchv1.PodFailurePolicyRule{stopped}, []string{"Warning proxy"}},
		"image that does not cover": {uncovered(mode(v1alpha1.ModeImage)), []batchv1.PodFailurePolicyRule{stopped}, []string{"Warning proxy"}},
		"exit code that counts":     {func(w *fixture) { w.policy(respect, "proxy") }, []batchv1.PodFailurePolicyRule{stopped}, nil},
		"restartPolicy OnFailure": {func(w *fixture) {
			proxy(w)
			w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		}, []batchv1.PodFailurePolicyRule{stopped}, nil},
		"main runs":      {func(w *fixture) { proxy(w); w.runs(plan.NodeReal) }, []batchv1.PodFailurePolicyRule{stopped}, []string{"Warning proxy"}},
		"main succeeded": {func(w *fixture) { proxy(w); w.live(time.Second, 0) }, []batchv1.PodFailurePolicyRule{stopped}, nil},
		"main failed":    {func(w *fixture) { proxy(w); w.live(time.Second, 1) }, []batchv1.PodFailurePolicyRule{stopped}, []string{"Warning proxy"}},
		"finished pod": {func(w *fixture) {
			proxy(w)
			w.live(time.Hour, 1)
			w.Pod.Pod.Status.Phase = corev1.PodFailed
		}, []batchv1.PodFailurePolicyRule{stopped}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			tc.change(w)
			if tc.rules != nil {
				w.FailurePolicy = &batchv1.PodFailurePolicy{Rules: tc.rules}
			}
			if diff := cmp.Diff(tc.want, shown(t, w, v1alpha1.ReasonSidecarMatchesFailurePolicy)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// withoutKruise declares proxy in a cluster where only the pod's phase can end it.
func withoutKruise(change func(*v1alpha1.PolicySpec)) func(*fixture) {
	return func(w *fixture) { w.policy(change, "proxy"); w.cluster.Kruise = ptr.To(false) }
}

func TestDeletedWhileEnding(t *testing.T) {
	proxy := withoutKruise(asIs)
	for name, tc := range map[string]struct {
		change func(w *fixture)
		after  time.Duration
		want   []string // SEVERITY CONTAINER
	}{
		"at once":                    {proxy, 0, []string{"Note proxy"}},
		"within the grace period":    {proxy, 29 * time.Second, []string{"Note proxy"}},
		"after the grace period":     {proxy, 30 * time.Second, nil},
		"within a long grace period": {func(w *fixture) { proxy(w); w.Pod.Pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60) }, 30 * time.Second, []string{"Note proxy"}},
		"no sidecar":                 {func(w *fixture) { w.Pod.Pod.Spec.Containers = w.Pod.Pod.Spec.Containers[:1] }, 0, nil},
		"OpenKruise":                 {func(w *fixture) { proxy(w); w.cluster.Kruise = ptr.To(true) }, 0, nil},
		"mode PodPhase":              {func(w *fixture) { w.policy(mode(v1alpha1.ModePodPhase), "proxy") }, 0, []string{"Note proxy"}},
		"exit code that counts":      {func(w *fixture) { w.policy(respect, "proxy") }, 0, nil},
		"operator without the phase": {func(w *fixture) { proxy(w); w.operator.Capabilities.PodPhase = plan.PodPhaseDisabled }, 0, nil},
		"phase as the last resort": {func(w *fixture) {
			proxy(w)
			w.operator.Resolve.Image = "quick-exit:v1"
			w.operator.Capabilities.PodPhase = plan.PodPhaseLastResort
		}, 0, nil},
		"main runs":    {func(w *fixture) { proxy(w); w.runs(plan.NodeReal) }, 0, []string{"Note proxy"}},
		"finished pod": {func(w *fixture) { proxy(w); w.succeeded() }, 0, nil},
		"two sidecars": {func(w *fixture) { proxy(w); w.policy(asIs, "logs"); w.also("logs") }, 0, []string{"Note "}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			tc.change(w)
			w.Deletion = &explain.Deletion{Field: "ttlSecondsAfterFinished", After: tc.after}
			if diff := cmp.Diff(tc.want, shown(t, w, v1alpha1.ReasonDeletedWhileEnding)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForeignFinalizer(t *testing.T) {
	proxy := withoutKruise(asIs)
	for name, tc := range map[string]struct {
		change     func(w *fixture)
		finalizers []string
		deletion   *explain.Deletion
		want       []string // SEVERITY CONTAINER
	}{
		"no finalizer":             {proxy, nil, nil, nil},
		"finalizers of Kubernetes": {proxy, []string{batchv1.JobTrackingFinalizer, metav1.FinalizerDeleteDependents}, nil, nil},
		"foreign finalizer":        {proxy, []string{batchv1.JobTrackingFinalizer, "example.com/keep"}, nil, []string{"Note proxy"}},
		"early deletion":           {proxy, []string{"example.com/keep"}, &explain.Deletion{Field: "ttlSecondsAfterFinished"}, []string{"Warning proxy"}},
		"late deletion":            {proxy, []string{"example.com/keep"}, &explain.Deletion{After: time.Hour}, []string{"Note proxy"}},
		"no sidecar":               {func(*fixture) {}, []string{"example.com/keep"}, nil, nil},
		"no phase": {func(w *fixture) {
			proxy(w)
			w.operator.Capabilities.PodPhase = plan.PodPhaseDisabled
		}, []string{"example.com/keep"}, nil, nil},
		"main container running": {func(w *fixture) { proxy(w); w.runs(plan.NodeReal) }, []string{"example.com/keep"}, nil, []string{"Note proxy"}},
		"finished pod":           {func(w *fixture) { proxy(w); w.succeeded() }, []string{"example.com/keep"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			tc.change(w)
			w.Pod.Pod.Finalizers, w.Deletion = tc.finalizers, tc.deletion
			if diff := cmp.Diff(tc.want, shown(t, w, v1alpha1.ReasonForeignFinalizer)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
