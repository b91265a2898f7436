// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// defaultGraceSeconds is Kubernetes' default.
const defaultGraceSeconds = 30

// sandbox is a pod on the node.
type sandbox struct {
	images    Images
	directory string
	notify    func(*corev1.Pod)
	// dirty signals a changed status. It is closed after the last change.
	dirty    chan struct{}
	reported chan struct{}

	stopping  context.Context
	cancel    context.CancelFunc
	running   sync.WaitGroup
	finishing sync.Once

	mutex        sync.Mutex
	pod          *corev1.Pod
	graceSeconds int64
	containers   []*container
}

func newSandbox(pod *corev1.Pod, images Images, directory string, notify func(*corev1.Pod)) *sandbox {
	s := &sandbox{
		images: images, directory: directory, notify: notify,
		dirty: make(chan struct{}, 1), reported: make(chan struct{}),
		pod: pod.DeepCopy(), graceSeconds: ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, defaultGraceSeconds),
	}
	s.stopping, s.cancel = context.WithCancel(context.Background())
	s.pod.Status.StartTime = ptr.To(metav1.Now())
	for i := range s.pod.Spec.Containers {
		spec := &s.pod.Spec.Containers[i]
		s.containers = append(s.containers, &container{
			sandbox: s, index: i, restartPolicy: pod.Spec.RestartPolicy,
			directory: filepath.Join(directory, spec.Name), changed: make(chan struct{}),
			status: corev1.ContainerStatus{
				Name: spec.Name, Image: spec.Image, State: waiting("ContainerCreating", ""),
			},
		})
	}
	go s.report()
	return s
}

func (s *sandbox) start() {
	for _, c := range s.containers {
		s.running.Go(c.run)
	}
	s.tell()
}

// lose sets every container to terminated with an unknown result.
func (s *sandbox) lose() {
	for _, c := range s.containers {
		c.report(func(status *corev1.ContainerStatus) {
			for _, known := range s.pod.Status.ContainerStatuses {
				if known.Name == status.Name {
					*status = known
				}
			}
			if status.State.Terminated == nil {
				status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: killedExitCode, Reason: "ContainerStatusUnknown", Message: "the virtual node was restarted", FinishedAt: metav1.Now(),
				}}
			}
		})
	}
}

// update applies changed images of a pod.
func (s *sandbox) update(pod *corev1.Pod) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	status := s.pod.Status
	s.pod = pod.DeepCopy()
	s.pod.Status = status
	for _, c := range s.containers {
		if image := s.pod.Spec.Containers[c.index].Image; image != c.image {
			c.image = image
			close(c.changed)
			c.changed = make(chan struct{})
		}
	}
}

// stop stops all processes and waits for them.
func (s *sandbox) stop(graceSeconds int64) {
	s.mutex.Lock()
	s.graceSeconds = graceSeconds
	s.mutex.Unlock()
	s.cancel()
	s.running.Wait()
}

// finish reports the last status of a stopped sandbox and removes its files.
func (s *sandbox) finish() {
	s.finishing.Do(func() {
		close(s.dirty)
		<-s.reported
		_ = os.RemoveAll(s.directory)
	})
}

func (s *sandbox) grace() time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return time.Duration(s.graceSeconds) * time.Second
}

// tell requests a report unless one is pending.
func (s *sandbox) tell() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// report reports the newest status, one report at a time.
func (s *sandbox) report() {
	defer close(s.reported)
	for range s.dirty {
		s.notify(s.snapshot())
	}
	s.notify(s.snapshot())
}

// snapshot returns the pod with its status.
func (s *sandbox) snapshot() *corev1.Pod {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	pod := s.pod.DeepCopy()
	pod.Status.ContainerStatuses = nil
	for _, c := range s.containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, *c.status.DeepCopy())
	}
	summarise(pod)
	return pod
}
