// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
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

	"github.com/sidecar-termination/operator/e2e/virtualnode/provider"
)

const (
	testImage  = "localhost/test:1"
	otherImage = "localhost/test:2"
	busybox    = "/bin/busybox"
)

// node is a provider under test with one pod.
type node struct {
	*testing.T
	provider  *provider.Provider
	images    string
	directory string
	statuses  chan *corev1.Pod
	newest    *corev1.Pod
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run processes in a root directory of their own")
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Skipf("there is no static shell: %v", err)
	}
	n := &node{T: t, images: t.TempDir(), directory: t.TempDir()}
	for _, reference := range []string{testImage, otherImage} {
		n.saveImage(reference, program)
	}
	n.provider, err = provider.New(provider.Images{Directory: n.images}, n.directory)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.provider.Close)
	n.listen()
	return n
}

func (n *node) listen() {
	statuses := make(chan *corev1.Pod, 1000)
	n.statuses = statuses
	n.provider.NotifyPods(context.Background(), func(pod *corev1.Pod) { statuses <- pod })
}

func (n *node) saveImage(reference string, program []byte) {
	n.Helper()
	buffer := &bytes.Buffer{}
	writer := tar.NewWriter(buffer)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: "bin/sh", Mode: 0o755, Size: int64(len(program))}
	if err := writer.WriteHeader(header); err != nil {
		n.Fatal(err)
	}
	if _, err := writer.Write(program); err != nil {
		n.Fatal(err)
	}
	for _, applet := range []string{"sleep", "true"} {
		if err := writer.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: "bin/" + applet, Linkname: "bin/sh"}); err != nil {
			n.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		n.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil })
	if err != nil {
		n.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		n.Fatal(err)
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		n.Fatal(err)
	}
	file := filepath.Join(n.images, "localhost_test_"+tag.TagStr()+".tar")
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		n.Fatal(err)
	}
}

// pod returns a pod with one container for each script.
func pod(policy corev1.RestartPolicy, scripts ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "uid"}}
	pod.Spec.RestartPolicy = policy
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](2)
	for i, script := range scripts {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: string(rune('a' + i)), Image: testImage, Command: []string{"sh", "-c", script},
		})
	}
	return pod
}

func (n *node) create(pod *corev1.Pod) {
	n.Helper()
	if err := n.provider.CreatePod(n.Context(), pod); err != nil {
		n.Fatal(err)
	}
}

func (n *node) get() *corev1.Pod {
	n.Helper()
	pod, err := n.provider.GetPod(n.Context(), "default", "pod")
	if err != nil {
		n.Fatal(err)
	}
	return pod
}

// swap changes the images of containers.
func (n *node) swap(image string, containers ...int) {
	n.Helper()
	pod := n.get()
	for _, i := range containers {
		pod.Spec.Containers[i].Image = image
	}
	if err := n.provider.UpdatePod(n.Context(), pod); err != nil {
		n.Fatal(err)
	}
}

// eventually waits until the last reported status passes the check.
func (n *node) eventually(what string, check func(*corev1.Pod) error) {
	n.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for {
		var err error
		if n.newest != nil {
			if err = check(n.newest); err == nil {
				return
			}
		}
		select {
		case n.newest = <-n.statuses:
		case <-timeout.C:
			n.Fatalf("waited for %s: %v", what, err)
		}
	}
}

// awaitOutput waits until the container's output contains the text.
func (n *node) awaitOutput(container, text string) {
	n.Helper()
	file := filepath.Join(n.directory, "uid", container, "output.log")
	for range 200 {
		if content, err := os.ReadFile(file); err == nil && bytes.Contains(content, []byte(text)) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	n.Fatalf("container %s did not write %q", container, text)
}

// running requires that one container runs and that those before it have ended.
func running(index int) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		for i, status := range pod.Status.ContainerStatuses {
			if i < index && status.State.Terminated == nil || i == index && status.State.Running == nil {
				return fmt.Errorf("the status is %+v", status)
			}
		}
		return nil
	}
}
