// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"os"
	"os/exec"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
)

// process is a container that runs or has ended.
type process struct {
	command *exec.Cmd
	// ended is closed when the process has exited and the state is set.
	ended chan struct{}
	state corev1.ContainerStateTerminated
}

// start runs the container's command as root and as the first process of a PID namespace, so that its children exit with it. It
// exits with this process, whose output it shares.
func start(spec corev1.Container, image v1.Config, root string) *process {
	p := &process{command: newCommand(spec, image, root), ended: make(chan struct{})}
	if err := p.command.Start(); err != nil {
		// The kubelet gives a command that cannot start this state.
		p.state = corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: err.Error()}
		close(p.ended)
		return p
	}
	go p.reap()
	return p
}

// newCommand merges the container with its image's config, as container runtimes do. The command has to be a path, which is
// relative to the root.
func newCommand(spec corev1.Container, image v1.Config, root string) *exec.Cmd {
	entrypoint, arguments := image.Entrypoint, image.Cmd
	if len(spec.Command) > 0 {
		entrypoint, arguments = spec.Command, nil
	}
	if len(spec.Args) > 0 {
		arguments = spec.Args
	}
	command := &exec.Cmd{
		Dir: cmp.Or(spec.WorkingDir, image.WorkingDir, "/"), Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Chroot: root, Setsid: true, Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL},
	}
	command.Args = append(append([]string{}, entrypoint...), arguments...)
	// Of equal names, the last value counts.
	command.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, image.Env...)
	for _, variable := range spec.Env {
		command.Env = append(command.Env, variable.Name+"="+variable.Value)
	}
	if len(command.Args) > 0 {
		command.Path = command.Args[0]
	}
	return command
}

func (p *process) reap() {
	// The process state has the exit code.
	_ = p.command.Wait()
	p.state.ExitCode = int32(p.command.ProcessState.ExitCode())
	if status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.state.ExitCode = 128 + int32(status.Signal())
	}
	p.state.Reason = "Completed"
	if p.state.ExitCode != 0 {
		p.state.Reason = "Error"
	}
	close(p.ended)
}

// stop sends SIGTERM, and SIGKILL after the grace period, and waits for the end.
func (p *process) stop(grace time.Duration) {
	if p.command.Process == nil {
		return
	}
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(grace):
	}
	_ = p.command.Process.Kill()
	<-p.ended
}
