//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// The operator restarts while main containers run, and while sidecars terminate.
func TestOperatorRestarts(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	const exitsZeroSlowly = `trap 'sleep 15; exit 0' TERM; sleep 3600 & wait`
	cases := []struct {
		mode           v1alpha1.Mode
		exitCodePolicy v1alpha1.ExitCodePolicy
		script         string
		crrs           int
	}{
		{v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyRespect, exitsZeroSlowly, 1},
		{v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyIgnore, harness.IgnoresTerm, 1},
		{v1alpha1.ModeImage, v1alpha1.ExitCodePolicyIgnore, harness.IgnoresTerm, 0},
		{v1alpha1.ModePodPhase, v1alpha1.ExitCodePolicyIgnore, harness.IgnoresTerm, 0},
	}
	var gates []*harness.Gate
	for i, c := range cases {
		policy := harness.Policy(c.mode)
		policy.Name, policy.Spec.ExitCodePolicy = fmt.Sprintf("policy-%d", i), c.exitCodePolicy
		policy.Spec.PodSelector.MatchLabels = map[string]string{policyLabel: policy.Name}
		test.Create(policy)
		for _, name := range []string{"runs", "ends"} {
			job := harness.Job(fmt.Sprintf("%s-%d", name, i), corev1.RestartPolicyNever, harness.Sidecar(c.script), harness.Main(2))
			job.Spec.Template.Labels = policy.Spec.PodSelector.MatchLabels
			// Longer than the operator takes to restart.
			job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
			if name == "runs" {
				gates = append(gates, test.Gate(&job.Spec.Template))
			}
			test.Create(job)
		}
	}
	for i := range cases {
		test.WaitForRunning(fmt.Sprintf("runs-%d", i))
		test.WaitForEvent(test.WaitForMain(fmt.Sprintf("ends-%d", i)), v1alpha1.ReasonTerminating)
	}
	test.DeleteOperatorPod()
	for _, gate := range gates {
		gate.Open()
	}
	for i, c := range cases {
		for _, name := range []string{"runs", "ends"} {
			test.RequireCRRs(test.RequireCompleted(fmt.Sprintf("%s-%d", name, i)), c.crrs)
		}
	}
	test.WaitForOperator()
}

// Sizes of hostile pods, within the limits of the API server.
const (
	// doubledVariables make the last variable expand to 1 GiB.
	doubledVariables = 30
	// hostileMounts and hostileDirectories make about 100 KiB of volume mounts and 60 KiB of PATH.
	hostileMounts      = 2500
	hostileDirectories = 7500
	// hostileAnnotation is the length of each of two annotations.
	hostileAnnotation = 100 << 10
)

// hostilePods cost an operator without limits far more than their size. No node matches their selector, so they stay Pending and
// no kubelet reads them.
func hostilePods() map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for name, change := range map[string]func(pod *corev1.Pod, sidecar *corev1.Container){
		"doubled-variables": func(_ *corev1.Pod, sidecar *corev1.Container) {
			sidecar.Env = []corev1.EnvVar{{Name: "V0", Value: "xx"}}
			for i := 1; i < doubledVariables; i++ {
				before := fmt.Sprintf("$(V%d)", i-1)
				sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: before + before})
			}
		},
		"mounts-and-path": func(pod *corev1.Pod, sidecar *corev1.Container) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
			for i := range hostileMounts {
				sidecar.VolumeMounts = append(sidecar.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: fmt.Sprintf("/m/%04d", i)})
			}
			var directories []string
			for i := range hostileDirectories {
				directories = append(directories, fmt.Sprintf("/p/%04d", i))
			}
			sidecar.Env = []corev1.EnvVar{{Name: "PATH", Value: strings.Join(directories, ":")}}
		},
		"long-annotations": func(pod *corev1.Pod, _ *corev1.Container) {
			pod.Annotations = map[string]string{
				v1alpha1.AnnotationImageSwap:        strings.Repeat("[", hostileAnnotation),
				v1alpha1.AnnotationIgnoredExitCodes: strings.Repeat("a,", hostileAnnotation/4),
			}
		},
	} {
		sidecar := harness.Sidecar("")
		sidecar.Command = []string{"sh"}
		template := harness.PodTemplate(corev1.RestartPolicyNever, sidecar, harness.Main(0))
		template.Spec.NodeSelector = map[string]string{"e2e.sidecartermination.dev/no-node": "has-this-label"}
		pod := harness.Pod(name, nil, template)
		change(pod, &pod.Spec.Containers[0])
		pods[name] = pod
	}
	return pods
}

// Hostile pods must not crash the operator, at runtime or at its start, or block other pods.
func TestHostilePods(t *testing.T) {
	harness.Exclusive(t)
	test := harness.New(t)
	pods := hostilePods()
	test.Create(harness.Policy(v1alpha1.ModeAuto))
	operator := test.OperatorPod()
	for _, pod := range pods {
		test.Create(pod)
	}
	requireCompletedDespite(test, pods, "while-it-runs", operator)

	test.DeleteOperatorPod()
	test.WaitForOperator()
	requireCompletedDespite(test, pods, "from-its-start", test.OperatorPod())
}

// requireCompletedDespite requires that a Job completes while the pods are Pending, and that the operator does not restart.
func requireCompletedDespite(test *harness.Test, pods map[string]*corev1.Pod, job string, operator *corev1.Pod) {
	test.Helper()
	test.Create(harness.Job(job, corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2)))
	test.RequireCompleted(job)
	for name, pod := range pods {
		test.Get(pod)
		if pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
			test.Errorf("Pod %s is %s, want Pending", name, pod.Status.Phase)
		}
	}
	requireNoRestart(test, operator)
}
