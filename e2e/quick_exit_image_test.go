//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
	"github.com/sidecar-termination/operator/internal/quickexit"
)

// sidecarExitCode is the exit code of realSidecar after SIGTERM.
const sidecarExitCode = 7

// Ways to start a sidecar. The quick-exit image must support all of them.
var waysToStart = []struct {
	name  string
	apply func(pod *corev1.PodSpec, sidecar *corev1.Container)
}{
	{"no command", func(_ *corev1.PodSpec, _ *corev1.Container) {}},
	{"arguments only", func(_ *corev1.PodSpec, sidecar *corev1.Container) { sidecar.Args = []string{"--listen=:15001"} }},
	{"absolute command", func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.Command, sidecar.Args = []string{sidecarProgram}, []string{"--listen=:15001"}
	}},
	{"name in image's PATH", func(_ *corev1.PodSpec, sidecar *corev1.Container) { sidecar.Command = []string{"agent"} }},
	{"shell form", func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.Image, sidecar.Command = harness.BusyboxImage, []string{"/bin/sh", "-c", harness.ExitsSevenOnTerm}
	}},
	{"runAsNonRoot", func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr.To(true)}
	}},
	{"runAsNonRoot with any user", func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](1000670000), RunAsGroup: ptr.To[int64](0)}
	}},
	{"read-only root file system", func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true)}
		// The quick-exit image does not have this directory.
		sidecar.WorkingDir = sidecarDirectory
	}},
	{"restricted", func(pod *corev1.PodSpec, sidecar *corev1.Container) {
		pod.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
		sidecar.SecurityContext = &corev1.SecurityContext{
			RunAsNonRoot: ptr.To(true), ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}},
}

func TestQuickExitImageTerminatesSidecars(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	for _, way := range waysToStart {
		for _, restartPolicy := range jobRestartPolicies {
			t.Run(way.name+"/"+string(restartPolicy), func(t *testing.T) {
				t.Parallel()
				test := harness.New(t)
				job := jobWithRealSidecar(test, registry, restartPolicy)
				pod := &job.Spec.Template.Spec
				way.apply(pod, &pod.Containers[0])
				image := pushQuickExit(test, registry, "quick-exit:"+test.Namespace)
				test.Create(policyForImage(image), job)
				requireEndedByRealImage(test, image)
				requireKubeletWarnings(test)
			})
		}
	}
}

// jobWithRealSidecar returns a Job whose first container is realSidecar from the registry.
func jobWithRealSidecar(test *harness.Test, registry *harness.Registry, restartPolicy corev1.RestartPolicy) *batchv1.Job {
	test.Helper()
	sidecar := harness.Sidecar("")
	sidecar.Image, sidecar.Command = pushSidecar(test, registry), nil
	return harness.Job("job", restartPolicy, sidecar, harness.Main(3))
}

// policyForImage returns a policy with an image of pushQuickExit and without fallback.
func policyForImage(image string) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(v1alpha1.ModeImage)
	policy.Spec.Image, policy.Spec.Fallback = image, v1alpha1.FallbackDisabled
	policy.Spec.QuickExitPaths = []v1alpha1.QuickExitPath{quickexit.Default}
	for _, path := range coveredCommands {
		policy.Spec.QuickExitPaths = append(policy.Spec.QuickExitPaths, v1alpha1.QuickExitPath(path))
	}
	return policy
}

// requireEndedByRealImage waits until the Job named job is Complete and requires that the sidecar was stopped once, and that the
// quick-exit image replaced it and exited 0.
func requireEndedByRealImage(test *harness.Test, image string) {
	test.Helper()
	record := test.RequireCompleted("job")
	test.RequireCRRs(record, 0)
	test.RequireImage(record, harness.SidecarName, image)
	sidecar := record.Container(harness.SidecarName)
	if sidecar == nil || sidecar.State.Terminated == nil || sidecar.State.Terminated.ExitCode != 0 || sidecar.State.Terminated.Reason != "Completed" {
		test.Errorf("The quick-exit image did not exit 0: %+v", sidecar)
	}
	if sidecar == nil || sidecar.RestartCount != 1 {
		test.Errorf("The sidecar did not restart once: %+v", sidecar)
	}
	// The kubelet may have lost the state of the stopped container.
	if sidecar != nil && sidecar.LastTerminationState.Terminated != nil && sidecar.LastTerminationState.Terminated.ExitCode != sidecarExitCode {
		test.Errorf("The sidecar did not exit %d: %+v", sidecarExitCode, sidecar)
	}
}

// requireKubeletWarnings requires that the kubelet emitted only warnings with the allowed reasons for the pod of the Job named job.
func requireKubeletWarnings(test *harness.Test, allowed ...string) {
	test.Helper()
	for _, event := range kubeletEvents(test) {
		warns := event.Type != corev1.EventTypeNormal && !slices.Contains(allowed, event.Reason)
		if warns || strings.Contains(event.Message, "StartError") {
			test.Errorf("Warning of the kubelet: %s: %s", event.Reason, event.Message)
		}
	}
}

// kubeletEvents returns the kubelet's events on the pod of the Job named job. A busy kubelet drops events.
func kubeletEvents(test *harness.Test) []corev1.Event {
	test.Helper()
	return slices.DeleteFunc(test.EventsOn(test.PodOf("job")), func(event corev1.Event) bool { return event.Source.Component != "kubelet" })
}
