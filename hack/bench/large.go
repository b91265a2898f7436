// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/localcluster/cluster"
	"github.com/sidecar-termination/operator/hack/localcluster/progress"
)

const (
	// Sizes of a large cluster: 150,000 unfinished pods in 5,000 namespaces, with 10,000 policies.
	podsPerNamespace     = 30
	policiesPerNamespace = 2
	// endedPods is how many main containers have ended before the operator starts.
	endedPods = 100
)

// large measures the operator in a cluster without other pods, and with unfinished pods, which it marks at its first start. It leaves out
// mode CRR, so that OpenKruise's manager is not needed: its cache of all pods would take more memory than the API server leaves.
func (s *session) large(ctx context.Context, versions cluster.Versions) (err error) {
	e, err := s.startServer(ctx, versions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	namespaces, err := createNamespaces(ctx, e, s.largePods/podsPerNamespace)
	if err != nil {
		return err
	}
	starts := func(times int, among string) error {
		return s.inTurn(times, "start among "+among, []string{contenderOperator}, func(contender string) error {
			run, err := e.startAmong(ctx)
			s.report.add("start among "+among, contender, run)
			return err
		})
	}
	bursts := func(among string) error {
		burst := load{name: fmt.Sprintf("burst of %d among %s", s.pods, among), pods: s.pods, rate: rate.Inf}
		return s.inTurn(s.runs, burst.name, []string{contenderBare, contenderOperator}, func(contender string) error {
			return s.measureModes(ctx, e, contender, []v1alpha1.Mode{v1alpha1.ModeImage, v1alpha1.ModePodPhase}, burst)
		})
	}
	unfinished := fmt.Sprintf("%d unfinished pods", s.largePods)
	for _, step := range []func() error{
		func() error { return starts(s.runs, "no pods") },
		func() error { return bursts("no pods") },
		func() error {
			return progress.Step("create "+unfinished, func() error {
				return each(ctx, s.largePods, func(ctx context.Context, i int) error {
					namespace := namespaces[i%len(namespaces)]
					_, err := e.createPod(ctx, newPod(namespace, fmt.Sprintf("unfinished-%06d", i), namespace), runs)
					return err
				})
			})
		},
		func() error { return starts(1, unfinished+", not marked") },
		func() error { return starts(s.runs, unfinished+", marked") },
		func() error { return bursts(unfinished) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// createNamespaces creates namespaces, each with a node, a policy that selects all of its pods, and policies that select none.
func createNamespaces(ctx context.Context, e *environment, count int) ([]string, error) {
	namespaces := make([]string, count)
	return namespaces, each(ctx, count, func(ctx context.Context, i int) (err error) {
		namespaces[i], err = createNamespace(ctx, e.client)
		err = errors.Join(err, createNode(ctx, e.client, namespaces[i]))
		labels := burstLabels
		for number := range policiesPerNamespace {
			err = errors.Join(err, createPolicy(ctx, e.client, namespaces[i], fmt.Sprintf("policy-%d", number), labels, v1alpha1.ModePodPhase))
			labels = map[string]string{"team": "etl", "job-name": "another"}
		}
		return err
	})
}

// startAmong starts the operator after some main containers have ended, waits until it has acted on each of them, and measures its memory
// when it is idle. The pods are in a namespace of their own.
func (e *environment) startAmong(ctx context.Context) (run figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	namespaces, err := createNamespaces(ctx, e, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cleanUp(ctx, e.client, namespaces[0])) }()
	_, err = e.createPods(ctx, namespaces[0], "ended", endedPods, func(pod *corev1.Pod) {
		runs(pod)
		exits(pod, 0)
	})
	if err != nil {
		return nil, err
	}
	seen, err := e.watchEnds(ctx, namespaces[0], v1alpha1.ModePodPhase, endedPods)
	if err != nil {
		return nil, err
	}
	before, err := e.requestsServed(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stopContender(ctx)) }()
	if err := e.start(ctx, contenderOperator); err != nil {
		return nil, err
	}
	operator := e.started[contenderOperator]
	at, err := seen()
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, operator.tail())
	}
	actions := slices.SortedFunc(maps.Values(at), time.Time.Compare)
	after, err := e.readIdle(ctx)
	if err != nil {
		return nil, err
	}
	const marks = "requests PATCH pods/status"
	process, err := procfs.NewProc(operator.PID)
	if err != nil {
		return nil, err
	}
	memory, err := process.NewStatus()
	return figures{
		"start: ready, s": operator.ready.Sub(operator.begun).Seconds(), "start: first action, s": actions[0].Sub(operator.begun).Seconds(),
		"start: last action, s": actions[endedPods-1].Sub(operator.begun).Seconds(), "start: peak RSS, MiB": float64(memory.VmHWM) / (1 << 20),
		"start: idle, s": time.Since(operator.begun).Seconds(), "start: status patches": after[marks] - before[marks],
		"at rest: RSS, MiB": float64(memory.VmRSS) / (1 << 20),
	}, err
}
