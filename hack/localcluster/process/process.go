// SPDX-License-Identifier: Apache-2.0

// Package process starts long-lived processes and stops exactly those: a process is identified by its pid and its start time, so that a
// recycled pid is never taken for it.
package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"
)

const pollInterval = 50 * time.Millisecond

// Identity names one process, even after its pid is reused. The zero identity is never alive.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since the boot.
	StartTime uint64 `json:"startTime"`
}

// Alive reports whether the process still runs, any of its threads, which hold its ports. A zombie that has no other threads does not.
func (i Identity) Alive() bool { return i.aliveIn(procfs.DefaultMountPoint) }

func (i Identity) aliveIn(mount string) bool {
	stat, err := read(mount, i.PID)
	// The first thread stays until all others are gone.
	return err == nil && stat.Starttime == i.StartTime && stat.State != "X" && (stat.State != "Z" || stat.NumThreads > 1)
}

func read(mount string, pid int) (procfs.ProcStat, error) {
	files, err := procfs.NewFS(mount)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("find the processes: %w", err)
	}
	process, err := files.Proc(pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("find process %d: %w", pid, err)
	}
	return process.Stat()
}

// Command is what Start runs.
type Command struct {
	Path        string
	Arguments   []string
	Environment []string
	Directory   string
	// Cgroup is the directory of a control group that the process joins before it starts. It is optional.
	Cgroup string
	// Log receives standard output and standard error, appended, and how the process ended if the caller still runs.
	Log string
}

// Start runs the command in a session of its own, so that it outlives the caller. It gets no open file of the caller.
func Start(command Command) (Identity, error) {
	if err := os.MkdirAll(filepath.Dir(command.Log), 0o755); err != nil {
		return Identity{}, fmt.Errorf("create the log directory: %w", err)
	}
	log, err := os.OpenFile(command.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Identity{}, fmt.Errorf("open the log: %w", err)
	}
	if err := keepInheritedFiles(); err != nil {
		return Identity{}, errors.Join(err, log.Close())
	}
	path, arguments := command.Path, command.Arguments
	if command.Cgroup != "" {
		const join = `echo $$ >"$0/cgroup.procs" && exec "$@"`
		path, arguments = "/bin/sh", append([]string{"-c", join, command.Cgroup, path}, arguments...)
	}
	run := exec.Command(path, arguments...)
	run.Dir = command.Directory
	run.Env = command.Environment
	run.Stdout, run.Stderr = log, log
	run.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := run.Start(); err != nil {
		return Identity{}, errors.Join(fmt.Errorf("start %s: %w", command.Path, err), log.Close())
	}
	go func() {
		// Reaps the process if it ends while the caller still runs. Who waits for it to be healthy sees that it is gone.
		_ = run.Wait()
		_, _ = fmt.Fprintf(log, "process %d has ended: %s\n", run.Process.Pid, run.ProcessState)
		_ = log.Close()
	}()
	stat, err := read(procfs.DefaultMountPoint, run.Process.Pid)
	return Identity{PID: run.Process.Pid, StartTime: stat.Starttime}, err
}

// keepInheritedFiles keeps files that this process has inherited, such as a lock of its caller, from the processes that it
// starts. The standard library does so only for files that it opens.
func keepInheritedFiles() error {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return fmt.Errorf("list the open files: %w", err)
	}
	for _, entry := range entries {
		if descriptor, err := strconv.Atoi(entry.Name()); err == nil && descriptor > 2 {
			syscall.CloseOnExec(descriptor)
		}
	}
	return nil
}

// Stop ends the process: SIGTERM, and SIGKILL after the grace period. Without grace it sends SIGKILL at once. It returns when the process is
// gone, and does nothing when it is not alive.
func Stop(ctx context.Context, identity Identity, grace time.Duration) error {
	gone := func(context.Context) (bool, error) { return !identity.Alive(), nil }
	for _, step := range []struct {
		signal  syscall.Signal
		timeout time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, 10 * time.Second}} {
		if step.timeout == 0 || !identity.Alive() {
			continue
		}
		if err := syscall.Kill(identity.PID, step.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("send %s to process %d: %w", step.signal, identity.PID, err)
		}
		_ = wait.PollUntilContextTimeout(ctx, pollInterval, step.timeout, true, gone)
	}
	if identity.Alive() {
		return fmt.Errorf("process %d is still there after SIGKILL", identity.PID)
	}
	return nil
}

// Tail returns the last lines of a log, or why there is none.
func Tail(log string, lines int) string {
	content, err := os.ReadFile(log)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Ports from firstPort are outside of Linux's ephemeral port range (net.ipv4.ip_local_port_range), so that no connection takes
// the port of a process while it restarts.
const firstPort, ports = 20000, 10000

// FreeAddress returns an unused loopback address.
func FreeAddress() (address string, err error) {
	for range 100 {
		var listener net.Listener
		if listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports))); err == nil {
			return listener.Addr().String(), listener.Close()
		}
	}
	return "", fmt.Errorf("find a free address: %w", err)
}
