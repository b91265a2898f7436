// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	eventsv1 "k8s.io/api/events/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sidecar-termination/operator/internal/settings"
)

// maxQueuedEvents is how many events may wait to be created, the current one included.
const maxQueuedEvents = 1000

// newEventRecorder returns a recorder that writes events until the process ends, so that reconciles that run while the manager stops
// are reported, too. Rejected events, and at debug level all events, are in the manager's log.
func newEventRecorder(mgr manager.Manager) (events.EventRecorder, error) {
	client, err := eventsclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a client of events: %w", err)
	}
	broadcaster := events.NewBroadcaster(newEventSink(&events.EventSinkImpl{Interface: client}, maxQueuedEvents))
	log := mgr.GetLogger().WithName("events")
	if err := broadcaster.StartRecordingToSinkWithContext(ctrl.LoggerInto(context.Background(), log)); err != nil {
		return nil, fmt.Errorf("record events: %w", err)
	}
	if _, err := broadcaster.StartLogging(log.V(1)); err != nil {
		return nil, fmt.Errorf("log events: %w", err)
	}
	return broadcaster.NewRecorder(mgr.GetScheme(), settings.Name), nil
}

// eventSink creates one event at a time, so that in a burst ends of sidecars do not compete with as many events for the API server.
// client-go calls Create on a goroutine for each event. While the queue is full, further events are created at once, which bounds the
// number of goroutines that wait.
type eventSink struct {
	events.EventSink
	queued, turn chan struct{}
}

func newEventSink(inner events.EventSink, queue int) *eventSink {
	return &eventSink{EventSink: inner, queued: make(chan struct{}, queue), turn: make(chan struct{}, 1)}
}

// Create implements events.EventSink.
func (s *eventSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	select {
	case s.queued <- struct{}{}:
		s.turn <- struct{}{}
		defer func() { <-s.turn; <-s.queued }()
	default:
	}
	return s.EventSink.Create(ctx, event)
}
