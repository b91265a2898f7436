// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// A new leader reads at most maxMissedPages pages of missedPage pods, which bounds what it holds at once. It repeats a failed list at the
// interval, until the timeout.
const (
	missedPage     = 50
	maxMissedPages = 200
	missedInterval = 10 * time.Second
	missedTimeout  = 5 * time.Minute
)

// missedFailures is a source of the pods that failed while no operator ran, so that those whose main containers have succeeded are reported. The
// cache has unfinished pods only.
type missedFailures struct {
	reader     client.Reader // the API server
	namespaces []string      // empty means all
	states     *podStates
	ledBefore  func() time.Time
}

// Start lists the pods once, in the background.
func (m *missedFailures) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	since := m.ledBefore()
	if since.IsZero() {
		return nil
	}
	namespaces := m.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	go func() {
		for _, namespace := range namespaces {
			var failure error
			err := wait.PollUntilContextTimeout(ctx, missedInterval, missedTimeout, true, func(ctx context.Context) (bool, error) {
				failure = m.list(ctx, namespace, since, queue)
				return failure == nil, nil
			})
			if err != nil && ctx.Err() == nil {
				ctrl.Log.Info("Cannot tell which pods failed while no operator ran", "namespace", namespace, "cause", failure.Error())
			}
		}
	}()
	return nil
}

// list enqueues the pods of a namespace.
func (m *missedFailures) list(
	ctx context.Context, namespace string, since time.Time, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
) error {
	options := &client.ListOptions{
		Namespace: namespace, Limit: missedPage,
		FieldSelector: fields.OneTermEqualSelector("status.phase", string(corev1.PodFailed)),
	}
	client.MatchingLabels{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}.ApplyToList(options)
	for range maxMissedPages {
		pods := &corev1.PodList{}
		if err := m.reader.List(ctx, pods, options); err != nil {
			return err
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; reportedAfter(pod, since) {
				m.states.missed(pod)
				queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
			}
		}
		if options.Continue = pods.Continue; options.Continue == "" {
			break
		}
	}
	return nil
}

// reportedAfter reports whether somebody has written the status of the pod after the time. A busy kubelet reports the end of a container
// much later than it was. Times of managed fields and leases have whole seconds.
func reportedAfter(pod *corev1.Pod, since time.Time) bool {
	return slices.ContainsFunc(pod.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "status" && entry.Time != nil && !entry.Time.Time.Before(since.Truncate(time.Second))
	})
}
