// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// provider implements virtual-kubelet's pod lifecycle handler.
type provider struct {
	images, directory string

	notify func(*corev1.Pod)

	mutex sync.Mutex
	pods  map[types.NamespacedName]*sandbox
}

// newProvider returns a provider that reads image archives from one directory and has its files in another one.
func newProvider(images, directory string) *provider {
	return &provider{images: images, directory: directory, pods: map[types.NamespacedName]*sandbox{}}
}

// NotifyPods sets the callback for changed statuses, before the first pod starts.
func (p *provider) NotifyPods(_ context.Context, notify func(*corev1.Pod)) { p.notify = notify }

// CreatePod starts a pod.
func (p *provider) CreatePod(_ context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.InitContainers) > 0 {
		return errdefs.InvalidInput("this node runs no init containers")
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.pods[keyOf(pod)] = startSandbox(p, pod)
	return nil
}

// UpdatePod restarts the containers whose images changed.
func (p *provider) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	s, err := p.find(keyOf(pod))
	if err == nil {
		s.update(pod)
	}
	return err
}

// DeletePod stops a pod and does not wait for its processes.
func (p *provider) DeletePod(_ context.Context, pod *corev1.Pod) error {
	key := keyOf(pod)
	s, err := p.find(key)
	if err != nil {
		return err
	}
	go func() {
		s.stop(ptr.Deref(pod.DeletionGracePeriodSeconds, 0))
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if p.pods[key] == s {
			delete(p.pods, key)
		}
	}()
	return nil
}

// GetPod returns a pod with its status.
func (p *provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	s, err := p.find(types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return s.snapshot(), nil
}

// GetPodStatus returns the status of a pod.
func (p *provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns no pods: virtual-kubelet asks once, before the first one starts.
func (p *provider) GetPods(context.Context) ([]*corev1.Pod, error) { return nil, nil }

func (p *provider) find(key types.NamespacedName) (*sandbox, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if s := p.pods[key]; s != nil {
		return s, nil
	}
	return nil, errdefs.NotFoundf("there is no pod %s", key)
}

func keyOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
