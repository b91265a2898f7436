// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

// stopGrace is how long a process may take to end.
const stopGrace = 20 * time.Second

// usage is what a process has used.
type usage struct {
	CPU  time.Duration
	RSS  uint64 // bytes now
	Peak uint64 // bytes at most
}

// usageOf reads the usage of a process.
func usageOf(identity process.Identity) (usage, error) {
	running, err := procfs.NewProc(identity.PID)
	if err != nil {
		return usage{}, fmt.Errorf("find a process: %w", err)
	}
	stat, err := running.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("read the CPU time of a process: %w", err)
	}
	status, err := running.NewStatus()
	if err != nil {
		return usage{}, fmt.Errorf("read the memory of a process: %w", err)
	}
	return usage{CPU: time.Duration(stat.CPUTime() * float64(time.Second)), RSS: status.VmRSS, Peak: status.VmHWM}, nil
}

// cpuTimes are the busy and idle seconds of all CPUs together.
type cpuTimes struct{ busy, idle float64 }

func readCPUTimes() (cpuTimes, error) {
	machine, err := procfs.NewDefaultFS()
	if err != nil {
		return cpuTimes{}, fmt.Errorf("find what the CPUs do: %w", err)
	}
	stat, err := machine.Stat()
	if err != nil {
		return cpuTimes{}, fmt.Errorf("read what the CPUs do: %w", err)
	}
	all := stat.CPUTotal
	return cpuTimes{
		busy: all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ + all.Steal,
		idle: all.Idle + all.Iowait,
	}, nil
}

// busySince is the busy part of the time since then, in percent.
func (t cpuTimes) busySince(before cpuTimes) float64 {
	busy, idle := t.busy-before.busy, t.idle-before.idle
	if busy+idle == 0 {
		return 0
	}
	return 100 * busy / (busy + idle)
}

const (
	// pollInterval is the time between polls, and quietPolls how many polls in a row must find the processes idle.
	pollInterval = 250 * time.Millisecond
	quietPolls   = 3
	// idle is the most CPU time that an idle process uses between polls, and serverIdle that an idle API server uses.
	idle       = 10 * time.Millisecond
	serverIdle = 50 * time.Millisecond
)

// awaitIdle waits until all processes are idle at the same time, so that earlier work does not count. A process is idle if it
// uses at most its given CPU time between two polls.
func awaitIdle(ctx context.Context, processes map[process.Identity]time.Duration) error {
	last := map[process.Identity]time.Duration{}
	quiet := 0
	err := wait.PollUntilContextTimeout(ctx, pollInterval, 2*time.Minute, true, func(context.Context) (bool, error) {
		quiet++
		for identity, most := range processes {
			now, err := usageOf(identity)
			if err != nil {
				return false, err
			}
			if before, looked := last[identity]; !looked || now.CPU-before > most {
				quiet = 0
			}
			last[identity] = now.CPU
		}
		return quiet == quietPolls || len(processes) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %d processes are idle: %w", len(processes), err)
	}
	return nil
}

// started is a process and how to end it.
type started struct {
	process.Identity
	log          string
	begun, ready time.Time
}

// endingWithCaller returns the words that start the program so that the kernel kills it when the benchmark ends: a killed
// benchmark must leave nothing behind. Without setpriv of util-linux the program stays.
func endingWithCaller(program string) []string {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		return []string{program}
	}
	return []string{setpriv, "--pdeathsig", "KILL", program}
}

// launch starts a command and waits until the URL answers 200.
func launch(ctx context.Context, command process.Command, health string) (*started, error) {
	begun := time.Now()
	words := append(endingWithCaller(command.Path), command.Arguments...)
	command.Path, command.Arguments = words[0], words[1:]
	identity, err := process.Start(command)
	if err != nil {
		return nil, err
	}
	s := &started{Identity: identity, log: command.Log, begun: begun}
	if err := s.await(ctx, health); err != nil {
		return nil, errors.Join(err, s.stop(ctx))
	}
	s.ready = time.Now()
	return s, nil
}

func (s *started) await(ctx context.Context, health string) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		if _, err := get(ctx, health); err == nil {
			return true, nil
		}
		if !s.Alive() {
			return false, errors.New("the process ended")
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the process is ready: %w; %s", err, tail(s.log))
	}
	return nil
}

func (s *started) stop(ctx context.Context) error {
	return process.Stop(context.WithoutCancel(ctx), s.Identity, stopGrace)
}

// tail is the end of a log.
func tail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return "its log ends:\n" + string(content[max(0, len(content)-3000):])
}
