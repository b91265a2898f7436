//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/e2e/harness"
)

// Reasons of the kubelet's events about failed hooks.
const (
	failedPostStart = "FailedPostStartHook"
	failedPreStop   = "FailedPreStopHook"
)

// The preStop hook runs in the sidecar, and not in the quick-exit image.
func TestQuickExitImageWithPreStopHook(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	forEachRestartPolicy(t, func(test *harness.Test, restartPolicy corev1.RestartPolicy) {
		job := jobWithRealSidecar(test, registry, restartPolicy)
		job.Spec.Template.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: hook("preStop")}
		files := mountShared(test, &job.Spec.Template.Spec)
		image := pushQuickExit(test, registry, "quick-exit:"+test.Namespace)
		test.Create(policyForImage(image), job)
		requireEndedByRealImage(test, image)
		requireFiles(test, files, "preStop")
		requireKubeletWarnings(test)
	})
}

// The kubelet runs the postStart hook again when the quick-exit image starts, and fails because the process has exited. It emits
// a warning and stops the container, including the preStop hook.
func TestQuickExitImageWithPostStartHook(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	for _, c := range []struct {
		name      string
		lifecycle *corev1.Lifecycle
		files     []string
		warnings  []string
	}{
		{"postStart", &corev1.Lifecycle{PostStart: hook("postStart")}, []string{"postStart"}, []string{failedPostStart}},
		{
			"postStart and preStop", &corev1.Lifecycle{PostStart: hook("postStart"), PreStop: hook("preStop")},
			[]string{"postStart", "preStop"}, []string{failedPostStart, failedPreStop},
		},
	} {
		for _, restartPolicy := range jobRestartPolicies {
			t.Run(c.name+"/"+string(restartPolicy), func(t *testing.T) {
				t.Parallel()
				test := harness.New(t)
				job := jobWithRealSidecar(test, registry, restartPolicy)
				job.Spec.Template.Spec.Containers[0].Lifecycle = c.lifecycle
				files := mountShared(test, &job.Spec.Template.Spec)
				image := pushQuickExit(test, registry, "quick-exit:"+test.Namespace)
				test.Create(policyForImage(image), job)
				requireEndedByRealImage(test, image)
				requireFiles(test, files, c.files...)
				// The hook succeeds if the program has not exited yet, so the warnings are optional.
				requireKubeletWarnings(test, c.warnings...)
			})
		}
	}
}

// sharedDirectory is the mount path of a directory in which hooks create files.
const sharedDirectory = "/shared"

// hook returns a hook that runs the sidecar's program, which creates the file.
func hook(file string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{sidecarProgram, "hook", path.Join(sharedDirectory, file)}}}
}

// mountShared mounts a host directory into the pod's sidecar and returns it.
func mountShared(test *harness.Test, pod *corev1.PodSpec) string {
	test.Helper()
	directory := test.TempDir()
	if err := os.Chmod(directory, 0o777); err != nil {
		test.Fatal(err)
	}
	harness.MountHostDirectory(pod, harness.SidecarName, directory, sharedDirectory)
	return directory
}

// requireFiles requires that the directory contains exactly the files, which are sorted.
func requireFiles(test *harness.Test, directory string, wanted ...string) {
	test.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		test.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if !slices.Equal(names, wanted) {
		test.Errorf("Hooks created %v, want %v", names, wanted)
	}
}
