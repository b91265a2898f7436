// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"fmt"
	"hash/maphash"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/hack/podtest"
)

// copied returns an equal string that shares no memory with the given one.
func copied(s string) string { return strings.Clone(s) }

func same(a, b string) bool { return a == b && unsafe.StringData(a) == unsafe.StringData(b) }

// withoutCollisions gives the test tables of its own, in which the strings have different slots.
func withoutCollisions(t *testing.T, strings ...string) {
	t.Helper()
	seed, oldInterned, oldTemplates := hashSeed, interned, templates
	t.Cleanup(func() { hashSeed, interned, templates = seed, oldInterned, oldTemplates })
	interned, templates = newSharedValues[string](len(interned.slots)), newSharedValues[[]corev1.Container](len(templates.slots))
	for {
		hashSeed = maphash.MakeSeed()
		slots := map[uint64]bool{}
		for _, s := range strings {
			slots[maphash.String(hashSeed, s)%uint64(len(interned.slots))] = true
		}
		if len(slots) == len(strings) {
			return
		}
	}
}

func TestEqualStringsShareMemoryAcrossCollections(t *testing.T) {
	withoutCollisions(t)
	first := intern(copied("registry.example/proxy:v1"))
	runtime.GC()
	runtime.GC()
	if again := intern(copied("registry.example/proxy:v1")); !same(first, again) {
		t.Error("equal strings have separate memory")
	}
	if got := intern(""); got != "" {
		t.Errorf("empty string: got %q", got)
	}
}

func TestLabelsAreInterned(t *testing.T) {
	given := map[string]string{
		"app": "import", "job-name": "import-1", "batch.kubernetes.io/job-name": "import-1",
		"controller-uid": "u-1", "batch.kubernetes.io/controller-uid": "another", "batch.kubernetes.io/job-completion-index": "3",
	}
	withoutCollisions(t, append(slices.Collect(maps.Keys(given)), given["app"])...)
	labels := func() map[string]string {
		of := map[string]string{}
		for name, value := range given {
			of[copied(name)] = copied(value)
		}
		return of
	}
	one, other := internLabels(labels()), internLabels(labels())
	if diff := cmp.Diff(labels(), one); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if !same(one["app"], other["app"]) {
		t.Error("equal values of two pods do not share memory")
	}
	if !same(one["job-name"], one["batch.kubernetes.io/job-name"]) {
		t.Error("the two labels with the Job's name do not share memory")
	}
	for name := range maps.Keys(one) {
		for twin := range maps.Keys(other) {
			if name == twin && !same(name, twin) {
				t.Errorf("label %s of two pods does not share memory", name)
			}
		}
	}
	if got := internLabels(nil); got != nil {
		t.Errorf("no labels: got %v", got)
	}
}

func TestPodsOfOneTemplateShareContainers(t *testing.T) {
	withoutCollisions(t)
	kept := func(change ...func(*corev1.Pod)) []corev1.Container {
		trimmed := TrimPod(podtest.OfJob(change...))
		return trimmed.(*corev1.Pod).Spec.Containers
	}
	swapped := func(pod *corev1.Pod) { pod.Spec.Containers[1].Image = "registry.example/quick-exit:v1" }
	one, other, another := kept(), kept(), kept(swapped)
	if &one[0] != &other[0] {
		t.Error("two pods of one template do not share containers")
	}
	if &one[0] == &another[0] || one[1].Image == another[1].Image {
		t.Errorf("a pod with another image has the containers of the first: %s", another[1].Image)
	}
	if again := kept(); again[1].Image != one[1].Image {
		t.Errorf("a pod of the template has image %s", again[1].Image)
	}
}

func TestLargeContainersAreNotShared(t *testing.T) {
	large := func() []corev1.Container {
		return []corev1.Container{{Name: "large", Image: "x", Env: []corev1.EnvVar{{Name: "PATH", Value: strings.Repeat("x", maxShared)}}}}
	}
	one, other := shareContainers(large()), shareContainers(large())
	if &one[0] == &other[0] {
		t.Error("large containers are shared, so that they outlive their pod")
	}
	if diff := cmp.Diff(large(), one); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}

func TestLongStringsAreNotShared(t *testing.T) {
	long := strings.Repeat("x", maxInterned+1)
	if got := intern(copied(long)); got != long {
		t.Errorf("got %d characters, want %d", len(got), len(long))
	}
	if again := intern(copied(long)); same(again, long) || slices.Contains(interned.slots, long) {
		t.Error("a long string is shared, so that it outlives its pod")
	}
}

func TestManyLabelsAreNotCopied(t *testing.T) {
	labels := map[string]string{}
	for i := range maxInternedLabels + 1 {
		labels[fmt.Sprintf("label-%d", i)] = "value"
	}
	if allocations := testing.AllocsPerRun(10, func() { internLabels(labels) }); allocations > 0 {
		t.Errorf("%.0f allocations", allocations)
	}
}
