// SPDX-License-Identifier: Apache-2.0

// Package crr ends sidecars through OpenKruise (mode CRR): a ContainerRecreateRequest (CRR) makes its daemon on the
// pod's node run preStop and stop the container. It is the only package that knows this kind, and it writes nothing
// else. NewAvailability finds out whether the cluster has a usable OpenKruise.
package crr

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	kruise "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/optionalkind"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator"
)

const (
	namePrefix = "sidecar-termination-"

	// annotationRequestedAt is when the operator created the CRR, by the operator's clock, which also judges the attempt.
	// The API server's clock may differ.
	annotationRequestedAt = "sidecartermination.dev/requested-at"

	// annotationMainRestarts is how often each main container had been restarted when the operator created the CRR, as JSON.
	annotationMainRestarts = "sidecartermination.dev/main-restarts"

	// minActiveDeadline is the shortest deadline that OpenKruise's webhook accepts.
	minActiveDeadline = 3 * time.Second
	// ttlAfterFinished keeps finished CRRs longer than the longest wait between two attempts, so that the operator can
	// count the attempts.
	ttlAfterFinished = 30 * time.Minute
	// maxCacheLag is how long OpenKruise's cache of pods may lag behind the end of a container before its denial counts.
	maxCacheLag = time.Minute
)

var resourceOfCRRs = kruise.SchemeGroupVersion.WithResource(resource).GroupResource()

// Terminator executes mode CRR.
type Terminator struct {
	Client client.Client
	// Server reads without a cache.
	Server       client.Reader
	Clock        clock.PassiveClock
	Availability *optionalkind.Availability
}

// Mode returns CRR.
func (t *Terminator) Mode() v1alpha1.Mode { return v1alpha1.ModeCRR }

// Observe returns the operator's CRRs for the pod as attempts, oldest first, from the cache. While CRRs are not served it
// returns none.
func (t *Terminator) Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error) {
	reader := t.Availability.Reader()
	if reader == nil {
		return nil, nil
	}
	return observe(ctx, reader, pod, client.MatchingFields{optionalkind.IndexOwner: string(pod.UID)})
}

func observe(ctx context.Context, reader client.Reader, pod *corev1.Pod, own client.ListOption) ([]plan.Attempt, error) {
	var list kruise.ContainerRecreateRequestList
	if err := reader.List(ctx, &list, client.InNamespace(pod.Namespace), own); err != nil {
		return nil, fmt.Errorf("list ContainerRecreateRequests of pod: %w", err)
	}
	return toAttempts(list.Items, pod), nil
}

// Observer reads the operator's CRRs from any reader, for callers that never write. Terminator reads them from a cache.
type Observer struct {
	Reader client.Reader
}

// Observe returns the operator's CRRs for the pod as attempts, oldest first, and none where CRRs are not served.
func (o Observer) Observe(ctx context.Context, pod *corev1.Pod) ([]plan.Attempt, error) {
	attempts, err := observe(ctx, o.Reader, pod, client.MatchingLabels{optionalkind.LabelManagedBy: settings.Name})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	return attempts, err
}

// maxAttempts bounds the CRRs of one pod that count. The operator repeats a CRR at growing intervals and creates fewer,
// but others may create any number with its labels.
const maxAttempts = 64

// toAttempts returns the newest of the operator's attempts among the CRRs, oldest first. Numbers do not tell the newest: others may forge them.
func toAttempts(crrs []kruise.ContainerRecreateRequest, pod *corev1.Pod) []plan.Attempt {
	type numbered struct{ number, index int }
	var newest []numbered
	for i := range crrs {
		if number, ok := attemptNumber(crrs[i].Name, pod.UID); ok {
			newest = append(newest, numbered{number, i})
		}
	}
	slices.SortFunc(newest, func(a, b numbered) int {
		byAge := crrs[a.index].CreationTimestamp.Compare(crrs[b.index].CreationTimestamp.Time)
		return cmp.Or(byAge, cmp.Compare(a.number, b.number))
	})
	newest = newest[max(len(newest)-maxAttempts, 0):]
	containers := terminator.ContainerNames(pod)
	var attempts []plan.Attempt
	for _, n := range newest {
		attempts = append(attempts, toAttempt(&crrs[n.index], n.number, containers))
	}
	return attempts
}

