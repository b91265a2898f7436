// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/procfs"

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

// cpuTimes are seconds that the CPUs of the machine have been at work and have been idle, all together.
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

// busySince is the part of the time since then that the CPUs were at work, in percent.
func (t cpuTimes) busySince(before cpuTimes) float64 {
	busy, idle := t.busy-before.busy, t.idle-before.idle
	if busy+idle == 0 {
		return 0
	}
	return 100 * busy / (busy + idle)
}

const (
	// look is how long it is looked whether processes do nothing, and quietLooks how many such looks in a row it takes.
	look       = 250 * time.Millisecond
	quietLooks = 3
	// idle is how much CPU a process that does nothing uses in a look at most, and idleServer how much an API server does.
	idle       = 10 * time.Millisecond
	idleServer = 50 * time.Millisecond
)

// awaitIdle waits until all the processes, each with what it uses at most in a look, do nothing at the same time, so that what
// they had to do before does not count.
func awaitIdle(ctx context.Context, processes map[process.Identity]time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	last := map[process.Identity]time.Duration{}
	for quiet := 0; len(processes) > 0; {
		quiet++
		for identity, most := range processes {
			now, err := usageOf(identity)
			if err != nil {
				return err
			}
			if before, looked := last[identity]; !looked || now.CPU-before > most {
				quiet = 0
			}
			last[identity] = now.CPU
		}
		if quiet == quietLooks {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %d processes do nothing: %w", len(processes), ctx.Err())
		case <-time.After(look):
		}
	}
	return nil
}

// started is a process and how to end it.
type started struct {
	process.Identity
	log          string
	begun, ready time.Time
}

// launch starts a command and waits until the URL answers 200.
func launch(ctx context.Context, command process.Command, health string) (*started, error) {
	begun := time.Now()
	// Nothing is left behind by a benchmark that was killed.
	command.EndWithCaller = true
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
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, health, nil)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		if !s.Alive() {
			return fmt.Errorf("the process ended; %s", tail(s.log))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the process did not become ready: %w; %s", ctx.Err(), tail(s.log))
		case <-time.After(50 * time.Millisecond):
		}
	}
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
