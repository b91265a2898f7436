// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sightings notes since when each pod has been seen as it is, by the operator's own clock, which need not agree with that
// of the pod's node. A pod that is not noted is seen so from now on: losing the notes delays a write and no more.
type sightings struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]sighting
}

type sighting struct {
	resourceVersion string
	quietSince      time.Time
	containers      uint64 // containersID
	containersSince time.Time
}

// see notes the pod, and returns since when it has had its resourceVersion, and since when its containers have been in their
// states. A pod of which no container has ended has no phase to be written yet, and is not noted.
func (s *sightings) see(pod *corev1.Pod, now time.Time) (quietSince, containersSince time.Time) {
	if !slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Terminated != nil }) {
		return now, now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(pod)
	noted, ok := s.pods[key]
	if !ok || noted.resourceVersion != pod.ResourceVersion {
		noted.resourceVersion, noted.quietSince = pod.ResourceVersion, now
	}
	if containers := containersID(pod); !ok || noted.containers != containers {
		noted.containers, noted.containersSince = containers, now
	}
	if s.pods == nil {
		s.pods = map[types.NamespacedName]sighting{}
	}
	s.pods[key] = noted
	return noted.quietSince, noted.containersSince
}

func (s *sightings) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, key)
}

// containersID tells the states of a pod's containers apart: which have started, how often, and which have ended.
func containersID(pod *corev1.Pod) uint64 {
	hash := newHash()
	maphash.WriteComparable(hash, pod.UID)
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		maphash.WriteComparable(hash, struct {
			name                string
			restarts            int32
			running, terminated bool
		}{status.Name, status.RestartCount, status.State.Running != nil, status.State.Terminated != nil})
	}
	return hash.Sum64()
}
