// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// killedExitCode is the exit code after SIGKILL.
const killedExitCode = 128 + int32(syscall.SIGKILL)

// process is a running container.
type process struct {
	command *exec.Cmd
	// ended is closed when the process has exited and the exit code is set.
	ended    chan struct{}
	exitCode int32
}

// start runs the command as the first process of a PID namespace, so that its children exit
// with it. It appends the output to a file.
func start(c command, output string) (*process, error) {
	file, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the output: %w", err)
	}
	run := &exec.Cmd{
		Path: c.path, Args: c.arguments, Env: c.environment, Dir: c.directory, Stdout: file, Stderr: file,
		SysProcAttr: &syscall.SysProcAttr{
			Chroot: c.root, Setsid: true, Credential: &c.user,
			Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		},
	}
	if err := errors.Join(run.Start(), file.Close()); err != nil {
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}
	p := &process{command: run, ended: make(chan struct{})}
	go p.reap()
	return p, nil
}

func (p *process) reap() {
	// The process state has the exit code.
	_ = p.command.Wait()
	p.exitCode = int32(p.command.ProcessState.ExitCode())
	if status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.exitCode = 128 + int32(status.Signal())
	}
	close(p.ended)
}

// stop sends SIGTERM, and SIGKILL after the grace period, and returns the exit code.
func (p *process) stop(grace time.Duration) int32 {
	if grace > 0 {
		_ = p.command.Process.Signal(syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.ended:
		case <-timer.C:
		}
	}
	_ = p.command.Process.Kill()
	<-p.ended
	return p.exitCode
}
