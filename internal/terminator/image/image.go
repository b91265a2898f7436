// SPDX-License-Identifier: Apache-2.0

// Package image ends sidecars by swapping their images in place for one that exits 0 (mode Image). The kubelet restarts a
// container whose image changed, whatever the pod's restartPolicy (computePodActions in kuberuntime_manager.go). A
// virtual kubelet passes the update to its provider. The package writes pods only, one patch per attempt.
package image

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/terminator"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=patch,roleName=sidecar-termination-manager-image-role

// Swap records one container's swap in AnnotationImageSwap, by container name.
type Swap struct {
	// PodUID is the pod's UID. A record of another pod counts for nothing: it was copied.
	PodUID types.UID `json:"podUID"`
	// Image is the container's original image. It is empty if the record would otherwise exceed terminator.RecordSize.
	Image string `json:"image"`
	// RestartCount is the container's restart count before the swap, -1 if it had never started.
	RestartCount int32 `json:"restartCount"`
	// Attempt is the number of the attempt, and SwappedAt its start.
	Attempt   int         `json:"attempt"`
	SwappedAt metav1.Time `json:"swappedAt"`
}

// Terminator executes mode Image.
type Terminator struct {
	Client client.Client
	Clock  clock.PassiveClock
}

// Mode returns Image.
func (t *Terminator) Mode() v1alpha1.Mode { return v1alpha1.ModeImage }

// Observe returns the attempts that the pod's annotation records. It reads only the pod. Every error wraps
// terminator.ErrInvalidAnnotation: acting without the record could lose the original images.
func (t *Terminator) Observe(_ context.Context, pod *corev1.Pod) ([]plan.Attempt, error) {
	swaps, err := readSwaps(pod)
	if err != nil {
		return nil, err
	}
	var attempts []plan.Attempt
	// Sorted by name, so that the result is deterministic where a forged record has two start times for one attempt.
	for _, name := range slices.Sorted(maps.Keys(swaps)) {
		swap := swaps[name]
		i, found := slices.BinarySearchFunc(attempts, swap.Attempt, func(a plan.Attempt, number int) int { return cmp.Compare(a.Number, number) })
		if !found {
			attempts = slices.Insert(attempts, i, plan.Attempt{
				Mode: v1alpha1.ModeImage, Number: swap.Attempt, Started: swap.SwappedAt.Time, RestartCounts: map[string]int32{},
			})
		}
		attempts[i].RestartCounts[name] = swap.RestartCount
	}
	return attempts, nil
}

// Execute swaps the images of the write's containers. The result is Unchanged if all of them have been swapped already.
func (t *Terminator) Execute(ctx context.Context, pod *corev1.Pod, write plan.Write) (terminator.Applied, error) {
	changed, err := t.swap(ctx, pod, write)
	return terminator.Judge(t.Mode(), changed, err)
}

func (t *Terminator) swap(ctx context.Context, pod *corev1.Pod, write plan.Write) (changed bool, err error) {
	swaps, err := readSwaps(pod)
	if err != nil {
		return false, err
	}
	now, swapped := metav1.NewTime(t.Clock.Now()), applycorev1.PodSpec()
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		image, wanted := write.Images[container.Name]
		if _, before := swaps[container.Name]; !wanted || before {
			continue
		}
		swaps[container.Name] = Swap{
			PodUID: pod.UID, Image: container.Image, RestartCount: restartCount(pod, container.Name), Attempt: write.Attempt, SwappedAt: now,
		}
		swapped.WithContainers(applycorev1.Container().WithName(container.Name).WithImage(image))
	}
	if len(swapped.Containers) == 0 {
		return false, nil
	}
	record, err := encode(swaps, terminator.RecordSize(len(pod.Spec.Containers)))
	if err != nil {
		return false, err
	}
	patch := terminator.NewPodPatch(pod)
	patch.WithAnnotations(map[string]string{v1alpha1.AnnotationImageSwap: record}).WithSpec(swapped)
	if err := t.Client.Patch(ctx, terminator.PatchTarget(pod), patch); err != nil {
		return false, fmt.Errorf("swap images of pod: %w", err)
	}
	return true, nil
}

// readSwaps returns the recorded swaps of the pod's containers. It drops records of other containers and other pods. Every error wraps
// terminator.ErrInvalidAnnotation.
func readSwaps(pod *corev1.Pod) (map[string]Swap, error) {
	swaps := map[string]Swap{}
	value := cmp.Or(pod.Annotations[v1alpha1.AnnotationImageSwap], "{}")
	if len(value) > terminator.RecordSize(len(pod.Spec.Containers)) {
		return nil, fmt.Errorf("%w: annotation %s is longer than the operator writes it", terminator.ErrInvalidAnnotation, v1alpha1.AnnotationImageSwap)
	}
	if err := json.Unmarshal([]byte(value), &swaps); err != nil {
		return nil, fmt.Errorf("%w: annotation %s: %w", terminator.ErrInvalidAnnotation, v1alpha1.AnnotationImageSwap, err)
	}
	if swaps == nil {
		return nil, fmt.Errorf("%w: annotation %s is null", terminator.ErrInvalidAnnotation, v1alpha1.AnnotationImageSwap)
	}
	known := terminator.ContainerNames(pod)
	maps.DeleteFunc(swaps, func(name string, swap Swap) bool { return !known[name] || swap.PodUID != pod.UID })
	return swaps, nil
}

// encode omits the images if the record would be too long with them. A pod may have such names, but no registry does.
func encode(swaps map[string]Swap, limit int) (string, error) {
	record, err := json.Marshal(swaps)
	if err == nil && len(record) > limit {
		for name, swap := range swaps {
			swap.Image = ""
			swaps[name] = swap
		}
		record, err = json.Marshal(swaps)
	}
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", v1alpha1.AnnotationImageSwap, err)
	}
	return string(record), nil
}

func restartCount(pod *corev1.Pod, name string) int32 {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == name && status.ContainerID != "" {
			return status.RestartCount
		}
	}
	return -1
}
