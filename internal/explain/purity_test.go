// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
)

// unchanged fails the test if the function modified its argument, which equals the copy before the call.
func unchanged(t *testing.T, function string, copied, given any) {
	t.Helper()
	all := cmp.Exporter(func(reflect.Type) bool { return true })
	if difference := cmp.Diff(copied, given, all); difference != "" {
		t.Errorf("%s modified its argument (-before +after):\n%s", function, difference)
	}
}

func TestArgumentsAreNotModified(t *testing.T) {
	for name, change := range map[string]func(w *fixture){
		"template":              func(w *fixture) { w.policy(asIs, "proxy") },
		"pod whose main runs":   func(w *fixture) { w.runs(plan.NodeReal); w.policy(asIs, "proxy") },
		"pod whose main ended":  func(w *fixture) { w.live(time.Hour, 0); w.policy(asIs, "proxy") },
		"pod whose main failed": func(w *fixture) { w.live(time.Hour, 1); w.policy(asIs, "proxy") },
		"Job with a podFailurePolicy": func(w *fixture) {
			w.policy(asIs, "proxy")
			w.FailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				ruleFor("", batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyOnExitCodesOpIn, 143, 137),
				ruleFor("", batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyOnExitCodesOpIn, 1),
			}}
		},
		// A manifest may have a status without a node.
		"main ended and no node": func(w *fixture) {
			w.live(time.Hour, 0)
			w.policy(asIs, "proxy")
			w.Pod.Pod.Spec.NodeName, w.Node = "", plan.NodeUnknown
		},
		"two policies and a DryRun policy": func(w *fixture) {
			w.live(time.Hour, 0)
			w.policy(dryRun, "proxy")
			w.policy(asIs, "proxy", "missing")
			w.policy(func(s *v1alpha1.PolicySpec) { s.Priority = 1 }, "proxy")
		},
		"restartPolicy Always": func(w *fixture) {
			w.policy(asIs, "proxy")
			w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		},
	} {
		t.Run(name, func(t *testing.T) {
			given, copied := newFixture(), newFixture()
			change(given)
			change(copied)

			first := explain.Explain(given.Pod, given.operator, given.cluster, noon)
			unchanged(t, "Explain", copied, given)
			second := explain.Explain(given.Pod, given.operator, given.cluster, noon)
			unchanged(t, "Explain, given the result of its first call,", second, first)

			policy := explain.Policy{Ref: given.Policies[0].Ref, Spec: given.Policies[0].Spec}
			explain.DescribePolicy(policy, []explain.Report{first}, given.operator)
			unchanged(t, "DescribePolicy", copied, given)
			unchanged(t, "DescribePolicy", second, first)

			explain.Lint(first.Findings)
			explain.Worst(first.Findings)
			explain.IsJobType(given.Pod.Pod)
			unchanged(t, "Lint or Worst", second, first)
			unchanged(t, "IsJobType", copied, given)

			rejections := []string{"spec: b", "spec: a"}
			explain.RejectedPolicy(policy.Ref, rejections)
			unchanged(t, "RejectedPolicy", []string{"spec: b", "spec: a"}, rejections)
		})
	}
}
