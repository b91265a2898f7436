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

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/process"
)

// Run has the figures of one run of a scenario with a contender.
type Run struct {
	// P50, P99 and Max are milliseconds from the acknowledged status write that ends the main container until the benchmark
	// sees the write that ends the sidecar.
	P50 float64 `json:"p50Milliseconds"`
	P99 float64 `json:"p99Milliseconds"`
	Max float64 `json:"maxMilliseconds"`
	// PerSecond is pods per second, from the first acknowledgement to the last observation.
	PerSecond float64 `json:"podsPerSecond"`
	// CPU is milliseconds of the contender's process per pod, and APIServerCPU those of the API server. The contender writes has none.
	CPU          float64 `json:"cpuMillisecondsPerPod,omitempty"`
	APIServerCPU float64 `json:"apiServerCPUMillisecondsPerPod"`
	// APIServerGC is the part of APIServerCPU in garbage collections that ended during the run.
	APIServerGC float64 `json:"apiServerGCMillisecondsPerPod,omitempty"`
	// KruiseCPU is milliseconds per pod of OpenKruise's manager where it is not the contender: its webhook admits each
	// ContainerRecreateRequest, and its controllers watch all pods.
	KruiseCPU float64 `json:"kruiseCPUMillisecondsPerPod,omitempty"`
	// Busy is the percentage of time that the CPUs were busy until the last observation.
	Busy float64 `json:"cpusBusyPercent,omitempty"`
	// RSS is the resident memory of the contender's process at the end, in MiB, and Peak its maximum.
	RSS  float64 `json:"rssMiB,omitempty"`
	Peak float64 `json:"peakRSSMiB,omitempty"`
	// Requests are API requests per pod by verb and resource, as the API server counts them, without the benchmark's own status
	// writes.
	Requests map[string]float64 `json:"requestsPerPod"`
	// Reconciles is reconciles of the operator's pod controller, per pod.
	Reconciles float64 `json:"reconcilesPerPod,omitempty"`
	Watched
}

// reading is the value of all counters at one time.
type reading struct {
	requests      requests
	contender     usage
	kruiseManager usage
	apiServer     usage
	apiServerGC   time.Duration
	cpus          cpuTimes
	reconciles    float64
}

func read(ctx context.Context, e *environment, r *running, contender Contender) (now reading, err error) {
	families, err := serverMetrics(ctx, e)
	if err != nil {
		return now, err
	}
	now.requests, now.apiServerGC = requestsOf(families), collectionTime(families)
	if now.apiServer, err = usageOf(e.apiServer); err != nil {
		return now, err
	}
	if now.cpus, err = readCPUTimes(); err != nil {
		return now, err
	}
	for used, started := range map[*usage]*started{&now.kruiseManager: r.kruiseManager, &now.contender: r.measured} {
		if started == nil {
			continue
		}
		if *used, err = usageOf(started.Identity); err != nil {
			return now, err
		}
	}
	if r.metrics != "" && contender == ContenderOperator {
		now.reconciles, err = reconcilesOf(ctx, r.metrics, "pod")
	}
	return now, err
}

// awaitQuiet waits until all processes are idle.
func awaitQuiet(ctx context.Context, r *running) error { return awaitIdle(ctx, r.processes()) }

// awaitQuietWithServer waits for the API server as well: while it prepares a long list, its clients are idle.
func awaitQuietWithServer(ctx context.Context, e *environment, r *running) error {
	processes := r.processes()
	processes[e.apiServer] = serverIdle
	return awaitIdle(ctx, processes)
}

// processes are all processes, with the most CPU time that each uses between polls when it is idle.
func (r *running) processes() map[process.Identity]time.Duration {
	processes := map[process.Identity]time.Duration{}
	for _, started := range r.all {
		processes[started.Identity] = idle
	}
	return processes
}

// bench runs one scenario in a namespace of its own, with a running contender.
func bench(ctx context.Context, e *environment, r *running, contender Contender, scenario Scenario) (run Run, err error) {
	ctx, cancel := context.WithTimeout(ctx, scenario.timeLimit())
	defer cancel()
	namespace, err := createNamespace(ctx, e.client, namespacePrefix(scenario.Mode), nil)
	if err != nil {
		return run, err
	}
	defer func() {
		err = errors.Join(err, cleanUp(ctx, e.client, namespace, &v1alpha1.SidecarTerminationPolicy{}, &corev1.Pod{}))
	}()
	if contender == ContenderOperator && !scenario.Backlog {
		if err := createPolicy(ctx, e.client, namespace, scenario.Mode); err != nil {
			return run, err
		}
	}
	return complete(ctx, e, r, contender, scenario, namespace)
}

