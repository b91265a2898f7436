//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// outcomePolicy is the admission policy that decides outcomes, and phasePolicy the one that keeps them.
const (
	outcomePolicy = "sidecar-termination-outcome"
	phasePolicy   = "sidecar-termination-phase"
)

// needsOutcomePolicy skips a test of what only the admission policy promises.
func needsOutcomePolicy(test *harness.Test) {
	test.Helper()
	if !test.ServesOutcomePolicy() {
		test.Skip("Needs an API server of Kubernetes 1.36 or later, which serves MutatingAdmissionPolicies")
	}
}

// Marked pods get the outcome of their main containers while the operator is down. Those that end by their phase also complete.
func TestOperatorDown(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	needsOutcomePolicy(test)
	byPhase, byRequest := named(with(v1alpha1.ModePodPhase), "by-phase"), named(with(v1alpha1.ModeCRR), "by-request")
	others := named(with(v1alpha1.ModeAuto, drains(3600)), "others")
	test.Create(byPhase, byRequest, others)
	const waits = "until [ -e /gate/open ]; do sleep 1; done; "
	gate, completes := test.Gate(), []string{"runs-on", "fails-first", "fails-later", "crash-loops"}
	for name, c := range map[string]struct {
		policy  *v1alpha1.SidecarTerminationPolicy
		sidecar string
		main    string
	}{
		"runs-on":       {byPhase, harness.IgnoresTerm, ""},
		"fails-first":   {others, "exit 7", ""},
		"fails-later":   {others, waits + "sleep 4; exit 2", ""},
		"crash-loops":   {byRequest, "sleep 3; exit 1", ""},
		"main-has-exit": {others, waits + "sleep 4", "exit 3"},
	} {
		restartPolicy, backoffLimit := corev1.RestartPolicyNever, int32(0)
		if name == "crash-loops" {
			restartPolicy, backoffLimit = corev1.RestartPolicyOnFailure, 20
		}
		job := harness.Job(name, restartPolicy, harness.Sidecar(c.sidecar), harness.Main(0))
		job.Spec.Template.Labels, job.Spec.BackoffLimit = c.policy.Spec.PodSelector.MatchLabels, &backoffLimit
		gate.Hold(&job.Spec.Template)
		pod := &job.Spec.Template.Spec
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, pod.Containers[1].VolumeMounts...)
		pod.Containers[1].Command[len(pod.Containers[1].Command)-1] += "; " + c.main
		test.Create(job)
	}
	waitForMarks(test, v1alpha1.AnnotationMainContainers, append(completes, "main-has-exit")...)
	test.StandInForOperator()
	gate.Open()
	requireAllCompleted(test, completes)
	test.WaitForFailed("main-has-exit")
}

// waitForMarks waits until the pods of the Jobs have the label or annotation, and their main containers run.
func waitForMarks(test *harness.Test, key string, jobs ...string) {
	test.Helper()
	test.EventuallySeen("the main containers of marked pods to run", harness.StartTimeout, func(seen harness.Seen) error {
		for _, job := range jobs {
			pods := seen.Pods(job)
			if len(pods) == 0 || !slices.Contains(pods[0].Running(), harness.MainName) ||
				pods[0].Pod.Labels[key] == "" && pods[0].Pod.Annotations[key] == "" {
				return errors.New(job + ": " + seen.Describe(job))
			}
		}
		return nil
	})
}

// After a pod has ended, its kubelet writes its status no more, and the phase outlasts the admission policy.
func TestOutcomeLeavesNothingBehind(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.RestoreWith("reinstall")
	pods, quiet := int32(5), 12*time.Second
	if testenv.Long() {
		pods, quiet = 200, time.Minute
	}
	for _, mode := range modes[:3] {
		policy := columnPolicy(mode)
		test.Create(policy)
		job := harness.Job(strings.ToLower(string(mode)), corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
		job.Spec.Template.Labels, job.Spec.BackoffLimit = policy.Spec.PodSelector.MatchLabels, ptr.To[int32](0)
		// When many pods end at once, the kubelet reports some of them after its worker is done with them.
		job.Spec.Completions, job.Spec.Parallelism = ptr.To(pods), ptr.To[int32](20)
		test.Create(job)
	}
	for _, mode := range modes[:3] {
		job := strings.ToLower(string(mode))
		test.WaitForCompleteWithin(job, harness.FinishTimeout+time.Duration(pods)*10*time.Second)
		test.RequireAllFinished(job, int(pods))
	}
	// Last writes and pods of other tests end. A kubelet that has not learned a phase writes every 10 seconds for ever.
	last, since := 0, time.Now()
	test.Eventually(fmt.Sprintf("%s without a write", quiet), harness.FinishTimeout, func(context.Context) error {
		wait(test, time.Second)
		if now := evaluations(test); now != last || now == 0 && test.ServesOutcomePolicy() {
			last, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("an admission policy was evaluated at %s, for the %dth time", since, last)
		}
		return nil
	})
	if test.ServesOutcomePolicy() {
		kubectl(test, "delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", outcomePolicy)
		wait(test, quiet)
	}
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.AllPods() {
			if record.Pod.Status.Phase != corev1.PodSucceeded {
				t.Errorf("Pod %s is %s, want Succeeded", record.Pod.Name, record.Pod.Status.Phase)
			}
			test.RequireNoReversal(record)
		}
	})
}

// wait waits for the duration, in which nothing must happen.
func wait(test *harness.Test, quiet time.Duration) {
	select {
	case <-time.After(quiet):
	case <-test.Context().Done():
	}
}

