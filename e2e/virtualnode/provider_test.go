// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	testImage  = "localhost/test:1"
	otherImage = "localhost/test:2"

	exitsThree = `trap 'exit 3' TERM; : > /ready; sleep 3600 & wait`
	ignores    = `trap '' TERM; while :; do sleep 1; done`
)

// testNode is a provider under test with one pod.
type testNode struct {
	*testing.T
	*provider
	statuses chan *corev1.Pod
	newest   *corev1.Pod
}

func startNode(t *testing.T, pod *corev1.Pod) *testNode {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run processes in a root directory of their own")
	}
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skipf("there is no static shell: %v", err)
	}
	statuses := make(chan *corev1.Pod, 1000)
	n := &testNode{T: t, provider: newProvider(t.TempDir(), t.TempDir()), statuses: statuses}
	saveImages(t, n.images, program)
	n.NotifyPods(t.Context(), func(pod *corev1.Pod) { statuses <- pod })
	if err := n.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s, err := n.find(keyOf(pod)); err == nil {
			s.stop(0)
		}
	})
	return n
}

// saveImages saves testImage and otherImage, which have a shell.
func saveImages(t *testing.T, directory string, program []byte) {
	t.Helper()
	root, archive := t.TempDir(), filepath.Join(t.TempDir(), "layer.tar")
	bin := filepath.Join(root, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.WriteFile(filepath.Join(bin, "sh"), program, 0o755), os.Symlink("sh", filepath.Join(bin, "sleep"))); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "tar", "-C", root, "-cf", archive, "bin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	layer, err := tarball.LayerFromFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	for _, reference := range []string{testImage, otherImage} {
		tag, err := name.NewTag(reference)
		if err != nil {
			t.Fatal(err)
		}
		if err := tarball.WriteToFile(filepath.Join(directory, "localhost_test_"+tag.TagStr()+".tar"), tag, image); err != nil {
			t.Fatal(err)
		}
	}
}

// podOf returns a pod with one container for each script.
func podOf(policy corev1.RestartPolicy, scripts ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "uid"}}
	pod.Spec.RestartPolicy = policy
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](2)
	for i, script := range scripts {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: string(rune('a' + i)), Image: testImage, Command: []string{"/bin/sh", "-c", script},
		})
	}
	return pod
}

// swap changes the image of all containers.
func (n *testNode) swap(image string) {
	n.Helper()
	pod := n.newest.DeepCopy()
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Image = image
	}
	if err := n.UpdatePod(n.Context(), pod); err != nil {
		n.Fatal(err)
	}
}

// eventually waits until the last reported status passes the check.
func (n *testNode) eventually(what string, check func(pod *corev1.Pod, last corev1.ContainerStatus) bool) {
	n.Helper()
	timeout := time.After(20 * time.Second)
	for n.newest == nil || !check(n.newest, n.newest.Status.ContainerStatuses[len(n.newest.Spec.Containers)-1]) {
		select {
		case n.newest = <-n.statuses:
		case <-time.After(50 * time.Millisecond):
		case <-timeout:
			n.Fatalf("waited for %s; the pod is %+v", what, n.newest)
		}
	}
}

func runs(_ *corev1.Pod, last corev1.ContainerStatus) bool { return last.State.Running != nil }

func TestRestartPolicies(t *testing.T) {
	for _, test := range []struct {
		policy   corev1.RestartPolicy
		command  []string
		phase    corev1.PodPhase
		restarts int32
		reason   string
		exitCode int32
	}{
		{corev1.RestartPolicyNever, []string{"/bin/sh", "-c", "exit 0"}, corev1.PodSucceeded, 0, "Completed", 0},
		{corev1.RestartPolicyNever, []string{"/bin/sh", "-c", "exit 4"}, corev1.PodFailed, 0, "Error", 4},
		{corev1.RestartPolicyNever, []string{"/not/there"}, corev1.PodFailed, 0, "StartError", 128},
		{corev1.RestartPolicyOnFailure, []string{"/bin/sh", "-c", "exit 4"}, corev1.PodRunning, 1, "Error", 4},
		{corev1.RestartPolicyOnFailure, []string{"/bin/sh", "-c", "exit 0"}, corev1.PodSucceeded, 0, "Completed", 0},
	} {
		t.Run(fmt.Sprint(test.policy, test.command), func(t *testing.T) {
			pod := podOf(test.policy, "")
			pod.Spec.Containers[0].Command = test.command
			startNode(t, pod).eventually("the container to end", func(pod *corev1.Pod, last corev1.ContainerStatus) bool {
				end := last.State.Terminated
				if test.restarts > 0 {
					end = last.LastTerminationState.Terminated
				}
				return end != nil && end.ExitCode == test.exitCode && end.Reason == test.reason && last.RestartCount == test.restarts && pod.Status.Phase == test.phase
			})
		})
	}
}

// An image change restarts a running container regardless of restartPolicy, and does not restart a terminated one.
func TestImageChangeRestartsContainer(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
		node := startNode(t, podOf(policy, "exit 0", exitsThree))
		node.eventually("the first to end and the second to run", func(pod *corev1.Pod, last corev1.ContainerStatus) bool {
			_, err := os.Stat(filepath.Join(node.directory, "uid", "b", "ready"))
			return pod.Status.ContainerStatuses[0].State.Terminated != nil && runs(pod, last) && err == nil
		})
		node.swap(otherImage)
		node.eventually("the second to run with its new image", func(pod *corev1.Pod, last corev1.ContainerStatus) bool {
			return last.RestartCount == 1 && runs(pod, last) && last.Image == otherImage
		})
		if end := node.newest.Status.ContainerStatuses[1].LastTerminationState.Terminated; end.ExitCode != 3 {
			t.Errorf("the second ended with %+v", end)
		}
		if first := node.newest.Status.ContainerStatuses[0]; first.RestartCount != 0 || first.State.Terminated == nil {
			t.Errorf("the terminated container restarted: %+v", first)
		}
	}
}

func TestUnpullableImage(t *testing.T) {
	node := startNode(t, podOf(corev1.RestartPolicyNever, exitsThree))
	node.eventually("the container to run", runs)
	node.swap("localhost/not-there:1")
	node.eventually("the container to wait", func(pod *corev1.Pod, last corev1.ContainerStatus) bool {
		return last.State.Waiting != nil && last.State.Waiting.Reason == "ErrImagePull" && pod.Status.Phase == corev1.PodRunning
	})
	node.swap(testImage)
	node.eventually("the container to run again", runs)
}

func TestDeletedPodIsKilledAfterGracePeriod(t *testing.T) {
	pod := podOf(corev1.RestartPolicyNever, ignores)
	node := startNode(t, pod)
	node.eventually("the container to run", runs)
	pod.DeletionGracePeriodSeconds = ptr.To[int64](1)
	begin := time.Now()
	if err := node.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	node.eventually("the container to be killed", func(_ *corev1.Pod, last corev1.ContainerStatus) bool {
		return last.State.Terminated != nil && last.State.Terminated.ExitCode == 137
	})
	if took := time.Since(begin); took < 900*time.Millisecond {
		t.Errorf("it was killed after %s", took)
	}
	for known := true; known; time.Sleep(10 * time.Millisecond) {
		_, err := node.GetPod(t.Context(), "default", "pod")
		known = err == nil && t.Context().Err() == nil
	}
}
