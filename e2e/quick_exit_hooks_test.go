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

// Reasons of the kubelet's events about hooks that could not be run.
const (
	failedPostStart = "FailedPostStartHook"
	failedPreStop   = "FailedPreStopHook"
)

// The preStop hook runs in the sidecar before it is stopped, and not in the program that takes its place.
func TestShippedQuickExitImageAfterPreStopHook(t *testing.T) {
	harness.Shared(t)
	registry := harness.StartRegistry(t)
	for _, restartPolicy := range jobRestartPolicies {
		t.Run(string(restartPolicy), func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			job := jobWithRealSidecar(test, registry, restartPolicy)
			job.Spec.Template.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: hook("preStop")}
			files := mountFromMachine(test, &job.Spec.Template.Spec)
			image := pushQuickExit(test, registry.Reference("quick-exit:"+test.Namespace), job)
			test.Create(policyForImage(image), job)
			requireEndedByShippedImage(test, image.Image)
			requireFiles(test, files, "preStop")
			requireKubeletWarnings(test)
		})
	}
}

// The kubelet runs the postStart hook again when the quick-exit image starts, and finds no process to run it in. It says
// so, and takes the container for one to be stopped, preStop hook included; but it has ended by itself already.
func TestShippedQuickExitImageWithPostStartHook(t *testing.T) {
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
				files := mountFromMachine(test, &job.Spec.Template.Spec)
				image := pushQuickExit(test, registry.Reference("quick-exit:"+test.Namespace), job)
				test.Create(policyForImage(image), job)
				requireEndedByShippedImage(test, image.Image)
				requireFiles(test, files, c.files...)
				// The hook would run in a program that has not ended yet, so that no warning is required.
				requireKubeletWarnings(test, c.warnings...)
			})
		}
	}
}

// sharedDirectory is where hooks of the sidecar leave files.
const sharedDirectory = "/shared"

// hook returns a hook that runs the sidecar's program, which leaves the file.
func hook(file string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{sidecarProgram, "hook", path.Join(sharedDirectory, file)}}}
}

// mountFromMachine gives the pod's first container a directory of this machine, on which the node runs, and returns it.
func mountFromMachine(test *harness.Test, pod *corev1.PodSpec) string {
	test.Helper()
	directory := test.TempDir()
	if err := os.Chmod(directory, 0o777); err != nil {
		test.Fatal(err)
	}
	pod.Volumes = []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: directory}}}}
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "shared", MountPath: sharedDirectory}}
	return directory
}

// requireFiles requires that the directory has the files and no others, sorted.
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
		test.Errorf("Hooks were to leave %v and left %v", wanted, names)
	}
}
