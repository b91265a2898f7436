// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const (
	// writers is how many clients write the status of pods.
	writers        = 16
	sidecar        = "proxy"
	quickExitImage = "registry.example/quick-exit:v1"
	// nodeName is the node of pods in bursts. It has no kubelet, so only the benchmark writes their status.
	nodeName      = "no-kubelet"
	controllerUID = "4b9c0a52-6b53-4f0e-9d2a-4c0f3a1d2e77"
)

// burstLabels select the pods of newPod.
var burstLabels = map[string]string{"app": "import"}

// each calls do once for each index, in as many goroutines as there are writers.
func each(ctx context.Context, count int, do func(ctx context.Context, index int) error) error {
	calls, called := errgroup.WithContext(ctx)
	calls.SetLimit(writers)
	for index := range count {
		calls.Go(func() error { return do(called, index) })
	}
	return errors.Join(calls.Wait(), context.Cause(ctx))
}

// newPod is a pod of a Job with a main container and a sidecar, of a usual size. A variable declares the sidecar to OpenKruise.
func newPod(namespace, name, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{
				"app": "import", "team": "etl", "version": "v1", "job-name": name, "batch.kubernetes.io/job-name": name,
				"controller-uid": controllerUID, "batch.kubernetes.io/controller-uid": controllerUID,
			},
		},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](30),
			AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{
				{Name: "main", Image: "registry.example/import:v1"},
				{Name: sidecar, Image: "registry.example/proxy:v1", Env: []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}},
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
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now}
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

// exits sets the status that a kubelet reports after a container exits 0.
func exits(pod *corev1.Pod, container int) {
	status := &pod.Status.ContainerStatuses[container]
	status.Ready = false
	status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: "Completed", ContainerID: status.ContainerID, StartedAt: *pod.Status.StartTime, FinishedAt: metav1.Now(),
	}}
}

// createPod creates a pod with the status, and returns it as last written. A status takes a second write, because the API server drops the
// status of a new pod.
func (e *environment) createPod(ctx context.Context, pod *corev1.Pod, status func(*corev1.Pod)) (*corev1.Pod, error) {
	created, err := e.kubelets.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return e.writeStatus(ctx, created, status)
}

// createPods creates pods with the status on the node of bursts.
func (e *environment) createPods(ctx context.Context, namespace, name string, count int, status func(*corev1.Pod)) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, count)
	return pods, each(ctx, count, func(ctx context.Context, i int) (err error) {
		pods[i], err = e.createPod(ctx, newPod(namespace, fmt.Sprintf("%s-%05d", name, i), nodeName), status)
		return err
	})
}

// writeStatus reports the status of a pod, whatever has been written to it since, as its kubelet does.
func (e *environment) writeStatus(ctx context.Context, pod *corev1.Pod, status func(*corev1.Pod)) (*corev1.Pod, error) {
	status(pod)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": pod.Status})
	if err != nil {
		return nil, err
	}
	return e.kubelets.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// createNode creates a node, which has no kubelet.
func createNode(ctx context.Context, c client.Client, name string) error {
	return c.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}})
}

// createNamespace creates a namespace and returns its name.
func createNamespace(ctx context.Context, c client.Client) (string, error) {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	err := c.Create(ctx, space)
	return space.Name, err
}

// settingsOf are the settings of each mode in bursts. PodPhase needs exitCodePolicy Ignore. The other modes use Respect, so that the mode's
// own write is the only one.
var settingsOf = map[v1alpha1.Mode]v1alpha1.TerminationSettings{
	v1alpha1.ModePodPhase: {Mode: v1alpha1.ModePodPhase, ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore},
	v1alpha1.ModeCRR:      {Mode: v1alpha1.ModeCRR, ExitCodePolicy: v1alpha1.ExitCodePolicyRespect},
	v1alpha1.ModeImage:    {Mode: v1alpha1.ModeImage, ExitCodePolicy: v1alpha1.ExitCodePolicyRespect, Image: quickExitImage},
}

// newPolicy returns a policy that selects the pods with the labels.
func newPolicy(namespace, name string, labels map[string]string, settings v1alpha1.TerminationSettings) *v1alpha1.SidecarTerminationPolicy {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	policy.Spec.PodSelector.MatchLabels = labels
	policy.Spec.Sidecars, policy.Spec.TerminationSettings = []v1alpha1.Sidecar{{Name: sidecar}}, settings
	return policy
}

// createPolicy creates a policy for the mode, without fallback.
func createPolicy(ctx context.Context, c client.Client, namespace, name string, labels map[string]string, mode v1alpha1.Mode) error {
	policy := newPolicy(namespace, name, labels, settingsOf[mode])
	policy.Spec.Fallback = v1alpha1.FallbackDisabled
	return c.Create(ctx, policy)
}

// cleanUp removes pods, policies, ContainerRecreateRequests and events of the namespace. No controller does so here.
func cleanUp(ctx context.Context, c client.Client, namespace string) (err error) {
	crr := &metav1.PartialObjectMetadata{}
	crr.SetGroupVersionKind(crrKind)
	for _, object := range []client.Object{&v1alpha1.SidecarTerminationPolicy{}, &corev1.Pod{}, crr, &corev1.Event{}} {
		failed := c.DeleteAllOf(context.WithoutCancel(ctx), object, client.InNamespace(namespace), client.GracePeriodSeconds(0))
		if !meta.IsNoMatchError(failed) { // OpenKruise may be missing
			err = errors.Join(err, client.IgnoreNotFound(failed))
		}
	}
	return err
}
