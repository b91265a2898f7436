// SPDX-License-Identifier: Apache-2.0

// Package crr ends sidecars through OpenKruise (mode CRR): a ContainerRecreateRequest makes Kruise's daemon on the pod's
// node run preStop and stop the container. It is the only package that knows Kruise's types, and it writes to
// ContainerRecreateRequests only. Availability tells whether Kruise can be used at all.
package crr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/served"
	"github.com/sidecar-termination/operator/internal/terminator"
)

const (
	// labelManagedBy marks the requests that this operator created.
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "sidecar-termination-operator"

	namePrefix = "sidecar-termination-"

	// annotationRequestedAt is when the operator made the request, by its own clock. The attempt is judged by that clock,
	// which need not agree with the API server's.
	annotationRequestedAt = "sidecartermination.dev/requested-at"

	// minActiveDeadline is the shortest deadline that Kruise's webhook accepts.
	minActiveDeadline = 3 * time.Second
	// ttlAfterFinished keeps finished requests longer than the longest wait between two attempts, so that the attempts on
	// a pod whose containers are not started again can be counted.
	ttlAfterFinished = 30 * time.Minute
)

// ErrRefused means that a request cannot be made: Kruise's webhook did not accept it or did not answer, or its name is taken.
// Another mode may be used.
var ErrRefused = errors.New("the ContainerRecreateRequest was refused")

// Terminator carries out mode CRR.
type Terminator struct {
	Client client.Client
	// Server reads without a cache.
	Server       client.Reader
	Clock        clock.PassiveClock
	Availability *Availability
}

// Mode returns CRR.
func (t *Terminator) Mode() v1alpha1.Mode { return v1alpha1.ModeCRR }

// Observe returns the operator's requests for the pod, oldest first, from the cache. While requests are not served
// it returns none.
func (t *Terminator) Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error) {
	requests := t.Availability.requests.Reader()
	if requests == nil {
		return nil, nil
	}
	var list kruise.ContainerRecreateRequestList
	err := requests.List(ctx, &list, client.InNamespace(pod.Namespace), client.MatchingFields{indexPodUID: string(pod.UID)})
	if err != nil {
		return nil, fmt.Errorf("list ContainerRecreateRequests of pod: %w", err)
	}
	return toAttempts(list.Items, pod), nil
}

// maxAttempts bounds the requests of one pod that are looked at. The operator repeats a request at growing intervals and
// makes fewer; somebody else may make any number with its marks.
const maxAttempts = 64

// toAttempts returns the newest of the operator's attempts among the requests, oldest first.
func toAttempts(requests []kruise.ContainerRecreateRequest, pod *corev1.Pod) []plan.Attempt {
	type numbered struct{ number, index int }
	var newest []numbered
	for i := range requests {
		if number, ok := attemptNumber(requests[i].Name, pod.UID); ok {
			newest = append(newest, numbered{number, i})
		}
	}
	slices.SortFunc(newest, func(a, b numbered) int { return cmp.Compare(a.number, b.number) })
	newest = newest[max(len(newest)-maxAttempts, 0):]
	containers := terminator.ContainerNames(pod)
	var attempts []plan.Attempt
	for _, n := range newest {
		attempts = append(attempts, toAttempt(&requests[n.index], n.number, containers))
	}
	return attempts
}

// Terminate removes the requests that the action supersedes and creates one for its containers. It returns false when
// the request exists already, a conflict when one that is superseded has been replaced since it was observed, and
// ErrRefused when Kruise does not take the request or another object has its name.
func (t *Terminator) Terminate(ctx context.Context, pod *corev1.Pod, action plan.Action) (bool, error) {
	for _, spent := range action.Supersedes {
		if err := t.delete(ctx, pod.Namespace, requestName(pod.UID, spent.Number), spent.UID); err != nil {
			return false, err
		}
	}
	request := newRequest(pod, action, t.Clock.Now())
	switch err := t.Client.Create(ctx, request); {
	case apierrors.IsAlreadyExists(err):
		return false, t.checkExisting(ctx, request, pod.UID)
	case served.IsRefusal(err):
		return false, fmt.Errorf("%w: %w", ErrRefused, err)
	case err != nil:
		return false, fmt.Errorf("create ContainerRecreateRequest: %w", err)
	}
	// Kruise looks the pod up by name. Should another pod have taken the name, its containers must not be stopped.
	if uid := request.Labels[kruise.ContainerRecreateRequestPodUIDKey]; uid != string(pod.UID) {
		if err := t.delete(ctx, request.Namespace, request.Name, request.UID); err != nil {
			return false, err
		}
		return false, fmt.Errorf("%w: it was made for the pod with uid %q, not %q", ErrRefused, uid, pod.UID)
	}
	return true, nil
}

