// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const (
	// writers is how many clients write the status of pods.
	writers        = 16
	sidecar        = "proxy"
	quickExitImage = "registry.example/quick-exit:v1"
)

// reporters returns a client that writes as kubelets do: in protobuf, and without a limit.
func reporters(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return c, nil
}

// each calls do once for each index, in as many goroutines as there are writers. A rate limits how many calls start per
// second. A slow call does not delay later ones while a writer is free.
func each(ctx context.Context, count, rate int, do func(ctx context.Context, index int) error) error {
	calls, called := errgroup.WithContext(ctx)
	calls.SetLimit(writers)
	begin := time.Now()
	for index := range count {
		if rate > 0 {
			select {
			case <-called.Done():
			case <-time.After(time.Until(begin.Add(time.Duration(index) * time.Second / time.Duration(rate)))):
			}
		}
		if called.Err() != nil {
			break
		}
		calls.Go(func() error { return do(called, index) })
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// newPod is a pod of a Job with a main container and a sidecar, of a usual size. A variable declares the sidecar to
// OpenKruise.
func newPod(namespace, name string) *corev1.Pod {
	pod := newUndeclaredPod(namespace, name)
	pod.Spec.Containers[1].Env = append(pod.Spec.Containers[1].Env, corev1.EnvVar{Name: v1alpha1.EnvTerminate, Value: "true"})
	return pod
}

// newUndeclaredPod is newPod without the variable.
func newUndeclaredPod(namespace, name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{
				"app": "import", "team": "etl", "version": "v1", "job-name": name, "batch.kubernetes.io/job-name": name,
				"controller-uid":                     "4b9c0a52-6b53-4f0e-9d2a-4c0f3a1d2e77",
				"batch.kubernetes.io/controller-uid": "4b9c0a52-6b53-4f0e-9d2a-4c0f3a1d2e77",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: nodeName, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](30),
			AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{
				{Name: "main", Image: "registry.example/import:v1"},
				{Name: sidecar, Image: "registry.example/proxy:v1"},
			},
		},
	}
	for i := range pod.Spec.Containers {
		for n := range 20 {
			pod.Spec.Containers[i].Env = append(pod.Spec.Containers[i].Env,
				corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", n), Value: "a value of the usual length"})
		}
	}
	return pod
}

// runs sets the status that a kubelet reports while all containers run.
func runs(pod *corev1.Pod) {
	now := metav1.Now()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = &now
	pod.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: container.Image, Ready: true, Started: ptr.To(true),
			ContainerID: fmt.Sprintf("containerd://%s-%s", pod.UID, container.Name),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
}

// mainEnds sets the status that a kubelet reports after the main container exits 0.
func mainEnds(pod *corev1.Pod) { exits(pod, 0) }

// finishes sets the status that a kubelet reports after all containers exit 0.
func finishes(pod *corev1.Pod) {
	runs(pod)
	pod.Status.Phase = corev1.PodSucceeded
	for i := range pod.Status.ContainerStatuses {
		exits(pod, i)
	}
}

func exits(pod *corev1.Pod, container int) {
	status := &pod.Status.ContainerStatuses[container]
	status.Ready = false
	status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Completed", ContainerID: status.ContainerID, StartedAt: *pod.Status.StartTime, FinishedAt: metav1.Now(),
	}}
}

// numbered are names of pods.
func numbered(prefix string, count int) []string {
	names := make([]string, 0, count)
	for i := range count {
		names = append(names, fmt.Sprintf("%s-%05d", prefix, i))
	}
	return names
}

// exempt is a namespace label that keeps OpenKruise's webhooks from pods: pods are created while OpenKruise does not run.
var exempt = map[string]string{"control-plane": "bench"}

// createNode creates a node, which has no kubelet.
func createNode(ctx context.Context, c client.Client, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if err := c.Create(ctx, node); err != nil {
		return fmt.Errorf("create a node: %w", err)
	}
	return nil
}

