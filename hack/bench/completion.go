// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/images"
)

// jobs is how many Jobs run at once in the part completion.
const jobs = 5

// onKubelets are the contenders: pods without a sidecar, native sidecars written by hand, and policies for the deployed operator.
var (
	onKubelets = []string{"alone", "native", contenderOperator, "operator-podphase", "operator-crr", "operator-crr-respect", "operator-image"}
	policies   = map[string]v1alpha1.TerminationSettings{
		contenderOperator:      {},
		"operator-podphase":    {Mode: v1alpha1.ModePodPhase},
		"operator-crr":         {Mode: v1alpha1.ModeCRR},
		"operator-crr-respect": {Mode: v1alpha1.ModeCRR, ExitCodePolicy: v1alpha1.ExitCodePolicyRespect},
		"operator-image":       {Mode: v1alpha1.ModeImage, Image: images.QuickExitReference},
	}
)

// completions measures Jobs on the local cluster, from the end of their main containers until they are complete.
func (s *session) completions(ctx context.Context, _ cluster.Versions) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.layout.AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("find the local cluster (make cluster-up cluster-deploy): %w", err)
	}
	e := &environment{}
	if err := e.connect(config); err != nil {
		return err
	}
	version, err := e.kubelets.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	s.report.Setup += ", local cluster with Kubernetes " + version.GitVersion
	contenders := onKubelets
	if s.contenders != "" {
		// Only where it is asked for: a deployed operator acts on the same variable.
		contenders = slices.Concat(onKubelets, []string{contenderKruise})
	}
	return s.inTurn(s.runs, "completion", contenders, func(contender string) error {
		run, err := e.completeJobs(ctx, contender)
		s.report.add(fmt.Sprintf("completion of %d Jobs at once", jobs), contender, run)
		return err
	})
}

// completeJobs creates Jobs at once, in a namespace of their own, and waits until all are complete. A Job that fails is an error.
func (e *environment) completeJobs(ctx context.Context, contender string) (run figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	namespace, err := createNamespace(ctx, e.client)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, e.client.Delete(context.WithoutCancel(ctx), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}()
	if settings, ok := policies[contender]; ok {
		if err := e.client.Create(ctx, newPolicy(namespace, "bench", nil, settings)); err != nil {
			return nil, err
		}
	}
	for range jobs {
		if err := e.client.Create(ctx, jobOf(contender, namespace)); err != nil {
			return nil, err
		}
	}
	completed, err := e.awaitCompletion(ctx, namespace)
	if err != nil {
		return nil, err
	}
	times, err := e.timesSinceMainsEnded(ctx, namespace, completed)
	if err != nil {
		return nil, err
	}
	slices.Sort(times)
	return figures{"main ended to Job complete p50, s": percentile(times, 50).Seconds(), "main ended to Job complete max, s": times[jobs-1].Seconds()}, nil
}

// awaitCompletion waits until all Jobs of the namespace are complete, and returns the machine's uptime at which each was.
// A Job with a failed pod is an error.
func (e *environment) awaitCompletion(ctx context.Context, namespace string) (map[string]time.Duration, error) {
	completed := map[string]time.Duration{} // by Job
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list := &batchv1.JobList{}
		if err := e.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		for _, job := range list.Items {
			if job.Status.Failed > 0 {
				return false, fmt.Errorf("a pod of Job %s failed although its main container exits 0", job.Name)
			}
			if completed[job.Name] == 0 && job.Status.CompletionTime != nil {
				content, _ := os.ReadFile("/proc/uptime")
				completed[job.Name] = parseUptime(string(content))
			}
		}
		return len(completed) == jobs, nil
	})
	return completed, err
}

// timesSinceMainsEnded returns the time between the end of each pod's main container and the completion of its Job.
func (e *environment) timesSinceMainsEnded(ctx context.Context, namespace string, completed map[string]time.Duration) ([]time.Duration, error) {
	pods := &corev1.PodList{}
	if err := e.client.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var times []time.Duration
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if status.Name == "main" && status.State.Terminated != nil {
				times = append(times, completed[pod.Labels[batchv1.JobNameLabel]]-parseUptime(status.State.Terminated.Message))
			}
		}
	}
	if len(times) != len(completed) {
		return nil, fmt.Errorf("%d Jobs have %d ended main containers", len(completed), len(times))
	}
	return times, nil
}

// jobOf is a Job whose main container runs for 3 seconds and then writes the machine's uptime into its termination message.
func jobOf(contender, namespace string) *batchv1.Job {
	container := func(name, script string) corev1.Container {
		return corev1.Container{Name: name, Image: images.BusyboxReference, Command: []string{"/bin/sh", "-c", script}}
	}
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](5), AutomountServiceAccountToken: ptr.To(false),
		Containers: []corev1.Container{container("main", "sleep 3; read -r uptime idle </proc/uptime; echo $uptime >/dev/termination-log")},
	}
	beside := container(sidecar, "trap 'exit 0' TERM; sleep 3600 & wait")
	switch contender {
	case "alone":
	case "native":
		beside.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.InitContainers = []corev1.Container{beside}
	case contenderKruise:
		beside.Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
		fallthrough
	default:
		pod.Containers = append(pod.Containers, beside)
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "import-"},
		Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: corev1.PodTemplateSpec{Spec: pod}},
	}
}

// parseUptime reads the first number of /proc/uptime: the time since the boot of the machine. Containers have the same clock.
func parseUptime(content string) time.Duration {
	seconds := 0.0
	_, _ = fmt.Sscan(content, &seconds)
	return time.Duration(seconds * float64(time.Second))
}
