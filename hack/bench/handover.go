// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	operatorsettings "github.com/sidecar-termination/operator/internal/settings"
)

const (
	leaseNamespace = "default"
	leaderName     = "replica-a"
	successorName  = "replica-b"
	// handoverRate is how many main containers end in a second, and handoverBefore how many before the signal.
	handoverRate   = 20
	handoverBefore = 100
	// handoverLimit is how long the successor may take after the last main container has ended.
	handoverLimit = time.Minute
)

// handovers ends the leader, by either signal, while main containers end.
func (x *session) handovers(ctx context.Context, e *environment) error {
	pods := x.settings.handoverPods
	all := func(syscall.Signal) int { return x.settings.scaleRuns }
	return inTurn(x, partHandover, []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}, all, func(signal syscall.Signal) error {
		run, err := handOver(ctx, e, x.programs, signal, pods)
		if err == nil {
			x.report.addHandover(signal == syscall.SIGTERM, pods, handoverRate, run)
		}
		return err
	})
}

// startReplicas adds a leader and its successor to the processes. It returns the leader, with the holder of the lease.
func startReplicas(ctx context.Context, e *environment, p programs, r *running) (leader *started, holder string, err error) {
	if leader, _, err = p.startOperator(ctx, e, leaderName); err != nil {
		return leader, "", err
	}
	r.all = append(r.all, leader)
	if holder, err = awaitHolder(ctx, e.client, ""); err != nil {
		return leader, "", err
	}
	successor, _, err := p.startOperator(ctx, e, successorName)
	if err != nil {
		return leader, "", err
	}
	r.all = append(r.all, successor)
	return leader, holder, nil
}

// handOver starts two replicas, and sends the signal to the leader in the middle of the load.
func handOver(ctx context.Context, e *environment, p programs, signal syscall.Signal, count int) (run HandoverRun, err error) {
	namespace, err := createNamespace(ctx, e.client, "handover-", exempt)
	if err != nil {
		return run, err
	}
	defer func() {
		err = errors.Join(err, cleanUp(ctx, e.client, namespace, &v1alpha1.SidecarTerminationPolicy{}, &corev1.Pod{}))
	}()
	if err := createPolicy(ctx, e.client, namespace, v1alpha1.ModeCRR); err != nil {
		return run, err
	}
	r, err := p.start(ctx, e, ContenderWrites)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, r.stop(ctx)) }()
	leader, holder, err := startReplicas(ctx, e, p, r)
	if err != nil {
		return run, err
	}
	c, err := reporters(e.config)
	if err != nil {
		return run, err
	}
	pods, err := createPods(ctx, c, namespace, numbered(burstPods, count), newPod)
	if err != nil {
		return run, err
	}
	if err := awaitQuiet(ctx, r); err != nil {
		return run, err
	}
	seen, err := watchFor(ctx, e.config, namespace, v1alpha1.ModeCRR, count)
	if err != nil {
		return run, err
	}
	defer seen.stop()
	var signalled, acquired time.Time
	changed := make(chan error, 1)
	acknowledged := make([]time.Time, len(pods))
	err = each(ctx, len(pods), handoverRate, func(reporting context.Context, i int) error {
		if i == handoverBefore {
			if err := syscall.Kill(leader.PID, signal); err != nil {
				return fmt.Errorf("send %s to the leader: %w", signal, err)
			}
			signalled = time.Now()
			go func() {
				// The lease may change after the last report.
				_, err := awaitHolder(ctx, e.client, holder)
				acquired = time.Now()
				changed <- err
			}()
		}
		err := reportEnd(reporting, c, pods, i)
		acknowledged[i] = time.Now()
		return err
	})
	if err != nil {
		return run, err
	}
	if err := <-changed; err != nil {
		return run, err
	}
	limited, cancel := context.WithTimeout(ctx, handoverLimit)
	defer cancel()
	// Pods without an action are counted; they are not an error.
	if err := seen.wait(limited); err != nil && ctx.Err() != nil {
		return run, errors.Join(ctx.Err(), err)
	}
	run = seen.handover(timesOf(pods, acknowledged), signalled, acquired, successorName)
	run.Watched = seen.watched()
	run.Twice, err = countTwice(ctx, e.client, namespace)
	return run, err
}

// handover computes the figures. The field manager of a write says which replica made it.
func (s *observations) handover(begun map[string]time.Time, signalled, acquired time.Time, successor string) HandoverRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := HandoverRun{LeaseAcquired: milliseconds(acquired.Sub(signalled))}
	var first time.Time
	for pod, from := range begun {
		at, acted := s.at[pod]
		if !acted {
			run.Missed++
			continue
		}
		run.Longest = max(run.Longest, milliseconds(at.Sub(from)))
		if s.by[pod] == successor && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if !first.IsZero() {
		run.Gap = milliseconds(first.Sub(signalled))
	}
	return run
}

// countTwice counts the pods for which there is more than one request.
func countTwice(ctx context.Context, c client.Client, namespace string) (int, error) {
	made := &metav1.PartialObjectMetadataList{}
	made.SetGroupVersionKind(requestKind)
	if err := c.List(ctx, made, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("list requests: %w", err)
	}
	count := map[string]int{}
	twice := 0
	for i := range made.Items {
		pod := askedFor(&made.Items[i], v1alpha1.ModeCRR)
		if count[pod]++; count[pod] == 2 {
			twice++
		}
	}
	return twice, nil
}

// awaitHolder waits until the lease has a holder other than the given one, and returns it.
func awaitHolder(ctx context.Context, c client.Client, before string) (holder string, err error) {
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		lease := &coordinationv1.Lease{}
		err := c.Get(ctx, client.ObjectKey{Namespace: leaseNamespace, Name: operatorsettings.LeaseName}, lease)
		holder = ptr.Deref(lease.Spec.HolderIdentity, "")
		return holder != "" && holder != before, client.IgnoreNotFound(err)
	})
	if err != nil {
		return "", fmt.Errorf("wait for a leader: %w", err)
	}
	return holder, nil
}
