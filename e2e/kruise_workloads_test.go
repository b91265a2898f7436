//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	lifecycleState     = "lifecycle.apps.kruise.io/state"
	preparingNormal    = "PreparingNormal"
	normal             = "Normal"
	preNormalHookLabel = "example.com/ready"
)

// Pods of a CloneSet have restartPolicy Always, so the operator ignores them.
func TestCloneSetIsIgnored(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	labels := map[string]string{"app": "clone"}
	template := harness.PodTemplate(corev1.RestartPolicyAlways, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Container(harness.MainName, harness.ExitsZeroOnTerm))
	template.Labels = labels
	cloneSet := harness.Kruise("CloneSet", "clone", map[string]any{
		"replicas":      int64(2),
		"selector":      map[string]any{"matchLabels": map[string]any{"app": "clone"}},
		"template":      harness.ToMap(template),
		"scaleStrategy": map[string]any{"disablePVCReuse": true},
		"lifecycle": map[string]any{"preNormal": map[string]any{
			"labelsHandler": map[string]any{preNormalHookLabel: "true"},
		}},
	})
	test.Create(harness.Policy(v1alpha1.ModeAuto), cloneSet)
	waitForLifecycle(test, 2, preparingNormal)

	pods := &corev1.PodList{}
	if err := test.Client.List(test.Context(), pods, client.InNamespace(test.Namespace)); err != nil {
		test.Fatal(err)
	}
	for i := range pods.Items {
		test.MergePatch(&pods.Items[i], `{"metadata":{"labels":{"`+preNormalHookLabel+`":"true"}}}`)
	}
	waitForLifecycle(test, 2, normal)
	test.EventuallyGet(cloneSet, "the CloneSet to be ready", harness.FinishTimeout, func() error {
		if ready, _, _ := unstructured.NestedInt64(cloneSet.Object, "status", "readyReplicas"); ready != 2 {
			return fmt.Errorf("the status is %v", cloneSet.Object["status"])
		}
		return nil
	})

	test.Create(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(2)))
	test.WaitForComplete("job")
	for i := range pods.Items {
		requireUntouched(test, pods.Items[i].Name)
	}
}

// waitForLifecycle waits until the wanted number of the CloneSet's pods has the lifecycle state.
func waitForLifecycle(test *harness.Test, wanted int, state string) {
	test.Helper()
	test.EventuallySeen(fmt.Sprintf("%d pods in lifecycle state %s", wanted, state), harness.StartTimeout, func(seen harness.Seen) error {
		pods := seen.Pods("clone")
		found := 0
		for _, record := range pods {
			if record.Pod.Labels[lifecycleState] == state {
				found++
			}
		}
		if found != wanted {
			return fmt.Errorf("%d of %d pods have it: %s", found, len(pods), seen.Describe("clone"))
		}
		return nil
	})
}

func TestAdvancedCronJobCompletes(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	template := harness.PodTemplate(corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
	cron := harness.Kruise("AdvancedCronJob", "cron", map[string]any{
		"schedule":          "* * * * *",
		"concurrencyPolicy": "Forbid",
		"template": map[string]any{"broadcastJobTemplate": map[string]any{"spec": map[string]any{
			"template":         harness.ToMap(template),
			"completionPolicy": map[string]any{"type": "Always"},
		}}},
	})
	test.Create(harness.Policy(v1alpha1.ModeAuto), cron)
	jobs := harness.KruiseList("BroadcastJob")
	test.Eventually("two BroadcastJobs of the AdvancedCronJob to complete", twoRuns, func(ctx context.Context) error {
		if err := test.Client.List(ctx, jobs, client.InNamespace(test.Namespace)); err != nil {
			return err
		}
		completed := 0
		for i := range jobs.Items {
			phase, _, _ := unstructured.NestedString(jobs.Items[i].Object, "status", "phase")
			succeeded, _, _ := unstructured.NestedInt64(jobs.Items[i].Object, "status", "succeeded")
			if phase == "completed" && succeeded > 0 {
				completed++
			}
		}
		if completed < 2 {
			return fmt.Errorf("%d of %d have completed", completed, len(jobs.Items))
		}
		return nil
	})
}

// The operator ignores a BroadcastJob without sidecars.
func TestBroadcastJobWithoutSidecar(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	test.Create(harness.Policy(v1alpha1.ModeAuto))
	job := harness.BroadcastJob("broadcast", harness.PodTemplate(corev1.RestartPolicyNever, harness.Main(2)))
	test.Create(job)
	waitForBroadcastJob(test, job)
	requireUntouched(test, "broadcast")
}
