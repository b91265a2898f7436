// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator/crr"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// Run is what one run of one scenario with one subject has shown.
type Run struct {
	// P50, P99 and Max are milliseconds from the acknowledgement of the write that says that the main container has ended to
	// the sight of the write that ends the sidecar.
	P50 float64 `json:"p50Milliseconds"`
	P99 float64 `json:"p99Milliseconds"`
	Max float64 `json:"maxMilliseconds"`
	// PerSecond is how many pods were done in a second, from the first acknowledgement to the last sight.
	PerSecond float64 `json:"podsPerSecond"`
	// CPU is milliseconds of the subject's process per pod, and APIServerCPU those of the API server. Bare clients have none.
	CPU          float64 `json:"cpuMillisecondsPerPod,omitempty"`
	APIServerCPU float64 `json:"apiServerCPUMillisecondsPerPod"`
	// BesideCPU is milliseconds per pod of OpenKruise's manager where it is not the subject: its webhook takes part in each
	// ContainerRecreateRequest, and its controllers read all pods.
	BesideCPU float64 `json:"besideCPUMillisecondsPerPod,omitempty"`
	// Busy is the part of the time that the CPUs of the machine were at work, in percent, until the last sight.
	Busy float64 `json:"cpusBusyPercent,omitempty"`
	// RSS is the resident memory of the subject's process at the end, in MiB, and Peak the most that it was.
	RSS  float64 `json:"rssMiB,omitempty"`
	Peak float64 `json:"peakRSSMiB,omitempty"`
	// Requests are API requests per pod by verb and resource as the API server counts them, without the benchmark's own
	// reports of statuses.
	Requests map[string]float64 `json:"requestsPerPod"`
	// Reconciles is how often the operator's pod controller looked at a pod, per pod.
	Reconciles float64 `json:"reconcilesPerPod,omitempty"`
	Watched
}

// reading is a look at all counters.
type reading struct {
	requests   requests
	subject    usage
	beside     usage
	apiServer  usage
	cpus       cpuTimes
	reconciles float64
}

func read(ctx context.Context, e *environment, r *running, subject Subject) (now reading, err error) {
	if now.requests, err = requestsOf(ctx, e); err != nil {
		return now, err
	}
	if now.apiServer, err = usageOf(e.apiServer); err != nil {
		return now, err
	}
	if now.cpus, err = readCPUTimes(); err != nil {
		return now, err
	}
	if r.beside != nil {
		if now.beside, err = usageOf(r.beside.Identity); err != nil {
			return now, err
		}
	}
	if r.measured != nil {
		if now.subject, err = usageOf(r.measured.Identity); err != nil {
			return now, err
		}
	}
	if r.metrics != "" && subject == SubjectOperator {
		now.reconciles, err = reconcilesOf(ctx, r.metrics, "pod")
	}
	return now, err
}

// settle waits until no process has anything left to do.
func settle(ctx context.Context, r *running) error { return awaitIdle(ctx, r.processes()) }

// settleWithServer waits until the API server has nothing left to do either: while it makes a long list ready, who waits for
// it does nothing.
func settleWithServer(ctx context.Context, e *environment, r *running) error {
	processes := r.processes()
	processes[e.apiServer] = idleServer
	return awaitIdle(ctx, processes)
}

// processes are all, with how much CPU each uses in a look at most when it does nothing.
func (r *running) processes() map[process.Identity]time.Duration {
	processes := map[process.Identity]time.Duration{}
	for _, started := range r.all {
		processes[started.Identity] = idle
	}
	return processes
}

// bench runs one scenario in a namespace of its own, with a subject that is at work already.
func bench(ctx context.Context, e *environment, r *running, subject Subject, scenario Scenario) (run Run, err error) {
	ctx, cancel := context.WithTimeout(ctx, scenario.timeLimit())
	defer cancel()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := e.client.Create(ctx, space); err != nil {
		return run, fmt.Errorf("create a namespace: %w", err)
	}
	defer func() { err = errors.Join(err, cleanUp(ctx, e.client, space.Name)) }()
	if subject == SubjectOperator && !scenario.Backlog {
		if err := createPolicy(ctx, e.client, space.Name, scenario.Mode); err != nil {
			return run, err
		}
	}
	return complete(ctx, e, r, subject, scenario, space.Name)
}

// burstPods is how the pods of a scenario are called.
const burstPods = "import"

// complete runs one scenario in a namespace that has what the subject needs, and leaves the pods there.
func complete(ctx context.Context, e *environment, r *running, subject Subject, scenario Scenario, namespace string) (run Run, err error) {
	c, err := reporters(e.config)
	if err != nil {
		return run, err
	}
	pods, err := preparePods(ctx, c, namespace, scenario)
	if err != nil {
		return run, err
	}
	if err := settle(ctx, r); err != nil {
		return run, err
	}
	seen, err := watchFor(ctx, e.config, namespace, scenario.Mode, len(pods))
	if err != nil {
		return run, err
	}
	defer seen.stop()
	before, err := read(ctx, e, r, subject)
	if err != nil {
		return run, err
	}
	begun, err := load(ctx, e, c, pods, subject, scenario)
	if err != nil {
		return run, err
	}
	if err := seen.wait(ctx); err != nil {
		return run, err
	}
	atLast, err := readCPUTimes()
	if err != nil {
		return run, err
	}
	// Events are written behind the rest.
	if err := settle(ctx, r); err != nil {
		return run, err
	}
	after, err := read(ctx, e, r, subject)
	if err != nil {
		return run, err
	}
	run = figures(begun, seen, before, after, scenario)
	run.Busy = atLast.busySince(before.cpus)
	return run, nil
}

