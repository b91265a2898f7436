// SPDX-License-Identifier: Apache-2.0

// Package probe tests whether mode Image works on a node.
package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
)

const (
	pollInterval   = 500 * time.Millisecond
	cleanupTimeout = 30 * time.Second
	graceSeconds   = 2
	// lifetime bounds the pod when its removal fails.
	lifetime = 30 * time.Minute

	mainName    = "probe-main"
	sidecarName = "probe-sidecar"
)

// Options say what to probe.
type Options struct {
	Node      string
	Namespace string
	// Image is what the pod starts with; it has /bin/sleep.
	Image string
	// QuickExitImage is what the image is swapped to.
	QuickExitImage string
	// Timeout bounds the time that the pod takes to start, and then that it takes to react.
	Timeout time.Duration
	// Say tells the user how far things are.
	Say func(format string, arguments ...any)
}

// Verdict is what was found out.
type Verdict struct {
	Works   bool
	Message string
}

// Run probes the node. The error says why that was not possible.
func Run(ctx context.Context, client kubernetes.Interface, o Options) (verdict Verdict, err error) {
	if o.Image == o.QuickExitImage {
		return Verdict{}, errors.New("the two images must differ")
	}
	if _, err := client.CoreV1().Nodes().Get(ctx, o.Node, metav1.GetOptions{}); err != nil {
		return Verdict{}, fmt.Errorf("get the node: %w", err)
	}
	pods := client.CoreV1().Pods(o.Namespace)
	pod, err := pods.Create(ctx, newPod(o), metav1.CreateOptions{})
	if err != nil {
		return Verdict{}, fmt.Errorf("create the pod: %w", err)
	}
	defer func() { err = errors.Join(err, remove(pods, pod)) }()
	o.Say("pod %s/%s: waiting until one container has ended and the other one runs on node %s", o.Namespace, pod.Name, o.Node)
	before, err := await(ctx, pods, pod.Name, o.Timeout, isReady)
	if err != nil {
		return Verdict{}, fmt.Errorf("wait for the pod to run on node %s: %w", o.Node, err)
	}
	o.Say("pod %s/%s: changing the image of %s to %s", o.Namespace, pod.Name, sidecarName, o.QuickExitImage)
	if err := swap(ctx, pods, before, o.QuickExitImage); err != nil {
		return Verdict{}, err
	}
	begin := time.Now()
	after, err := await(ctx, pods, pod.Name, o.Timeout, func(now *corev1.Pod) (bool, error) { return hasReacted(now), nil })
	if after == nil {
		return Verdict{}, fmt.Errorf("watch the pod: %w", err)
	}
	if ctx.Err() != nil {
		return Verdict{}, ctx.Err()
	}
	return judge(before, after, time.Since(begin)), nil
}

// newPod returns a pod as a Job would have it, whose sidecar mode Image ends. It names
// its node, because the scheduler might choose another one.
func newPod(o Options) *corev1.Pod {
	container := func(name, seconds string) corev1.Container {
		return corev1.Container{Name: name, Image: o.Image, Command: []string{"/bin/sleep", seconds}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-virtual-node-", Labels: map[string]string{"app.kubernetes.io/name": "probe-virtual-node"}},
		Spec: corev1.PodSpec{
			NodeName:                      o.Node,
			RestartPolicy:                 corev1.RestartPolicyNever,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			TerminationGracePeriodSeconds: ptr.To[int64](graceSeconds),
			ActiveDeadlineSeconds:         ptr.To(int64(lifetime.Seconds())),
			AutomountServiceAccountToken:  ptr.To(false),
			Containers:                    []corev1.Container{container(mainName, "1"), container(sidecarName, "3600")},
		},
	}
}

// swap changes the image as the operator does.
func swap(ctx context.Context, pods typedcorev1.PodInterface, pod *corev1.Pod, image string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"spec":     map[string]any{"containers": []map[string]string{{"name": sidecarName, "image": image}}},
	})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change the image: %w", err)
	}
	return nil
}

// await polls the pod until the condition holds or has an error. After the timeout it
// returns the newest state with an error.
func await(ctx context.Context, pods typedcorev1.PodInterface, name string, timeout time.Duration, condition func(*corev1.Pod) (bool, error)) (newest *corev1.Pod, err error) {
	var last error
	err = wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			last = err
			return false, nil
		}
		newest, last = pod, fmt.Errorf("not within %s: %s", timeout, describe(pod))
		return condition(pod)
	})
	if wait.Interrupted(err) {
		err = errors.Join(err, last)
	}
	return newest, err
}

// remove deletes the pod, even after the user interrupts the probe.
func remove(pods typedcorev1.PodInterface, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](graceSeconds), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil {
		return fmt.Errorf("remove pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