// evaluations returns how often the API server has evaluated the admission policy that decides outcomes, and how often the one that keeps them has
// denied a write. A write without effect shows in nothing else.
func evaluations(test *harness.Test) int {
	test.Helper()
	count := 0.0
	for line := range strings.Lines(kubectl(test, "get", "--raw", "/metrics")) {
		counts := strings.Contains(line, `policy="`+outcomePolicy+`"`) || strings.Contains(line, `policy="`+phasePolicy+`"`)
		if strings.Contains(line, "_admission_policy_check_total{") && counts {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			if err != nil {
				test.Fatalf("Read the metrics: %v in %q", err, line)
			}
			count += value
		}
	}
	return int(count)
}

// While the admission policy is away, or broken, the operator decides the outcome of pods that run, of all modes. The control is a pod that ends
// while the operator is away as well: it fails, and the next operator reports that, and that policies have no admission policy to rely on.
func TestOutcomePolicyAway(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.RestoreWith("reinstall")
	policies := []*v1alpha1.SidecarTerminationPolicy{columnPolicy(v1alpha1.ModeCRR), columnPolicy(v1alpha1.ModeImage), columnPolicy(v1alpha1.ModePodPhase)}
	test.Create(policies[0], policies[1], policies[2])
	// start runs a Job of each mode with a sidecar that fails at SIGTERM, and one with a sidecar that fails first.
	start := func(name string) (ends, fails []string, gate *harness.Gate) {
		gate = test.Gate()
		for _, policy := range policies {
			prefix := strings.ToLower(string(policy.Spec.Mode))
			for kind, script := range map[string]string{"-ends-": harness.ExitsSevenOnTerm, "-fails-": "exit 7"} {
				job := harness.Job(prefix+kind+name, corev1.RestartPolicyNever, harness.Sidecar(script), harness.Main(0))
				job.Spec.Template.Labels, job.Spec.BackoffLimit = policy.Spec.PodSelector.MatchLabels, ptr.To[int32](0)
				gate.Hold(&job.Spec.Template)
				test.Create(job)
			}
			ends, fails = append(ends, prefix+"-ends-"+name), append(fails, prefix+"-fails-"+name)
		}
		waitForMarks(test, v1alpha1.LabelOutcome, slices.Concat(ends, fails)...)
		return ends, fails, gate
	}
	probe := harness.Pod("probe", map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}, harness.PodTemplate(corev1.RestartPolicyNever, harness.Main(0)))
	probe.Spec.NodeSelector = map[string]string{"e2e.sidecartermination.dev/no-node": "has-this-label"}
	test.Create(probe)
	var before []string
	for _, round := range []struct {
		name   string
		change func()
		active bool
	}{
		{"removed", func() { removeOutcomePolicy(test) }, false},
		{"restored", func() { test.LocalCluster("reinstall") }, true},
		{"broken", func() {
			kubectl(test, "patch", "mutatingadmissionpolicy", outcomePolicy, "--type=json",
				`--patch=[{"op": "replace", "path": "/spec/variables/0/expression", "value": "string(1 / (oldObject.spec.containers.size() - oldObject.spec.containers.size()))"}]`)
		}, false},
	} {
		// Older API servers have only the control.
		if !test.ServesOutcomePolicy() {
			break
		}
		// The pods of a round start while those of the round before end.
		ends, fails, gate := start(round.name)
		requireAllCompleted(test, before)
		round.change()
		waitForPolicy(test, probe, round.active)
		gate.Open()
		before = slices.Concat(ends, fails)
	}

	_, fails, gate := start("control")
	requireAllCompleted(test, before)
	removeOutcomePolicy(test)
	kubectl(test, "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", phasePolicy)
	test.StandInForOperator()
	gate.Open()
	for _, job := range fails {
		test.WaitForFailed(job)
	}
	policy := named(with(v1alpha1.ModeAuto), "no-pods")
	test.Create(policy)
	test.MergePatch(harness.OperatorDeployment(), `{"spec":{"replicas":1}}`)
	for _, job := range fails {
		test.WaitForEvent(test.RecordOf(job).Pod, v1alpha1.ReasonDecidedTooLate)
	}
	test.EventuallyStatus(policy, "the policy to report that outcomes may be taken back", func(status v1alpha1.PolicyStatus) error {
		if degraded := harness.Condition(status, v1alpha1.ConditionDegraded); degraded.Reason != string(v1alpha1.ReasonOutcomeNotDecided) {
			return fmt.Errorf("degraded is %+v", degraded)
		}
		return nil
	})
}

// requireAllCompleted does what RequireCompleted does with each of the Jobs.
func requireAllCompleted(test *harness.Test, jobs []string) {
	test.Helper()
	for _, job := range jobs {
		test.RequireCompleted(job)
	}
}

// removeOutcomePolicy deletes the admission policy that decides outcomes, if the API server has its kind.
func removeOutcomePolicy(test *harness.Test) {
	test.Helper()
	if test.ServesOutcomePolicy() {
		kubectl(test, "delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", outcomePolicy)
	}
}

// waitForPolicy waits until the API server evaluates the admission policy, or no longer does, for the pod's status.
func waitForPolicy(test *harness.Test, pod *corev1.Pod, active bool) {
	test.Helper()
	test.Eventually(fmt.Sprintf("evaluation of the admission policy to be %t", active), harness.StatusTimeout, func(ctx context.Context) error {
		written := pod.DeepCopy()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationMainContainers))
		if err := test.Client.Status().Patch(ctx, written, patch, client.DryRunAll); err != nil {
			return err
		}
		if _, answered := written.Annotations[v1alpha1.AnnotationMainContainers]; answered != active {
			return fmt.Errorf("the annotations are %v", written.Annotations)
		}
		return nil
	})
}
