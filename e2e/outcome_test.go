//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// outcomePolicy is the admission policy that decides outcomes.
const outcomePolicy = "sidecar-termination-outcome"

// Marked pods get the outcome of their main containers while the operator is down. Those that end by their phase also complete.
func TestOperatorDown(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	byPhase, byRequest, others := with(v1alpha1.ModePodPhase), with(v1alpha1.ModeCRR), with(v1alpha1.ModeAuto, drains(3600))
	byPhase.Name, byRequest.Name, others.Name = "by-phase", "by-request", "others"
	for _, policy := range []*v1alpha1.SidecarTerminationPolicy{byPhase, byRequest, others} {
		policy.Spec.PodSelector.MatchLabels = map[string]string{policyLabel: policy.Name}
		test.Create(policy)
	}
	const waits = "until [ -e /gate/open ]; do sleep 1; done; "
	var gates []*harness.Gate
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
		gates = append(gates, test.Gate(&job.Spec.Template))
		pod := &job.Spec.Template.Spec
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, pod.Containers[1].VolumeMounts...)
		pod.Containers[1].Command[len(pod.Containers[1].Command)-1] += "; " + c.main
		test.Create(job)
	}
	test.EventuallySeen("all pods to be marked, and to run", harness.StartTimeout, func(seen harness.Seen) error {
		pods := seen.AllPods()
		for _, record := range pods {
			if main := record.Container(harness.MainName); record.Pod.Annotations[v1alpha1.AnnotationMainContainers] == "" || main == nil || main.State.Running == nil {
				return errors.New(record.Pod.Name)
			}
		}
		if len(pods) != len(gates) {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		return nil
	})
	test.StandInForOperator()
	for _, gate := range gates {
		gate.Open()
	}
	for _, job := range []string{"runs-on", "fails-first", "fails-later", "crash-loops"} {
		test.RequireCompleted(job)
	}
	test.WaitForFailed("main-has-exit")
}

// After a pod has ended, its kubelet writes its status no more, and the phase outlasts the admission policy.
func TestOutcomeLeavesNothingBehind(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.RestoreWith("deploy")
	pods, quiet := int32(5), 15*time.Second
	if testenv.Long() {
		pods, quiet = 200, time.Minute
	}
	actual := []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase}
	for _, mode := range actual {
		policy := columnPolicy(mode)
		test.Create(policy)
		job := harness.Job(strings.ToLower(string(mode)), corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
		job.Spec.Template.Labels, job.Spec.BackoffLimit = policy.Spec.PodSelector.MatchLabels, ptr.To[int32](0)
		// When many pods end at once, the kubelet reports some of them after its worker is done with them.
		job.Spec.Completions, job.Spec.Parallelism = ptr.To(pods), ptr.To[int32](20)
		test.Create(job)
	}
	for _, mode := range actual {
		test.WaitForCompleteWithin(strings.ToLower(string(mode)), harness.FinishTimeout+time.Duration(pods)*10*time.Second)
	}
	test.EventuallySeen("all containers to end", harness.FinishTimeout, func(seen harness.Seen) error {
		if all := seen.AllPods(); anyRunning(all) {
			return fmt.Errorf("of %d pods, some run", len(all))
		}
		return nil
	})
	// Last writes and pods of other tests end. A kubelet that has not learned a phase writes every 10 seconds for ever.
	test.Eventually(fmt.Sprintf("%s without a write", quiet), harness.FinishTimeout, func(context.Context) error {
		before := evaluations(test)
		wait(test, quiet)
		if after := evaluations(test); before == 0 || after != before {
			return fmt.Errorf("the admission policy was evaluated %d times after %d evaluations", after-before, before)
		}
		return nil
	})
	kubectl(test, "delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", outcomePolicy)
	wait(test, quiet)
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

// evaluations returns how often the API server has evaluated the admission policy. A write without effect shows in nothing else.
func evaluations(test *harness.Test) int {
	test.Helper()
	count := 0.0
	for line := range strings.Lines(kubectl(test, "get", "--raw", "/metrics")) {
		if strings.HasPrefix(line, "apiserver_mutating_admission_policy_check_total{") && strings.Contains(line, `policy="`+outcomePolicy+`"`) {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			if err != nil {
				test.Fatalf("Read the metrics: %v in %q", err, line)
			}
			count += value
		}
	}
	return int(count)
}

// Without the admission policy, modes CRR and Image end sidecars, exit codes count as in Kubernetes, and the policy says so. Once it is
// installed, pods that already run get their outcome by it.
func TestOutcomePolicyInstalledLate(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.RestoreWith("deploy")
	kubectl(test, "delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", outcomePolicy)
	probe := harness.Pod("probe", map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}, harness.PodTemplate(corev1.RestartPolicyNever, harness.Main(0)))
	probe.Spec.NodeSelector = map[string]string{"e2e.sidecartermination.dev/no-node": "has-this-label"}
	test.Create(probe)
	waitForPolicy(test, probe, false)
	policy := with(v1alpha1.ModeCRR)
	test.Create(policy)
	job := func(name string) *batchv1.Job {
		job := harness.Job(name, corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
		job.Spec.BackoffLimit = ptr.To[int32](0)
		return job
	}
	late := job("late")
	gate := test.Gate(&late.Spec.Template)
	test.Create(job("early"), late)
	test.WaitForFailed("early")
	test.EventuallyStatus(policy, "the policy to report that outcomes are not decided", func(status v1alpha1.PolicyStatus) error {
		if degraded := harness.Condition(status, v1alpha1.ConditionDegraded); degraded.Reason != string(v1alpha1.ReasonOutcomeNotDecided) {
			return fmt.Errorf("degraded is %+v", degraded)
		}
		return nil
	})
	test.WaitForRunning("late")
	test.LocalCluster("deploy")
	waitForPolicy(test, probe, true)
	gate.Open()
	test.RequireCompleted("late")
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
