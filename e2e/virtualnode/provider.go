// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// provider implements virtual-kubelet's pod lifecycle handler.
type provider struct {
	images    string // the directory of image archives
	directory string // of the file systems of containers

	notify func(*corev1.Pod)

	mutex sync.Mutex
	pods  map[cache.ObjectName]*sandbox
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
	p.pods[cache.MetaObjectToName(pod)] = startSandbox(p, pod)
	return nil
}

// UpdatePod restarts the containers whose images changed.
func (p *provider) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	s, err := p.find(cache.MetaObjectToName(pod))
	if err == nil {
		s.update(pod)
	}
	return err
}

// DeletePod stops a pod and does not wait for its processes.
func (p *provider) DeletePod(_ context.Context, pod *corev1.Pod) error {
	key := cache.MetaObjectToName(pod)
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
	s, err := p.find(cache.NewObjectName(namespace, name))
	if err != nil {
		return nil, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.pod.DeepCopy(), nil
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

func (p *provider) find(key cache.ObjectName) (*sandbox, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if s := p.pods[key]; s != nil {
		return s, nil
	}
	return nil, errdefs.NotFoundf("there is no pod %s", key)
}
