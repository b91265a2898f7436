// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whether a container runs again, and the reason for which it waits until then.
const (
	never      = ""
	atOnce     = "ContainerCreating"
	afterPause = "CrashLoopBackOff"
	pullFailed = "ErrImagePull"
)

// pause is the time before a restart, and before another try to pull an image.
const pause = 4 * time.Second

// container is one container of a sandbox. It has its own goroutine.
type container struct {
	sandbox *sandbox
	index   int
	root    string
	// changed holds a value once the image differs from that of the last spec.
	changed chan struct{}
}

// run runs the container and its restarts.
func (c *container) run() {
	for {
		switch c.once() {
		case never:
			return
		case atOnce:
			continue
		}
		select {
		case <-c.changed:
		case <-time.After(pause):
		case <-c.sandbox.stopping.Done():
			c.sandbox.report(c.index, func(status *corev1.ContainerStatus) {
				if status.LastTerminationState.Terminated != nil {
					status.State = status.LastTerminationState
				}
			})
			return
		}
	}
}

// once runs the container once in a fresh copy of its image, and returns whether it runs again.
func (c *container) once() string {
	spec, policy := c.spec()
	config, err := unpack(c.sandbox.node.images, spec.Image, c.root)
	if err != nil {
		c.sandbox.report(c.index, func(status *corev1.ContainerStatus) { status.State = waiting(pullFailed, err.Error()) })
		return pullFailed
	}
	process := start(spec, config, c.root)
	c.sandbox.report(c.index, func(status *corev1.ContainerStatus) {
		if status.ContainerID != "" {
			status.RestartCount++
		}
		status.ContainerID = fmt.Sprintf("process://%s-%s-%d", c.sandbox.pod.UID, status.Name, status.RestartCount)
		status.Image, status.Ready = spec.Image, true
		status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	})
	again := never
	select {
	case <-process.ended:
		if policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && process.state.ExitCode != 0 {
			again = afterPause
		}
	case <-c.changed:
		// A changed image restarts the container regardless of restartPolicy.
		process.stop(c.sandbox.grace())
		again = atOnce
	case <-c.sandbox.stopping.Done():
		process.stop(c.sandbox.grace())
	}
	c.sandbox.report(c.index, func(status *corev1.ContainerStatus) {
		state := process.state
		state.ContainerID, state.StartedAt, state.FinishedAt = status.ContainerID, status.State.Running.StartedAt, metav1.Now()
		status.State, status.Ready = corev1.ContainerState{Terminated: &state}, false
		if again != never {
			status.LastTerminationState, status.State = status.State, waiting(again, "the container is restarted")
		}
	})
	return again
}

// spec returns the container's current spec and the pod's restartPolicy.
func (c *container) spec() (corev1.Container, corev1.RestartPolicy) {
	c.sandbox.mutex.Lock()
	defer c.sandbox.mutex.Unlock()
	select {
	case <-c.changed:
	default:
	}
	return *c.sandbox.pod.Spec.Containers[c.index].DeepCopy(), c.sandbox.pod.Spec.RestartPolicy
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}