// createNamespace creates a namespace and returns its name.
func createNamespace(ctx context.Context, c client.Client, prefix string, labels map[string]string) (string, error) {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix, Labels: labels}}
	if err := c.Create(ctx, space); err != nil {
		return "", fmt.Errorf("create a namespace: %w", err)
	}
	return space.Name, nil
}

// createPods creates running pods and returns them as last written.
func createPods(
	ctx context.Context, c kubernetes.Interface, namespace string, names []string, build func(namespace, name string) *corev1.Pod,
) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, len(names))
	err := each(ctx, len(names), 0, func(ctx context.Context, i int) (err error) {
		pods[i], err = createPod(ctx, c, build(namespace, names[i]), runs)
		return err
	})
	return pods, err
}

// createPod creates a pod and returns it as last written. A status takes a second write, because the API server drops the status
// of a new pod.
func createPod(ctx context.Context, c kubernetes.Interface, pod *corev1.Pod, status func(*corev1.Pod)) (*corev1.Pod, error) {
	pod, err := c.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a pod: %w", err)
	}
	if status == nil {
		return pod, nil
	}
	status(pod)
	if pod, err = c.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("report the status of a pod: %w", err)
	}
	return pod, nil
}

// createPolicy creates a policy with the mode. PodPhase needs exitCodes Ignore. The other modes use Respect, so that the
// mode's own write is the only one.
func createPolicy(ctx context.Context, c client.Client, namespace string, mode v1alpha1.Mode) error {
	settings := v1alpha1.TerminationSettings{Mode: mode, ExitCodes: v1alpha1.ExitCodesRespect}
	switch mode {
	case v1alpha1.ModePodPhase:
		settings.ExitCodes = v1alpha1.ExitCodesIgnore
	case v1alpha1.ModeImage:
		settings.Image = quickExitImage
	}
	return createPolicyWith(ctx, c, namespace, settings, v1alpha1.FallbackDisabled)
}

// createPolicyWith creates a policy with the settings and the fallback.
func createPolicyWith(
	ctx context.Context, c client.Client, namespace string, settings v1alpha1.TerminationSettings, fallback v1alpha1.Fallback,
) error {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bench"}}
	policy.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "import"}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: sidecar}}
	policy.Spec.TerminationSettings, policy.Spec.Fallback = settings, fallback
	if err := c.Create(ctx, policy); err != nil {
		return fmt.Errorf("create the policy: %w", err)
	}
	return nil
}

// removePods removes pods, and all requests and events of their namespace.
func removePods(ctx context.Context, e *environment, c kubernetes.Interface, namespace string, names []string) error {
	ctx = context.WithoutCancel(ctx)
	failed := each(ctx, len(names), 0, func(ctx context.Context, i int) error {
		err := c.CoreV1().Pods(namespace).Delete(ctx, names[i], metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove a pod: %w", err)
		}
		return nil
	})
	return errors.Join(failed, cleanUp(ctx, e.client, namespace))
}

// cleanUp removes all objects of some kinds, all requests and all events of the namespace. No controller does so here.
func cleanUp(ctx context.Context, c client.Client, namespace string, kinds ...client.Object) error {
	request := &metav1.PartialObjectMetadata{}
	request.SetGroupVersionKind(requestKind)
	var failures []error
	for _, object := range append(kinds, request, &corev1.Event{}) {
		failures = append(failures, removeAll(context.WithoutCancel(ctx), c, object, namespace))
	}
	return errors.Join(failures...)
}

// removals is the backoff of removals.
var removals = wait.Backoff{Steps: 5, Duration: 100 * time.Millisecond}

// removeAll removes all objects of a kind from the namespace. It retries a request that times out.
func removeAll(ctx context.Context, c client.Client, object client.Object, namespace string) error {
	return retry.OnError(removals, tookTooLong, func() error {
		err := c.DeleteAllOf(ctx, object, client.InNamespace(namespace), client.GracePeriodSeconds(0))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove all of %T: %w", object, err)
		}
		return nil
	})
}

// tookTooLong reports a timeout. An error without a status counts too, because an API server
// that has started its response resets the stream.
func tookTooLong(err error) bool {
	var answer apierrors.APIStatus
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || !errors.As(err, &answer)
}
