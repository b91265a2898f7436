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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

const (
	leaseNamespace = "default"
	// leaseName is the operator's own.
	leaseName = "sidecar-termination-operator.sidecartermination.dev"
	// handoverRate is how many main containers end in a second, and handoverBefore how many before the signal.
	handoverRate   = 20
	handoverBefore = 100
	// handoverLimit is how long the successor may take after the last main container has ended.
	handoverLimit = time.Minute
)

// handovers has the leader go, by either signal, while main containers end.
func (x *session) handovers(ctx context.Context, e *environment) error {
	s := x.settings
	for number := range s.scaleRuns {
		for _, graceful := range []bool{true, false} {
			signal := syscall.SIGKILL
			if graceful {
				signal = syscall.SIGTERM
			}
			err := x.reporter.Step(fmt.Sprintf("handover, run %d of %d: %s", number+1, s.scaleRuns, signal), func() error {
				run, err := handOver(ctx, e, x.programs, signal, s.handoverPods)
				if err != nil {
					return err
				}
				entry := x.report.handoverEntry(graceful, s.handoverPods, handoverRate)
				entry.Runs = append(entry.Runs, run)
				return x.save()
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// handOver starts two replicas, and sends the signal to the leader in the middle of the load.
func handOver(ctx context.Context, e *environment, p programs, signal syscall.Signal, count int) (run HandoverRun, err error) {
	w, err := newHandover(ctx, e, p, count)
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, w.r.stop(ctx), cleanUp(ctx, e.client, w.namespace)) }()
	seen, err := watchFor(ctx, e.config, w.namespace, v1alpha1.ModeCRR, count)
	if err != nil {
		return run, err
	}
	defer seen.stop()
	var signalled time.Time
	changed := make(chan change, 1)
	begun, err := w.end(ctx, func() error {
		if err := syscall.Kill(w.leader.PID, signal); err != nil {
			return fmt.Errorf("send %s to the leader: %w", signal, err)
		}
		signalled = time.Now()
		go func() {
			err := awaitHolder(ctx, e.client, func(holder string) bool { return holder != "" && holder != w.holder })
			changed <- change{time.Now(), err}
		}()
		return nil
	})
	if err != nil {
		return run, err
	}
	acquired := <-changed
	if acquired.err != nil {
		return run, acquired.err
	}
	limited, cancel := context.WithTimeout(ctx, handoverLimit)
	defer cancel()
	// Pods that nobody has acted on are counted, and no error.
	if err := seen.wait(limited); err != nil && ctx.Err() != nil {
		return run, errors.Join(ctx.Err(), err)
	}
	run = seen.handover(begun, signalled, acquired.at, successorName)
	run.Watched = seen.watched()
	run.Twice, err = w.twice(ctx)
	return run, err
}

// change is when the lease has got another holder.
type change struct {
	at  time.Time
	err error
}

// handover works out the figures: what the successor did is told by its name.
func (s *sightings) handover(begun map[string]time.Time, signalled, acquired time.Time, successor string) HandoverRun {
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

const (
	leaderName    = "replica-a"
	successorName = "replica-b"
)

// handingOver is two replicas at work and the pods that they find.
type handingOver struct {
	e         *environment
	c         *kubernetes.Clientset
	namespace string
	r         *running
	leader    *started
	holder    string // of the lease
	names     []string
}

// newHandover starts the leader, then the successor, which waits to lead.
func newHandover(ctx context.Context, e *environment, p programs, count int) (w *handingOver, err error) {
	w = &handingOver{e: e, namespace: fmt.Sprintf("handover-%d", time.Now().UnixNano()), names: numbered(burstPods, 0, count)}
	if w.c, err = reporters(e.config); err != nil {
		return nil, err
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace, Labels: exempt}}
	if err := e.client.Create(ctx, space); err != nil {
		return nil, fmt.Errorf("create a namespace: %w", err)
	}
	if err := createPolicy(ctx, e.client, w.namespace, v1alpha1.ModeCRR); err != nil {
		return nil, err
	}
	if w.r, err = p.start(ctx, e, SubjectFloor); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.r.stop(ctx))
		}
	}()
	if w.leader, _, err = p.startOperator(ctx, e, leaderName); err != nil {
		return nil, err
	}
	w.r.all = append(w.r.all, w.leader)
	if err := awaitHolder(ctx, e.client, func(holder string) bool { w.holder = holder; return holder != "" }); err != nil {
		return nil, err
	}
	successor, _, err := p.startOperator(ctx, e, successorName)
	if err != nil {
		return nil, err
	}
	w.r.all = append(w.r.all, successor)
	return w, nil
}

// end has the main containers end at the rate, and calls the function in the middle. It returns when each end was
// acknowledged.
func (w *handingOver) end(ctx context.Context, signal func() error) (map[string]time.Time, error) {
	pods, err := createPods(ctx, w.c, w.namespace, w.names, newPod)
	if err != nil {
		return nil, err
	}
	if err := settle(ctx, w.r); err != nil {
		return nil, err
	}
	acknowledged := make([]time.Time, len(pods))
	err = each(ctx, len(pods), handoverRate, func(ctx context.Context, i int) error {
		if i == handoverBefore {
			if err := signal(); err != nil {
				return err
			}
		}
		err := reportEnd(ctx, w.c, pods, i)
		acknowledged[i] = time.Now()
		return err
	})
	begun := map[string]time.Time{}
	for i, pod := range pods {
		begun[pod.Name] = acknowledged[i]
	}
	return begun, err
}

// twice counts the pods for which there is more than one request.
func (w *handingOver) twice(ctx context.Context) (int, error) {
	c, err := metadata.NewForConfig(w.e.config)
	if err != nil {
		return 0, fmt.Errorf("make a client: %w", err)
	}
	made, err := c.Resource(requestKind.GroupVersion().WithResource("containerrecreaterequests")).Namespace(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
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

// awaitHolder waits until the lease's holder is such a one.
func awaitHolder(ctx context.Context, c client.Client, is func(holder string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		lease := &coordinationv1.Lease{}
		err := c.Get(ctx, client.ObjectKey{Namespace: leaseNamespace, Name: leaseName}, lease)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the lease: %w", err)
		}
		if err == nil && is(ptr.Deref(lease.Spec.HolderIdentity, "")) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a leader: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
