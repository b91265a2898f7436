//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// twoRuns is the timeout for two runs of a controller that starts one every minute.
const twoRuns = 4 * time.Minute

// A hanging Job blocks the next runs, because concurrencyPolicy is Forbid.
func TestCronJobRunsAgain(t *testing.T) {
	test := harness.New(t)
	test.Create(harness.Policy(v1alpha1.ModeAuto), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "cron"},
		Spec: batchv1.CronJobSpec{
			Schedule:          "* * * * *",
			ConcurrencyPolicy: batchv1.ForbidConcurrent,
			JobTemplate:       batchv1.JobTemplateSpec{Spec: jobOf(corev1.RestartPolicyOnFailure, harness.ExitsZeroOnTerm).Spec},
		},
	})
	// The first run waits for the next minute, which other tests use.
	harness.Shared(t)
	test.Eventually("two Jobs of the CronJob to be Complete", twoRuns, func(ctx context.Context) error {
		jobs := &batchv1.JobList{}
		err := test.Client.List(ctx, jobs, client.InNamespace(test.Namespace))
		complete := 0
		for i := range jobs.Items {
			if _, ok := harness.JobCondition(&jobs.Items[i], batchv1.JobComplete); ok {
				complete++
			}
		}
		if err == nil && complete < 2 {
			return fmt.Errorf("%d of %d Jobs are Complete", complete, len(jobs.Items))
		}
		return err
	})
}

func TestAdvancedCronJobCompletes(t *testing.T) {
	test := harness.New(t)
	test.Create(harness.Policy(v1alpha1.ModeAuto), harness.Kruise("AdvancedCronJob", "cron", map[string]any{
		"schedule":          "* * * * *",
		"concurrencyPolicy": "Forbid",
		"template": map[string]any{"broadcastJobTemplate": map[string]any{"spec": broadcast(
			harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))}},
	}))
	harness.Shared(t)
	waitForBroadcastJobs(test, 2)
}

// Nothing declares a sidecar of the other BroadcastJob.
func TestBroadcastJobCompletes(t *testing.T) {
	harness.Shared(t)
	for name, containers := range map[string][]corev1.Container{
		"env":     {harness.WithEnv(harness.Sidecar(harness.ExitsZeroOnTerm), v1alpha1.EnvTerminate, "true"), harness.Main(2)},
		"nothing": {harness.Main(2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			test.Create(harness.Kruise("BroadcastJob", "broadcast", broadcast(containers...)))
			waitForBroadcastJobs(test, 1)
			if len(containers) == 1 {
				requireUnwritten(test, test.RecordOf("broadcast"))
			}
		})
	}
}

// broadcast returns the spec of a BroadcastJob that completes when its pods on all nodes have finished.
func broadcast(containers ...corev1.Container) map[string]any {
	template := harness.PodTemplate(corev1.RestartPolicyNever, containers...)
	return map[string]any{
		"template":         harness.ToMap(&template),
		"completionPolicy": map[string]any{"type": "Always"},
	}
}

// waitForBroadcastJobs waits until BroadcastJobs have completed, and requires that their pods succeeded.
func waitForBroadcastJobs(test *harness.Test, wanted int) {
	test.Helper()
	jobs := harness.KruiseList("BroadcastJob")
	test.Eventually(fmt.Sprintf("%d BroadcastJobs to complete", wanted), twoRuns, func(ctx context.Context) error {
		err := test.Client.List(ctx, jobs, client.InNamespace(test.Namespace))
		completed := 0
		for i := range jobs.Items {
			phase, _, _ := unstructured.NestedString(jobs.Items[i].Object, "status", "phase")
			desired, _, _ := unstructured.NestedInt64(jobs.Items[i].Object, "status", "desired")
			succeeded, _, _ := unstructured.NestedInt64(jobs.Items[i].Object, "status", "succeeded")
			if phase == "completed" && desired > 0 && succeeded == desired {
				completed++
			}
		}
		if err == nil && completed < wanted {
			return fmt.Errorf("%d have completed: %v", completed, jobs.Items)
		}
		return err
	})
}

// The operator waits for a main container exactly if the kubelet restarts it.
func TestContainerRestartPolicy(t *testing.T) {
	const failsOnce = "[ -e /started/failed ] || { : > /started/failed; sleep 2; exit 1; }; sleep 2"
	harness.Shared(t)
	for _, c := range []struct {
		pod  corev1.RestartPolicy
		main corev1.ContainerRestartPolicy
		// restarted says that kubelets restart the container that act on its restartPolicy. Older ones do the opposite.
		restarted bool
	}{
		{corev1.RestartPolicyNever, corev1.ContainerRestartPolicyOnFailure, true},
		{corev1.RestartPolicyOnFailure, corev1.ContainerRestartPolicyNever, false},
	} {
		t.Run(fmt.Sprintf("%s under %s", c.main, c.pod), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			main := harness.Container(harness.MainName, failsOnce)
			main.RestartPolicy = ptr.To(c.main)
			template := harness.PodTemplate(c.pod, harness.Sidecar(harness.ExitsZeroOnTerm), main)
			harness.ReportStart(&template.Spec)
			test.Create(with(v1alpha1.ModeAuto), harness.Pod("pod", nil, template))

			record := test.RequireFinished("pod")
			phase, restarts := corev1.PodFailed, int32(0)
			if c.restarted == harness.KubeletIsAtLeast(t, restartsContainersByOwnPolicy) {
				phase, restarts = corev1.PodSucceeded, 1
			}
			if got := record.Container(harness.MainName).RestartCount; record.Pod.Status.Phase != phase || got != restarts {
				test.Errorf("The pod ended as %s after %d restarts, want %s after %d: %s", record.Pod.Status.Phase, got, phase, restarts, record.States)
			}
		})
	}
}

// restartsContainersByOwnPolicy is the first version whose kubelets act on a container's own restartPolicy. API servers since then
// accept the field, whatever the version of the kubelet.
const restartsContainersByOwnPolicy = "1.35"

// The node of a running pod is deleted and registered again, as when a virtual node is replaced.
func TestVirtualNodeIsReplaced(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	test.Create(harness.Policy(v1alpha1.ModeAuto),
		onNode(harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(10)), virtualNode))
	test.WaitForRunning("job")
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: virtualNode}}
	test.Get(old)
	if err := test.Client.Delete(test.Context(), old.DeepCopy()); err != nil {
		test.Fatalf("Delete the node: %v", err)
	}
	endedByImage(test)
	replaced := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: virtualNode}}
	test.Get(replaced)
	if replaced.UID == old.UID {
		test.Errorf("The node was not replaced")
	}
}
