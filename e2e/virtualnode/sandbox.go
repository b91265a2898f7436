// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// sandbox is a pod on the node.
type sandbox struct {
	node      *provider
	directory string

	stopping context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mutex        sync.Mutex
	pod          *corev1.Pod
	graceSeconds atomic.Int64
	containers   []*container
}

// startSandbox starts the containers of the pod.
func startSandbox(node *provider, pod *corev1.Pod) *sandbox {
	s := &sandbox{node: node, directory: filepath.Join(node.directory, string(pod.UID)), pod: pod.DeepCopy()}
	s.graceSeconds.Store(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	s.stopping, s.cancel = context.WithCancel(context.Background())
	s.pod.Status.StartTime = ptr.To(metav1.Now())
	s.pod.Status.ContainerStatuses = nil
	for i, spec := range pod.Spec.Containers {
		s.pod.Status.ContainerStatuses = append(s.pod.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, State: waiting("ContainerCreating", "")})
		s.containers = append(s.containers, &container{
			sandbox: s, index: i, root: filepath.Join(s.directory, spec.Name), changed: make(chan struct{}, 1),
		})
	}
	s.pod.Status.Phase = phaseOf(s.pod)
	for _, c := range s.containers {
		s.running.Go(c.run)
	}
	return s
}

// update applies changed images of a pod.
func (s *sandbox) update(pod *corev1.Pod) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	previous := s.pod
	s.pod = pod.DeepCopy()
	s.pod.Status = previous.Status
	for i, c := range s.containers {
		if pod.Spec.Containers[i].Image == previous.Spec.Containers[i].Image {
			continue
		}
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
}

// stop stops all processes, waits for them and removes their files.
func (s *sandbox) stop(graceSeconds int64) {
	s.graceSeconds.Store(graceSeconds)
	s.cancel()
	s.running.Wait()
	_ = os.RemoveAll(s.directory)
}

func (s *sandbox) grace() time.Duration { return time.Duration(s.graceSeconds.Load()) * time.Second }

// report changes the status of a container and reports the pod. It keeps the lock meanwhile, so that the newest status is
// reported last.
func (s *sandbox) report(container int, change func(*corev1.ContainerStatus)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	change(&s.pod.Status.ContainerStatuses[container])
	s.pod.Status.Phase = phaseOf(s.pod)
	s.node.notify(s.pod.DeepCopy())
}

// phaseOf derives the phase from the container statuses, as the kubelet does.
func phaseOf(pod *corev1.Pod) corev1.PodPhase {
	unfinished, finished := corev1.PodPhase(""), corev1.PodSucceeded
	for _, status := range pod.Status.ContainerStatuses {
		switch end := status.State.Terminated; {
		case end != nil && end.ExitCode != 0:
			finished = corev1.PodFailed
		case end != nil:
		case status.State.Waiting != nil && status.LastTerminationState.Terminated == nil:
			unfinished = corev1.PodPending
		default:
			unfinished = cmp.Or(unfinished, corev1.PodRunning)
		}
	}
	return cmp.Or(unfinished, finished)
}