// checkExisting returns nil when the object that has the request's name is one that Observe finds, as soon as the cache has it.
// Of any other the outcome would never be known, and each attempt would end here again: then it returns ErrRefused. It
// returns a conflict when the object is gone by now.
func (t *Terminator) checkExisting(ctx context.Context, request *kruise.ContainerRecreateRequest, pod types.UID) error {
	var list kruise.ContainerRecreateRequestList
	// A list by name needs no right that the cache does not need.
	err := t.Server.List(ctx, &list, client.InNamespace(request.Namespace), client.MatchingFields{"metadata.name": request.Name})
	switch {
	case err != nil:
		return fmt.Errorf("read ContainerRecreateRequest %s: %w", request.Name, err)
	case len(list.Items) == 0:
		requests := kruise.SchemeGroupVersion.WithResource(resource).GroupResource()
		return apierrors.NewConflict(requests, request.Name, errors.New("it was deleted a moment ago"))
	}
	existing := &list.Items[0]
	if existing.Labels[labelManagedBy] == managedBy && slices.Contains(ownerPodUID(existing), string(pod)) {
		return nil
	}
	return fmt.Errorf("%w: %s/%s exists without the operator's label %s=%s or without the pod as its owner; delete it",
		ErrRefused, existing.Namespace, existing.Name, labelManagedBy, managedBy)
}

func (t *Terminator) delete(ctx context.Context, namespace, name string, uid types.UID) error {
	request := &kruise.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := t.Client.Delete(ctx, request, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ContainerRecreateRequest %s: %w", name, err)
	}
	return nil
}

// newRequest builds the request. orderedRecreate stays off: it waits for a restart that never comes in a Job's pod.
func newRequest(pod *corev1.Pod, action plan.Action, now time.Time) *kruise.ContainerRecreateRequest {
	request := &kruise.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   pod.Namespace,
			Name:        requestName(pod.UID, action.Attempt),
			Labels:      map[string]string{labelManagedBy: managedBy},
			Annotations: map[string]string{annotationRequestedAt: now.UTC().Format(time.RFC3339)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: pod.Name, UID: pod.UID,
			}},
		},
		Spec: kruise.ContainerRecreateRequestSpec{
			PodName: pod.Name,
			Strategy: &kruise.ContainerRecreateRequestStrategy{
				FailurePolicy: kruise.ContainerRecreateRequestFailurePolicyIgnore,
				ForceRecreate: true,
			},
			ActiveDeadlineSeconds:   ptr.To(int64(max(action.Deadline, minActiveDeadline).Seconds())),
			TTLSecondsAfterFinished: ttl(pod),
		},
	}
	for _, name := range action.Containers {
		request.Spec.Containers = append(request.Spec.Containers, kruise.ContainerRecreateRequestContainer{Name: name})
	}
	return request
}

// ttl returns for how long Kruise is to keep a finished request, in seconds; nil means as long as the pod, which owns it.
// Where the kubelet may start a container again the request must not be forgotten: one after which that has happened
// is not to be repeated.
func ttl(pod *corev1.Pod) *int32 {
	restarts := func(container corev1.Container) bool { return container.RestartPolicy != nil }
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever || slices.ContainsFunc(pod.Spec.Containers, restarts) {
		return nil
	}
	return ptr.To(int32(ttlAfterFinished.Seconds()))
}

// toAttempt returns what the request says of the containers, which are those of its pod.
func toAttempt(request *kruise.ContainerRecreateRequest, number int, containers map[string]bool) plan.Attempt {
	attempt := plan.Attempt{
		Mode: v1alpha1.ModeCRR, For: v1alpha1.ModeCRR, Number: number, UID: request.UID,
		RestartCounts: map[string]int32{}, Started: requestedAt(request), Message: request.Status.Message,
	}
	for i := range request.Spec.Containers {
		container := &request.Spec.Containers[i]
		if !containers[container.Name] {
			continue
		}
		attempt.RestartCounts[container.Name] = 0
		if container.StatusContext != nil {
			attempt.RestartCounts[container.Name] = container.StatusContext.RestartCount
		}
	}
	if request.Status.CompletionTime != nil {
		attempt.Finished = request.Status.CompletionTime.Time
	}
	for _, state := range request.Status.ContainerRecreateStates {
		if attempt.Message == "" && state.Phase == kruise.ContainerRecreateRequestFailed {
			attempt.Message = state.Message
		}
	}
	return attempt
}

// maxClockSkew bounds how far the operator's clock is taken to be ahead of the API server's.
const maxClockSkew = 24 * time.Hour

// requestedAt falls back on the API server's time for a request of an earlier version of the operator, and for one that
// claims to be made far in the future: somebody else wrote that, and the attempt would never fail.
func requestedAt(request *kruise.ContainerRecreateRequest) time.Time {
	created := request.CreationTimestamp.Time
	requested, err := time.Parse(time.RFC3339, request.Annotations[annotationRequestedAt])
	if err != nil || requested.After(created.Add(maxClockSkew)) {
		return created
	}
	return requested
}

// requestName is deterministic, so that a repeated creation meets the first one.
func requestName(uid types.UID, attempt int) string {
	return namePrefix + string(uid) + "-" + strconv.Itoa(attempt)
}

// attemptNumber reads the number back from a name; it returns false for a name of another origin.
func attemptNumber(name string, uid types.UID) (int, bool) {
	suffix, ok := strings.CutPrefix(name, namePrefix+string(uid)+"-")
	if !ok {
		return 0, false
	}
	number, err := strconv.Atoi(suffix)
	return number, err == nil && number >= 0 && strconv.Itoa(number) == suffix
}
