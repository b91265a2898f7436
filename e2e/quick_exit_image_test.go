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

// sidecarExitCode is the one with which the program of realSidecar ends when it is told to.
const sidecarExitCode = 7

// Ways to start a sidecar, none of which may keep the quick-exit image from ending it.
var waysToStart = []struct {
	name  string
	apply func(pod *corev1.PodSpec, sidecar *corev1.Container)
}{
	{"no command", func(_ *corev1.PodSpec, _ *corev1.Container) {}},
	{"arguments only", func(_ *corev1.PodSpec, sidecar *corev1.Container) { sidecar.Args = []string{"--listen=:15001"} }},
	{"absolute command", func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.Command, sidecar.Args = []string{sidecarProgram}, []string{"--listen=:15001"}
	}},
	{"relative command", func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.Command, sidecar.WorkingDir = []string{"./server"}, sidecarDirectory
	}},
	{"relative command in the working directory of the image", func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.Command = []string{"./server"}
	}},
	{"name in the PATH of the image", func(_ *corev1.PodSpec, sidecar *corev1.Container) { sidecar.Command = []string{"agent"} }},
	{"name in a PATH of its own", func(_ *corev1.PodSpec, sidecar *corev1.Container) {
		sidecar.Command, sidecar.Env = []string{"proxy"}, []corev1.EnvVar{{Name: "PATH", Value: "/opt/proxy/bin"}}
	}},
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
		// The image that takes its place does not have it.
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

func TestShippedQuickExitImageEndsSidecars(t *testing.T) {
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
				image := pushQuickExit(test, registry.Reference("quick-exit:"+test.Namespace), job)
				test.Create(policyForImage(image), job)
				requireEndedByShippedImage(test, image.Image)
				requireKubeletWarnings(test)
			})
		}
	}
}

// jobWithRealSidecar returns a Job whose first container is a sidecar that is pulled from the registry.
func jobWithRealSidecar(test *harness.Test, registry *harness.Registry, restartPolicy corev1.RestartPolicy) *batchv1.Job {
	test.Helper()
	sidecar := harness.Sidecar("")
	sidecar.Image, sidecar.Command = pushSidecar(test, registry), nil
	return harness.Job("job", restartPolicy, sidecar, harness.Main(3))
}

// quickExitPaths says what the image covers, in as few entries as there may be.
func quickExitPaths(image quickExitImage) []v1alpha1.QuickExitPath {
	entries := []v1alpha1.QuickExitPath{quickexit.Default}
	for _, path := range image.Paths {
		if !slices.Contains(quickexit.DefaultPaths(), path) {
			entries = append(entries, v1alpha1.QuickExitPath(path))
		}
	}
	return entries
}

// policyForImage returns a policy that ends the sidecar by the image or not at all.
func policyForImage(image quickExitImage) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(v1alpha1.ModeImage)
	policy.Spec.QuickExitPaths = quickExitPaths(image)
	policy.Spec.Image, policy.Spec.Fallback = image.Image, v1alpha1.FallbackDisabled
	return policy
}

// requireEndedByShippedImage waits for the Job named job to be Complete and requires that the sidecar was stopped once, and
// that the quick-exit image ran in its place and ended well.
func requireEndedByShippedImage(test *harness.Test, image string) {
	test.Helper()
	test.WaitForComplete("job")
	record := test.RequireSucceeded("job")
	test.RequireRequests(record, 0)
	test.RequireImage(record, harness.SidecarName, image)
	sidecar := record.Container(harness.SidecarName)
	if sidecar == nil || sidecar.State.Terminated == nil || sidecar.State.Terminated.ExitCode != 0 || sidecar.State.Terminated.Reason != "Completed" {
		test.Errorf("The quick-exit image was to end with 0: %+v", sidecar)
	}
	if sidecar == nil || sidecar.RestartCount != 1 {
		test.Errorf("The sidecar was to be restarted once: %+v", sidecar)
	}
	// The kubelet may have forgotten the container that it stopped.
	if sidecar != nil && sidecar.LastTerminationState.Terminated != nil && sidecar.LastTerminationState.Terminated.ExitCode != sidecarExitCode {
		test.Errorf("The sidecar was to be stopped with its exit code %d: %+v", sidecarExitCode, sidecar)
	}
}

// requireKubeletWarnings requires that the kubelet warns of nothing but the given reasons about the pod of the Job named job.
func requireKubeletWarnings(test *harness.Test, allowed ...string) {
	test.Helper()
	for _, event := range kubeletEvents(test) {
		warns := event.Type != corev1.EventTypeNormal && !slices.Contains(allowed, event.Reason)
		if warns || strings.Contains(event.Message, "StartError") {
			test.Errorf("The kubelet says %s: %s", event.Reason, event.Message)
		}
	}
}

// kubeletEvents returns the kubelet's events on the pod of the Job named job, as far as there are any: a busy kubelet drops
// events, and that the sidecar was started again is for the pod's status to tell.
func kubeletEvents(test *harness.Test) []corev1.Event {
	test.Helper()
	var pod *corev1.Pod
	test.Recorder.Look(func(seen harness.Seen) { pod = seen.Pods("job")[0].Pod })
	return slices.DeleteFunc(test.EventsOn(pod), func(event corev1.Event) bool { return event.Source.Component != "kubelet" })
}
