// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// requestKind are OpenKruise's requests to end containers.
var requestKind = schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "ContainerRecreateRequest"}

// Watched says how reliable the times of a run are.
type Watched struct {
	// Listed is how many pods were first seen in a list after the watch had ended. Their times are not latencies.
	Listed int `json:"seenInAList,omitempty"`
	// Interruptions are the reasons why the watch ended.
	Interruptions []string `json:"watchInterruptions,omitempty"`
}

// observations records when each pod's termination was first seen, on a watch that no contender shares. It watches metadata
// only, which costs the machine least. The API server may end a watch at any time; then it lists and watches again.
type observations struct {
	resource metadata.ResourceInterface
	watches  schema.GroupVersionResource
	mode     v1alpha1.Mode
	want     int
	all      chan struct{}
	stop     context.CancelFunc

	mu            sync.Mutex
	at            map[string]time.Time // by pod
	by            map[string]string    // field manager of the write, by pod
	listed        map[string]bool      // pods that were first seen in a list
	interruptions []string
	lists         int // since the start of the watch
}

// watchFor starts the watch before it returns.
func watchFor(ctx context.Context, config *rest.Config, namespace string, mode v1alpha1.Mode, pods int) (*observations, error) {
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return watchBy(ctx, c, namespace, mode, pods)
}

func watchBy(ctx context.Context, c metadata.Interface, namespace string, mode v1alpha1.Mode, pods int) (*observations, error) {
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	if mode == v1alpha1.ModeCRR {
		resource = requestKind.GroupVersion().WithResource("containerrecreaterequests")
	}
	s := &observations{
		resource: c.Resource(resource).Namespace(namespace), watches: resource, mode: mode, want: pods, all: make(chan struct{}),
		at: map[string]time.Time{}, by: map[string]string{}, listed: map[string]bool{},
	}
	now, err := s.resource.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
	}
	ctx, s.stop = context.WithCancel(ctx)
	events, err := s.resource.Watch(ctx, metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("watch %s: %w", resource.Resource, err)
	}
	go s.follow(ctx, events)
	return s, nil
}

// resumePeriod is the time between attempts to restart the watch.
const resumePeriod = 100 * time.Millisecond

// follow records events until the context is done.
func (s *observations) follow(ctx context.Context, events watch.Interface) {
	for {
		reason := s.read(events)
		events.Stop()
		if ctx.Err() != nil {
			return
		}
		s.interrupted(reason)
		err := wait.PollUntilContextCancel(ctx, resumePeriod, true, func(ctx context.Context) (bool, error) {
			var err error
			if events, err = s.resume(ctx); err != nil && ctx.Err() == nil {
				s.interrupted(err)
			}
			return err == nil, nil
		})
		if err != nil {
			return
		}
	}
}

// errClosed means that the watch ended without an error, as it does when its reader is too slow or the CRD has changed.
var errClosed = errors.New("the API server closed the watch")

// read records events until the watch ends, and returns the reason.
func (s *observations) read(events watch.Interface) error {
	for event := range events.ResultChan() {
		seen := time.Now()
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		if object, ok := event.Object.(*metav1.PartialObjectMetadata); ok {
			s.note(askedFor(object, s.mode), manager(object), seen, false)
		}
	}
	return errClosed
}

// resume lists all objects, and watches from there.
func (s *observations) resume(ctx context.Context) (watch.Interface, error) {
	now, err := s.resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list what was missed: %w", err)
	}
	seen := time.Now()
	s.mu.Lock()
	s.lists++
	s.mu.Unlock()
	for i := range now.Items {
		s.note(askedFor(&now.Items[i], s.mode), manager(&now.Items[i]), seen, true)
	}
	events, err := s.resource.Watch(ctx, metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		return nil, fmt.Errorf("watch again: %w", err)
	}
	return events, nil
}

// askedFor returns the pod whose termination the object shows, or "".
func askedFor(object *metav1.PartialObjectMetadata, mode v1alpha1.Mode) string {
	switch {
	case mode == v1alpha1.ModeCRR && len(object.OwnerReferences) > 0:
		return object.OwnerReferences[0].Name
	case mode == v1alpha1.ModePodPhase && object.Labels[v1alpha1.LabelTerminatedBy] != "",
		mode == v1alpha1.ModeImage && object.Annotations[v1alpha1.AnnotationImageSwap] != "":
		return object.Name
	}
	return ""
}

// manager is the field manager that wrote the object first.
func manager(object *metav1.PartialObjectMetadata) string {
	if len(object.ManagedFields) == 0 {
		return ""
	}
	return object.ManagedFields[0].Manager
}

func (s *observations) note(pod, by string, at time.Time, listed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.at[pod]; known || pod == "" {
		return
	}
	s.by[pod] = by
	if listed {
		s.listed[pod] = true
	}
	if s.at[pod] = at; len(s.at) == s.want {
		close(s.all)
	}
}

// maxInterruptions is how many reasons are kept.
const maxInterruptions = 10

func (s *observations) interrupted(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.interruptions) < maxInterruptions {
		s.interruptions = append(s.interruptions, reason.Error())
	}
}

// wait waits until all pods have been seen.
func (s *observations) wait(ctx context.Context) error {
	select {
	case <-s.all:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := fmt.Errorf("%d pods expected, %d terminated: %w", s.want, len(s.at), ctx.Err())
	if len(s.interruptions) > 0 {
		err = fmt.Errorf("%w; the watch was interrupted: %s", err, strings.Join(s.interruptions, "; "))
	}
	return err
}

// requests are the requests of the watch itself, as requestsOf names them.
func (s *observations) requests() requests {
	s.mu.Lock()
	defer s.mu.Unlock()
	return requests{"LIST " + s.watches.Resource: float64(s.lists)}
}

// times returns when each pod was first seen.
func (s *observations) times() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.at)
}

// watched says how reliable the times are.
func (s *observations) watched() Watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Watched{Listed: len(s.listed), Interruptions: slices.Clone(s.interruptions)}
}

// latencies returns the sorted times from begun until each pod was seen. Pods first seen in a list are omitted.
func (s *observations) latencies(begun map[string]time.Time) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var latencies []time.Duration
	for pod, from := range begun {
		if at, seen := s.at[pod]; seen && !s.listed[pod] {
			latencies = append(latencies, at.Sub(from))
		}
	}
	slices.Sort(latencies)
	return latencies
}
