// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// startErrorExitCode is the kubelet's exit code for a command that cannot start.
	startErrorExitCode = 128
	// firstPause is the first restart backoff. It doubles up to lastPause.
	firstPause = time.Second
	lastPause  = 16 * time.Second
)

// container is one container of a sandbox. It has its own goroutine.
type container struct {
	sandbox       *sandbox
	index         int
	restartPolicy corev1.RestartPolicy
	directory     string
	starts        int

	// The sandbox' mutex guards these. The channel is closed and replaced when the wanted
	// image changes.
	image   string
	changed chan struct{}
	status  corev1.ContainerStatus
}

// next is what happens after a run of a container.
type next int

const (
	// never means no restart.
	never next = iota
	// atOnce means a restart, later a restart with backoff.
	atOnce
	later
)

// run runs the container and its restarts.
func (c *container) run() {
	pause := firstPause
	for {
		spec, changed := c.wanted()
		switch c.once(spec, changed) {
		case never:
			return
		case atOnce:
			pause = firstPause
		case later:
			if !c.wait(changed, pause) {
				return
			}
			pause = min(2*pause, lastPause)
		}
	}
}

// wanted returns the container's current spec, and a channel that is closed when its image
// changes.
func (c *container) wanted() (corev1.Container, <-chan struct{}) {
	c.sandbox.mutex.Lock()
	defer c.sandbox.mutex.Unlock()
	spec := c.sandbox.pod.Spec.Containers[c.index].DeepCopy()
	c.image = spec.Image
	return *spec, c.changed
}

// once runs the container once in a fresh copy of its image.
func (c *container) once(spec corev1.Container, changed <-chan struct{}) next {
	root := filepath.Join(c.directory, strconv.Itoa(c.starts), "root")
	image, err := c.sandbox.images.unpack(spec.Image, root)
	if err != nil {
		c.report(func(status *corev1.ContainerStatus) { status.State = waiting("ErrImagePull", err.Error()) })
		return later
	}
	process, err := start(newCommand(spec, c.sandbox.pod.Spec.SecurityContext, image, root), filepath.Join(c.directory, "output.log"))
	c.starts++
	c.report(func(status *corev1.ContainerStatus) { c.begin(status, image) })
	if err != nil {
		return c.end("StartError", err.Error(), startErrorExitCode, c.restartAfter(startErrorExitCode))
	}
	select {
	case <-process.ended:
		return c.end("", "", process.exitCode, c.restartAfter(process.exitCode))
	case <-changed:
		// A changed image restarts the container regardless of restartPolicy.
		return c.end("", "", process.stop(c.sandbox.grace()), atOnce)
	case <-c.sandbox.stopping.Done():
		return c.end("", "", process.stop(c.sandbox.grace()), never)
	}
}

// begin sets the status of a new run.
func (c *container) begin(status *corev1.ContainerStatus, image image) {
	if status.ContainerID != "" {
		status.RestartCount++
	}
	status.ContainerID = fmt.Sprintf("process://%s-%s-%d", c.sandbox.pod.UID, status.Name, c.starts)
	status.Image, status.ImageID, status.Ready = image.reference, image.digest, true
	status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
}

// restartAfter applies the pod's restartPolicy to the exit code.
func (c *container) restartAfter(exitCode int32) next {
	if c.restartPolicy == corev1.RestartPolicyNever || c.restartPolicy == corev1.RestartPolicyOnFailure && exitCode == 0 {
		return never
	}
	return later
}

// end sets the status of a finished run, and returns what happens next.
func (c *container) end(reason, message string, exitCode int32, then next) next {
	if reason == "" && exitCode == 0 {
		reason = "Completed"
	} else if reason == "" {
		reason = "Error"
	}
	c.report(func(status *corev1.ContainerStatus) {
		ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: reason, Message: message, ExitCode: exitCode, ContainerID: status.ContainerID,
			StartedAt: status.State.Running.StartedAt, FinishedAt: metav1.Now(),
		}}
		status.Ready = false
		switch then {
		case never:
			status.State = ended
		case atOnce:
			status.LastTerminationState, status.State = ended, waiting("ContainerCreating", "")
		case later:
			status.LastTerminationState, status.State = ended, waiting("CrashLoopBackOff", "a failed container is restarted after a pause")
		}
	})
	return then
}

// wait waits for the backoff or an image change. It returns false if the container must not
// run again.
func (c *container) wait(changed <-chan struct{}, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-changed:
		return true
	case <-timer.C:
		return true
	case <-c.sandbox.stopping.Done():
		c.report(func(status *corev1.ContainerStatus) {
			if status.LastTerminationState.Terminated != nil {
				status.State = status.LastTerminationState
			}
		})
		return false
	}
}

// report changes and reports the status.
func (c *container) report(change func(*corev1.ContainerStatus)) {
	c.sandbox.mutex.Lock()
	change(&c.status)
	c.sandbox.mutex.Unlock()
	c.sandbox.tell()
}
