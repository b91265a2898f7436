// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// node is a client of a cluster whose pods have one state until their image changes, and
// another one afterwards.
func node(before, after *corev1.Pod) *fake.Clientset {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	now := before
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		before.Name, after.Name = "pod", "pod"
		return true, before, nil
	})
	client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, now, nil })
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		now = after
		return true, after, nil
	})
	return client
}

func options() Options {
	return Options{Node: "node", Namespace: "default", Image: "a", QuickExitImage: "b", Timeout: 700 * time.Millisecond, Say: func(string, ...any) {}}
}

func requireRemoved(t *testing.T, client *fake.Clientset) {
	t.Helper()
	for _, action := range client.Actions() {
		if action.GetVerb() == "delete" {
			return
		}
	}
	t.Error("the pod was not removed")
}

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		after   *corev1.Pod
		message string
	}{
		"works":            {probed(corev1.PodSucceeded, exited(0), exited(0), 1), "mode Image works on"},
		"reacts never":     {probed(corev1.PodRunning, exited(0), runs(), 0), "ignores changed images"},
		"pulls for ever":   {probed(corev1.PodRunning, exited(0), waits("ImagePullBackOff"), 0), "ImagePullBackOff"},
		"runs all of it":   {probed(corev1.PodRunning, runs(), runs(), 0), "was run again"},
		"fails at the end": {probed(corev1.PodFailed, exited(0), exited(137), 0), "not started again"},
	} {
		t.Run(name, func(t *testing.T) {
			client := node(probed(corev1.PodRunning, exited(0), runs(), 0), test.after)
			verdict, err := Run(t.Context(), client, options())
			if err != nil || !strings.Contains(verdict.Message, test.message) {
				t.Errorf("the verdict is %+v, %v", verdict, err)
			}
			requireRemoved(t, client)
		})
	}
}

func TestRunGivesUp(t *testing.T) {
	for name, before := range map[string]*corev1.Pod{
		"the pod never starts":        probed(corev1.PodPending, waits("ErrImagePull"), waits("ErrImagePull"), 0),
		"the pod ends before a probe": probed(corev1.PodFailed, exited(1), exited(1), 0),
	} {
		t.Run(name, func(t *testing.T) {
			client := node(before, before)
			if verdict, err := Run(t.Context(), client, options()); err == nil {
				t.Errorf("the verdict is %+v", verdict)
			}
			requireRemoved(t, client)
		})
	}
}

// An interrupted probe gives no verdict and leaves no pod.
func TestRunIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := node(probed(corev1.PodRunning, exited(0), runs(), 0), probed(corev1.PodRunning, exited(0), runs(), 0))
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return false, nil, nil
	})
	if verdict, err := Run(ctx, client, options()); err == nil {
		t.Errorf("the verdict is %+v", verdict)
	}
	requireRemoved(t, client)
}

func TestRunNeedsTheNodeAndTwoImages(t *testing.T) {
	o := options()
	o.Node = "other"
	if _, err := Run(t.Context(), node(&corev1.Pod{}, &corev1.Pod{}), o); err == nil {
		t.Error("a node that does not exist was probed")
	}
	o = options()
	o.QuickExitImage = o.Image
	if _, err := Run(t.Context(), node(&corev1.Pod{}, &corev1.Pod{}), o); err == nil {
		t.Error("an image was changed to itself")
	}
}
