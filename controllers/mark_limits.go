// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"math"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/sidecar-termination/operator/internal/plan"
)

// These limits bound the writes that others cause by changing policies, labels and marks. The first mark of a pod never waits: without it,
// the exit codes of sidecars count.
const (
	podMarks, podMarkInterval             = 5, time.Minute
	namespaceMarks, namespaceMarkInterval = 1000, 20 * time.Millisecond
	// maxLimiters bounds the pods and the namespaces that are remembered, each.
	maxLimiters = 4096
)

// markLimits limit the changes of marks, by pod and by namespace. A pod whose main containers are done needs nothing of its namespace. A token
// bucket is used by a write, or reserved for a pod that waits, so that pods which wait together are requeued one after the other.
type markLimits struct {
	pods       *lru.Cache // of *rate.Limiter by UID
	namespaces *lru.Cache // of *rate.Limiter by name
}

func newMarkLimits() markLimits { return markLimits{lru.New(maxLimiters), lru.New(maxLimiters)} }

// after returns when the pod may be marked next. While its main containers run, the last mark of its limit is kept for their record.
func (m markLimits) after(pod *corev1.Pod, state *podState, now time.Time) time.Time {
	if m.isFirst(pod, state) {
		return time.Time{}
	}
	next, wanted := m.slot(pod, state, now), 2.0
	if !state.drainsSince.IsZero() {
		wanted = 1
	}
	if limiter, known := m.pods.Get(pod.UID); known {
		if own := available(limiter.(*rate.Limiter), wanted, now); own.After(next) {
			return own
		}
	}
	return next
}

// slot returns when the pod's namespace lets the pod be marked.
func (m markLimits) slot(pod *corev1.Pod, state *podState, now time.Time) time.Time {
	switch {
	case !state.drainsSince.IsZero():
		return time.Time{}
	case !state.markSlot.IsZero():
		return state.markSlot
	}
	return available(m.ofNamespace(pod.Namespace), 1, now)
}

// wait reserves a slot for a pod that waits for one.
func (m markLimits) wait(pod *corev1.Pod, state *podState, now time.Time) {
	if slot := m.slot(pod, state, now); state.markSlot.IsZero() && slot.After(now) {
		m.ofNamespace(pod.Namespace).ReserveN(now, 1)
		state.markSlot = slot
	}
}

// use counts the mark that the pod has got.
func (m markLimits) use(before *corev1.Pod, state *podState, now time.Time) {
	if m.isFirst(before, state) {
		return
	}
	m.ofPod(before.UID).ReserveN(now, 1)
	if state.drainsSince.IsZero() && state.markSlot.IsZero() {
		m.ofNamespace(before.Namespace).ReserveN(now, 1)
	}
	state.markSlot = time.Time{}
}

// isFirst reports whether the pod was never marked, as far as is known.
func (m markLimits) isFirst(pod *corev1.Pod, state *podState) bool {
	_, known := m.pods.Get(pod.UID)
	return !known && state.markedAt.IsZero() && !plan.IsMarked(pod)
}

// remember keeps that a pod was marked.
func (m markLimits) remember(uid types.UID) { m.ofPod(uid) }

func (m markLimits) ofPod(uid types.UID) *rate.Limiter {
	return limiterOf(m.pods, uid, rate.Every(podMarkInterval), podMarks)
}

func (m markLimits) ofNamespace(name string) *rate.Limiter {
	return limiterOf(m.namespaces, name, rate.Every(namespaceMarkInterval), namespaceMarks)
}

// limiterOf returns the limiter of the key, or a new one, which replaces the one that was used least recently.
func limiterOf(limiters *lru.Cache, key any, limit rate.Limit, burst int) *rate.Limiter {
	if limiter, known := limiters.Get(key); known {
		return limiter.(*rate.Limiter)
	}
	limiter := rate.NewLimiter(limit, burst)
	limiters.Add(key, limiter)
	return limiter
}

// available returns when the limiter has so many tokens that nobody has reserved.
func available(limiter *rate.Limiter, wanted float64, now time.Time) time.Time {
	missing := max(wanted-limiter.TokensAt(now), 0)
	return now.Add(time.Duration(math.Ceil(missing / float64(limiter.Limit()) * float64(time.Second))))
}