// Execute deletes the CRRs that the write supersedes and creates one for its containers. The result is Unchanged if the CRR exists already,
// Stale if a superseded one has been replaced since it was read or OpenKruise's cache of pods is stale, and Denied if OpenKruise denies the
// CRR or another object has its name.
func (t *Terminator) Execute(ctx context.Context, pod *corev1.Pod, write plan.Write) (terminator.Applied, error) {
	changed, err := t.create(ctx, pod, write)
	return terminator.Judge(t.Mode(), changed, err)
}

func (t *Terminator) create(ctx context.Context, pod *corev1.Pod, write plan.Write) (changed bool, err error) {
	for _, superseded := range write.Supersedes {
		if err := t.delete(ctx, pod.Namespace, crrName(pod.UID, superseded.Number), superseded.UID); err != nil {
			return false, err
		}
	}
	crr := newCRR(pod, write, t.Clock.Now())
	switch err := t.Client.Create(ctx, crr); {
	case apierrors.IsAlreadyExists(err):
		return false, t.checkExisting(ctx, crr, pod.UID)
	case isStale(err) && t.hasJustEnded(pod):
		// The webhook's own text would make the conflict a denial.
		return false, apierrors.NewConflict(resourceOfCRRs, crr.Name, errors.New("OpenKruise has a stale status of the pod"))
	case optionalkind.IsDenial(err):
		return false, fmt.Errorf("ContainerRecreateRequest %w: %w", terminator.ErrDenied, err)
	case err != nil:
		return false, fmt.Errorf("create ContainerRecreateRequest: %w", err)
	}
	// OpenKruise finds the pod by name. If another pod has taken the name, its containers must not be stopped.
	if uid := crr.Labels[kruise.ContainerRecreateRequestPodUIDKey]; uid != string(pod.UID) {
		if err := t.delete(ctx, crr.Namespace, crr.Name, crr.UID); err != nil {
			return false, err
		}
		return false, fmt.Errorf("ContainerRecreateRequest %w: OpenKruise bound it to the pod with uid %q, not %q", terminator.ErrDenied, uid, pod.UID)
	}
	return true, nil
}

// isStale reports whether OpenKruise denied the CRR because it does not know the pod, its node, or that its container has started, which the
// operator knows. Its webhook reads a cache (injectPodIntoContainerRecreateRequest in
// pkg/webhook/containerrecreaterequest/mutating/crr_mutating_handler.go).
func isStale(err error) bool {
	return optionalkind.IsDenial(err) && slices.ContainsFunc(
		[]string{"no found Pod named ", "in a pending Pod", "containerStatus in Pod Status", "no containerID in "},
		func(text string) bool { return strings.Contains(err.Error(), text) })
}

// hasJustEnded reports whether a container of the pod has ended within maxCacheLag. A node's clock that is ahead by more counts as long ago.
func (t *Terminator) hasJustEnded(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
		end := status.State.Terminated
		return end != nil && t.Clock.Since(end.FinishedAt.Time).Abs() < maxCacheLag
	})
}

// checkExisting returns nil if Observe will recognize the existing object with the CRR's name once the cache has it. Otherwise
// the attempt would stay invisible and each retry would fail here, so it returns terminator.ErrDenied. It returns a conflict if the object
// no longer exists.
func (t *Terminator) checkExisting(ctx context.Context, crr *kruise.ContainerRecreateRequest, pod types.UID) error {
	existing, err := optionalkind.ReadExisting(ctx, t.Server, &kruise.ContainerRecreateRequestList{}, resourceOfCRRs, client.ObjectKeyFromObject(crr))
	if err != nil || optionalkind.IsOwn(existing, ownerPodUID, pod) {
		return err
	}
	return fmt.Errorf("ContainerRecreateRequest %w: %s/%s exists without the operator's label %s=%s or without the pod as its owner; delete it",
		terminator.ErrDenied, crr.Namespace, crr.Name, optionalkind.LabelManagedBy, settings.Name)
}

func (t *Terminator) delete(ctx context.Context, namespace, name string, uid types.UID) error {
	crr := &kruise.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := t.Client.Delete(ctx, crr, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ContainerRecreateRequest %s: %w", name, err)
	}
	return nil
}

