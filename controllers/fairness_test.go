// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
)

// TestBacklogDelaysNoOtherNamespace ends pods of one namespace while another one has many pods whose main containers are done. With
// BACKLOG=5000 it measures what docs/performance.md reports.
func TestBacklogDelaysNoOtherNamespace(t *testing.T) {
	backlog, ends, workers := 300, 10, 4
	if set, err := strconv.Atoi(os.Getenv("BACKLOG")); err == nil {
		backlog, ends, workers = set, 100, 32
	}
	for _, due := range []int{0, backlog} {
		t.Run(fmt.Sprintf("%d due pods", due), func(t *testing.T) {
			f := newFixture(t)
			options := testOptions()
			options.MaxConcurrentReconciles = workers
			f.startOperator(options)
			other := f.newNamespace(nil)
			f.in(other, func() { f.newPods(due, podtest.MainDone) })
			image := mode(v1alpha1.ModeImage, v1alpha1.ExitCodePolicyIgnore)
			anyCommand := func(spec *v1alpha1.PolicySpec) {
				spec.Image, spec.QuickExitPaths = quickExit, []v1alpha1.QuickExitPath{"*"}
			}
			f.newPolicy("mesh", image, anyCommand)
			pods := f.newPods(ends)
			f.eventuallyMarked(f.namespace, ends)
			f.in(other, func() { f.newPolicy("mesh", image, anyCommand) })
			f.eventuallyMarked(other, min(due, 1))
			latencies := f.endAll(pods)
			if left := due - f.marked(other); due > 0 && left == 0 {
				t.Errorf("all %d pods of the other namespace came first", due)
			} else {
				t.Logf("%d pods of the other namespace wait", left)
			}
			t.Logf("from the report of a main container's end to the write that ends the sidecar: p50 %s, p99 %s", latencies[len(latencies)/2], latencies[len(latencies)*99/100])
		})
	}
}

// newPods creates pods, many at once.
func (f *fixture) newPods(number int, change ...func(*corev1.Pod)) []*corev1.Pod {
	f.Helper()
	pods := make([]*corev1.Pod, number)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range pods {
		group.Go(func() error {
			pods[i] = f.newPod(fmt.Sprintf("job-%d", i), change...)
			return nil
		})
	}
	_ = group.Wait()
	return pods
}

// marked counts the marked pods of the namespace.
func (f *fixture) marked(namespace string) int {
	f.Helper()
	var pods corev1.PodList
	if err := f.List(f.Context(), &pods, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelOutcome}); err != nil {
		f.Fatal(err)
	}
	return len(pods.Items)
}

func (f *fixture) eventuallyMarked(namespace string, number int) {
	f.Helper()
	testenv.Eventually(f.T, "pods are marked", func(context.Context) error {
		if got := f.marked(namespace); got < number {
			return fmt.Errorf("%d of %d", got, number)
		}
		return nil
	})
}

// endAll ends the main container of 20 pods a second, and returns how long it took from each report until the operator swapped the image of
// the sidecar, the shortest time first.
func (f *fixture) endAll(pods []*corev1.Pod) []time.Duration {
	f.Helper()
	c, err := client.NewWithWatch(server, client.Options{Scheme: scheme})
	if err != nil {
		f.Fatal(err)
	}
	changes, err := c.Watch(f.Context(), &corev1.PodList{}, client.InNamespace(f.namespace))
	if err != nil {
		f.Fatal(err)
	}
	defer changes.Stop()
	var mu sync.Mutex
	ended := map[string]time.Time{}
	var group errgroup.Group
	end := func(pod *corev1.Pod) error {
		podtest.MainDone(pod)
		f.writeStatus(pod)
		mu.Lock()
		defer mu.Unlock()
		ended[pod.Name] = time.Now()
		return nil
	}
	group.Go(func() error {
		rate := time.Tick(50 * time.Millisecond)
		for _, pod := range pods {
			<-rate
			group.Go(func() error { return end(pod) })
		}
		return nil
	})
	swapped := map[string]time.Time{}
	for event := range changes.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type == watch.Deleted || pod.Spec.Containers[1].Image != quickExit {
			continue
		}
		if swapped[pod.Name].IsZero() {
			swapped[pod.Name] = time.Now()
		}
		if len(swapped) == len(pods) {
			break
		}
	}
	_ = group.Wait()
	var latencies []time.Duration
	for name, at := range ended {
		latencies = append(latencies, swapped[name].Sub(at))
	}
	slices.SortFunc(latencies, cmp.Compare)
	return latencies
}