// burstPods is the name prefix of the pods of a scenario.
const burstPods = "import"

// complete runs one scenario in an existing namespace, and leaves the pods there.
func complete(ctx context.Context, e *environment, r *running, contender Contender, scenario Scenario, namespace string) (run Run, err error) {
	c, err := reporters(e.config)
	if err != nil {
		return run, err
	}
	pods, err := preparePods(ctx, c, namespace, scenario)
	if err != nil {
		return run, err
	}
	if err := awaitQuiet(ctx, r); err != nil {
		return run, err
	}
	seen, err := watchFor(ctx, e.config, namespace, scenario.Mode, len(pods))
	if err != nil {
		return run, err
	}
	defer seen.stop()
	before, err := read(ctx, e, r, contender)
	if err != nil {
		return run, err
	}
	begun, err := load(ctx, e, c, pods, contender, scenario)
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
	// Events are written last.
	if err := awaitQuiet(ctx, r); err != nil {
		return run, err
	}
	after, err := read(ctx, e, r, contender)
	if err != nil {
		return run, err
	}
	run = runOf(begun, seen, before, after, scenario)
	run.Busy = atLast.busySince(before.cpus)
	return run, nil
}

// preparePods creates the pods of the scenario. The main containers of a backlog have ended.
func preparePods(ctx context.Context, c kubernetes.Interface, namespace string, scenario Scenario) ([]*corev1.Pod, error) {
	build := newPod
	if scenario.Backlog {
		build = newUndeclaredPod
	}
	pods, err := createPods(ctx, c, namespace, numbered(burstPods, scenario.Pods), build)
	if err != nil || !scenario.Backlog {
		return pods, err
	}
	return pods, each(ctx, len(pods), 0, func(ctx context.Context, i int) error { return reportEnd(ctx, c, pods, i) })
}

// load reports the end of each main container. For a backlog, whose main containers have ended, it creates the policy instead,
// or makes the operator's writes itself. It returns the time from which each pod counts.
func load(ctx context.Context, e *environment, c kubernetes.Interface, pods []*corev1.Pod, contender Contender, scenario Scenario) (map[string]time.Time, error) {
	end := bareTerminator(e.client, scenario.Mode)
	begun := make([]time.Time, len(pods))
	if scenario.Backlog && contender == ContenderOperator {
		if err := createPolicy(ctx, e.client, pods[0].Namespace, scenario.Mode); err != nil {
			return nil, err
		}
		released := time.Now()
		for i := range begun {
			begun[i] = released
		}
		return timesOf(pods, begun), nil
	}
	err := each(ctx, len(pods), scenario.Rate, func(ctx context.Context, i int) error {
		if !scenario.Backlog {
			if err := reportEnd(ctx, c, pods, i); err != nil {
				return err
			}
		}
		begun[i] = time.Now()
		if contender == ContenderWrites {
			return end(ctx, pods[i])
		}
		return nil
	})
	return timesOf(pods, begun), err
}

// timesOf returns the times of pods by name.
func timesOf(pods []*corev1.Pod, times []time.Time) map[string]time.Time {
	byName := map[string]time.Time{}
	for i, pod := range pods {
		byName[pod.Name] = times[i]
	}
	return byName
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

// runOf computes the figures of a run from what was read before and after it.
func runOf(begun map[string]time.Time, seen *observations, before, after reading, scenario Scenario) Run {
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
		CPU:          milliseconds(after.contender.CPU-before.contender.CPU) / pods,
		APIServerCPU: milliseconds(after.apiServer.CPU-before.apiServer.CPU) / pods,
		APIServerGC:  milliseconds(after.apiServerGC-before.apiServerGC) / pods,
		KruiseCPU:    milliseconds(after.kruiseManager.CPU-before.kruiseManager.CPU) / pods,
		RSS:          mebibytes(after.contender.RSS), Peak: mebibytes(after.contender.Peak),
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