// newCRR builds the CRR. orderedRecreate stays off: it waits for a restart that never comes in a Job's pod.
func newCRR(pod *corev1.Pod, write plan.Write, now time.Time) *kruise.ContainerRecreateRequest {
	crr := &kruise.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace,
			Name:      crrName(pod.UID, write.Attempt),
			Labels:    map[string]string{optionalkind.LabelManagedBy: settings.Name},
			Annotations: map[string]string{
				annotationRequestedAt:  now.UTC().Format(time.RFC3339),
				annotationMainRestarts: encodeRestarts(write.MainRestarts),
			},
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
			ActiveDeadlineSeconds:   ptr.To(int64(max(write.Timeout, minActiveDeadline).Seconds())),
			TTLSecondsAfterFinished: ttl(pod),
		},
	}
	for _, name := range write.Containers {
		crr.Spec.Containers = append(crr.Spec.Containers, kruise.ContainerRecreateRequestContainer{Name: name})
	}
	return crr
}

// ttl returns how many seconds OpenKruise keeps a finished CRR; nil means as long as the pod, which owns it. Where the kubelet
// may restart a container the CRR must stay, because a CRR after which the container came back must not be repeated.
func ttl(pod *corev1.Pod) *int32 {
	if plan.RestartsContainers(pod) {
		return nil
	}
	return ptr.To(int32(ttlAfterFinished.Seconds()))
}

// toAttempt converts a CRR. It skips container names that the pod does not have.
func toAttempt(crr *kruise.ContainerRecreateRequest, number int, containers map[string]bool) plan.Attempt {
	attempt := plan.Attempt{
		Mode: v1alpha1.ModeCRR, Number: number, UID: crr.UID,
		RestartCounts: map[string]int32{}, Started: requestedAt(crr), Message: crr.Status.Message,
	}
	attempt.MainRestarts = decodeRestarts(crr.Annotations[annotationMainRestarts], containers)
	for i := range crr.Spec.Containers {
		container := &crr.Spec.Containers[i]
		if !containers[container.Name] {
			continue
		}
		attempt.RestartCounts[container.Name] = 0
		if container.StatusContext != nil {
			attempt.RestartCounts[container.Name] = container.StatusContext.RestartCount
		}
	}
	if crr.Status.CompletionTime != nil {
		attempt.Finished = crr.Status.CompletionTime.Time
	}
	attempt.Stopped = hasStopped(crr)
	for _, state := range crr.Status.ContainerRecreateStates {
		if attempt.Message == "" && state.Phase == kruise.ContainerRecreateRequestFailed {
			attempt.Message = state.Message
		}
	}
	return attempt
}

func encodeRestarts(restarts map[string]int32) string {
	encoded, err := json.Marshal(restarts)
	if err != nil {
		panic(err) // a map of numbers has no error
	}
	return string(encoded)
}

// decodeRestarts returns the restarts of the pod's containers, or nil for a value that the operator does not write.
func decodeRestarts(value string, containers map[string]bool) map[string]int32 {
	var restarts map[string]int32
	if len(value) > terminator.RecordSize(len(containers)) || json.Unmarshal([]byte(value), &restarts) != nil {
		return nil
	}
	maps.DeleteFunc(restarts, func(name string, _ int32) bool { return !containers[name] })
	return restarts
}

// maxClockSkew bounds how far the operator's clock may be ahead of the API server's.
const maxClockSkew = 24 * time.Hour

// requestedAt returns when the operator created the CRR. It falls back to the API server's time where the annotation is
// missing or far in the future. Only another writer could set such a time, and the attempt would never fail.
func requestedAt(crr *kruise.ContainerRecreateRequest) time.Time {
	created := crr.CreationTimestamp.Time
	requested, err := time.Parse(time.RFC3339, crr.Annotations[annotationRequestedAt])
	if err != nil || requested.After(created.Add(maxClockSkew)) {
		return created
	}
	return requested
}

// crrName is deterministic, so that a repeated creation fails because the CRR exists.
func crrName(uid types.UID, attempt int) string {
	return namePrefix + string(uid) + "-" + strconv.Itoa(attempt)
}

// attemptNumber parses the number from a name; it returns false for a name that crrName does not return.
func attemptNumber(name string, uid types.UID) (int, bool) {
	suffix, ok := strings.CutPrefix(name, namePrefix+string(uid)+"-")
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(suffix, 10, 31)
	return int(number), err == nil && number >= 1 && number <= plan.MaxNumber && strconv.FormatUint(number, 10) == suffix
}
