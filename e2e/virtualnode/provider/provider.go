// SPDX-License-Identifier: Apache-2.0

// Package provider runs the containers of pods as processes, each in the unpacked file
// system of its image and in its own PID namespace. It behaves like a kubelet where the
// operator depends on it: restart policies, restarts after image changes, exit codes,
// unpullable images and graceful termination. It supports no volumes, pod networks, probes,
// lifecycle hooks or init containers.
package provider

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Provider implements virtual-kubelet's pod lifecycle handler.
type Provider struct {
	images    Images
	directory string

	mutex  sync.Mutex
	notify func(*corev1.Pod)
	pods   map[types.NamespacedName]*sandbox
}

// New returns a provider with its files in a directory, which it empties first.
func New(images Images, directory string) (*Provider, error) {
	if err := os.RemoveAll(directory); err != nil {
		return nil, fmt.Errorf("remove what earlier pods left: %w", err)
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of pods: %w", err)
	}
	return &Provider{images: images, directory: directory, pods: map[types.NamespacedName]*sandbox{}}, nil
}

// NotifyPods sets the callback for changed statuses.
func (p *Provider) NotifyPods(_ context.Context, notify func(*corev1.Pod)) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.notify = notify
}

// CreatePod starts a pod. A pod of a previous process of this node has lost its containers
// and fails.
func (p *Provider) CreatePod(_ context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.InitContainers) > 0 {
		return errdefs.InvalidInput("this node runs no init containers")
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	s := newSandbox(pod, p.images, filepath.Join(p.directory, string(pod.UID)), p.notify)
	p.pods[keyOf(pod)] = s
	if pod.Status.StartTime != nil {
		s.lose()
		return nil
	}
	s.start()
	return nil
}

// UpdatePod restarts the containers whose images changed.
func (p *Provider) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	s, err := p.find(keyOf(pod))
	if err != nil {
		return err
	}
	s.update(pod)
	return nil
}

// DeletePod stops a pod and does not wait for its processes.
func (p *Provider) DeletePod(_ context.Context, pod *corev1.Pod) error {
	key := keyOf(pod)
	s, err := p.find(key)
	if err != nil {
		return err
	}
	go func() {
		s.stop(ptr.Deref(pod.DeletionGracePeriodSeconds, 0))
		p.mutex.Lock()
		if p.pods[key] == s {
			delete(p.pods, key)
		}
		p.mutex.Unlock()
		s.finish()
	}()
	return nil
}

// GetPod returns a pod with its status.
func (p *Provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	s, err := p.find(types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	return s.snapshot(), nil
}

// GetPodStatus returns the status of a pod.
func (p *Provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns all pods.
func (p *Provider) GetPods(context.Context) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, s := range p.all() {
		pods = append(pods, s.snapshot())
	}
	return pods, nil
}

// Close kills all processes and waits for them.
func (p *Provider) Close() {
	var group sync.WaitGroup
	for _, s := range p.all() {
		group.Go(func() { s.stop(0) })
	}
	group.Wait()
}

func (p *Provider) all() []*sandbox {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Collect(maps.Values(p.pods))
}

func (p *Provider) find(key types.NamespacedName) (*sandbox, error) {
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