// preparePods creates the pods of the scenario. The main containers of a backlog have ended.
func preparePods(ctx context.Context, c kubernetes.Interface, namespace string, scenario Scenario) ([]*corev1.Pod, error) {
	build := newPod
	if scenario.Backlog {
		build = newUndeclaredPod
	}
	pods, err := createPods(ctx, c, namespace, numbered(burstPods, 0, scenario.Pods), build)
	if err != nil || !scenario.Backlog {
		return pods, err
	}
	return pods, each(ctx, len(pods), 0, func(ctx context.Context, i int) error { return reportEnd(ctx, c, pods, i) })
}

// load has the main container of each pod end, unless it has, and bare clients ask for the end of its sidecar. A backlog is
// released to the operator by the policy. It returns from when on each pod's time counts.
func load(ctx context.Context, e *environment, c kubernetes.Interface, pods []*corev1.Pod, subject Subject, scenario Scenario) (map[string]time.Time, error) {
	end := bareTerminator(e.client, scenario.Mode)
	begun := make([]time.Time, len(pods))
	if scenario.Backlog && subject == SubjectOperator {
		if err := createPolicy(ctx, e.client, pods[0].Namespace, scenario.Mode); err != nil {
			return nil, err
		}
		released := time.Now()
		times := map[string]time.Time{}
		for _, pod := range pods {
			times[pod.Name] = released
		}
		return times, nil
	}
	err := each(ctx, len(pods), scenario.Rate, func(ctx context.Context, i int) error {
		if !scenario.Backlog {
			if err := reportEnd(ctx, c, pods, i); err != nil {
				return err
			}
		}
		begun[i] = time.Now()
		if subject.bare() {
			return end(ctx, pods[i])
		}
		return nil
	})
	times := map[string]time.Time{}
	for i, pod := range pods {
		times[pod.Name] = begun[i]
	}
	return times, err
}

// reportEnd reports that the pod's main container has ended.
func reportEnd(ctx context.Context, c kubernetes.Interface, pods []*corev1.Pod, i int) error {
	mainEnds(pods[i])
	updated, err := c.CoreV1().Pods(pods[i].Namespace).UpdateStatus(ctx, pods[i], metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("report that a main container has ended: %w", err)
	}
	pods[i] = updated
	return nil
}

// bareTerminator returns a function that makes the operator's own write of the mode, without watching or deciding anything.
func bareTerminator(c client.Client, mode v1alpha1.Mode) func(context.Context, *corev1.Pod) error {
	action := plan.Action{
		Mode: mode, For: mode, Containers: []string{sidecar}, Images: map[string]string{sidecar: quickExitImage},
		Phase: corev1.PodSucceeded, Deadline: time.Minute,
	}
	terminators := map[v1alpha1.Mode]interface {
		Terminate(ctx context.Context, pod *corev1.Pod, action plan.Action) (bool, error)
	}{
		v1alpha1.ModeCRR:      &crr.Terminator{Client: c, Server: c, Clock: clock.RealClock{}},
		v1alpha1.ModePodPhase: &podphase.Terminator{Client: c, Clock: clock.RealClock{}},
		v1alpha1.ModeImage:    &image.Terminator{Client: c, Clock: clock.RealClock{}},
	}
	return func(ctx context.Context, pod *corev1.Pod) error {
		_, err := terminators[mode].Terminate(ctx, pod, action)
		return err
	}
}

func figures(begun map[string]time.Time, seen *sightings, before, after reading, scenario Scenario) Run {
	var first, last time.Time
	at := seen.times()
	for pod, from := range begun {
		if first.IsZero() || from.Before(first) {
			first = from
		}
		if at[pod].After(last) {
			last = at[pod]
		}
	}
	pods := float64(len(begun))
	run := Run{
		PerSecond:    pods / last.Sub(first).Seconds(),
		CPU:          milliseconds(after.subject.CPU-before.subject.CPU) / pods,
		APIServerCPU: milliseconds(after.apiServer.CPU-before.apiServer.CPU) / pods,
		BesideCPU:    milliseconds(after.beside.CPU-before.beside.CPU) / pods,
		RSS:          mebibytes(after.subject.RSS), Peak: mebibytes(after.subject.Peak),
		Requests:   map[string]float64{},
		Reconciles: (after.reconciles - before.reconciles) / pods,
		Watched:    seen.watched(),
	}
	if latencies := seen.latencies(begun); len(latencies) > 0 {
		run.P50, run.P99 = milliseconds(percentile(latencies, 50)), milliseconds(percentile(latencies, 99))
		run.Max = milliseconds(latencies[len(latencies)-1])
	}
	made := after.requests.since(before.requests)
	for key, count := range seen.requests() {
		made[key] -= count
	}
	if !scenario.Backlog {
		made["PUT pods/status"] -= pods
	}
	for key, count := range made {
		if count != 0 {
			run.Requests[key] = count / pods
		}
	}
	return run
}

// percentile is the nearest-rank percentile of sorted values.
func percentile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mebibytes(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
