// SPDX-License-Identifier: Apache-2.0

package podcache

import (
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
	first := intern(strings.Clone("registry.example/proxy:v1"))
	runtime.GC()
	runtime.GC()
	if again := intern(strings.Clone("registry.example/proxy:v1")); !same(first, again) {
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
			of[strings.Clone(name)] = strings.Clone(value)
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
	names, others := slices.Sorted(maps.Keys(one)), slices.Sorted(maps.Keys(other))
	if !slices.EqualFunc(names, others, same) {
		t.Error("names of labels of two pods do not share memory")
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

// What is shared outlives its pod.
func TestLargeValuesAreNotShared(t *testing.T) {
	large := func() []corev1.Container {
		return []corev1.Container{{Name: "large", Image: "x", Env: []corev1.EnvVar{{Name: "PATH", Value: strings.Repeat("x", maxShared)}}}}
	}
	one, other := shareContainers(large()), shareContainers(large())
	if diff := cmp.Diff(large(), one); diff != "" || &one[0] == &other[0] {
		t.Errorf("large containers are shared, or changed (-want +got):\n%s", diff)
	}
	long := strings.Repeat("x", maxInterned+1)
	if got := intern(strings.Clone(long)); got != long || same(intern(strings.Clone(long)), got) || slices.Contains(interned.slots, long) {
		t.Errorf("a string of %d characters is shared, or changed: %q", len(long), got)
	}
	labels := numbered(maxInternedLabels+1, "value")
	if allocations := testing.AllocsPerRun(10, func() { internLabels(labels) }); allocations > 0 {
		t.Errorf("%d labels are copied: %.0f allocations", len(labels), allocations)
	}
}
