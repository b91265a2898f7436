// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/sidecar-termination/operator/internal/settings"
)

// renewDeadline is the manager's default, in which the lease must be renewed.
const renewDeadline = 10 * time.Second

// lease is the lock of leader election. It remembers until when another process held it.
type lease struct {
	resourcelock.Interface
	heldBefore atomic.Pointer[time.Time]
}

func newLease(config *rest.Config, of settings.Lease) (*lease, error) {
	lock, err := leaderelection.NewResourceLock(config, noEvents{}, leaderelection.Options{
		LeaderElection: true, LeaderElectionID: of.Name, LeaderElectionNamespace: of.Namespace, RenewDeadline: renewDeadline,
	})
	return &lease{Interface: lock}, err
}

// Get is called before each attempt to take the lease.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() {
		l.heldBefore.Store(&record.RenewTime.Time)
	}
	return record, raw, err
}

// ledBefore returns when another process renewed or released the lease last, or zero if none has.
func (l *lease) ledBefore() time.Time {
	if held := l.heldBefore.Load(); held != nil {
		return *held
	}
	return time.Time{}
}

// noEvents drops the events of leader election, which need a permission and say no more than the log.
type noEvents struct{ recorder.Provider }

// GetEventRecorderFor is the one method that leader election calls.
func (noEvents) GetEventRecorderFor(string) record.EventRecorder { return &record.FakeRecorder{} }
