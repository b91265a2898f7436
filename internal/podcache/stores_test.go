// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
)

func TestStoresListPods(t *testing.T) {
	pod := func(namespace, name, node string) *corev1.Pod {
		return podtest.New(func(p *corev1.Pod) { p.Namespace, p.Name, p.Spec.NodeName = namespace, name, node })
	}
	// The operator watches two namespaces.
	stores := newTestStores(t,
		[]*corev1.Pod{pod("batch", "a", "node-1"), pod("batch", "b", "node-2"), pod("batch", "new", "")},
		[]*corev1.Pod{pod("etl", "a", "node-1")},
	)
	inNamespace := func(namespace string) func() ([]*Pod, error) {
		return func() ([]*Pod, error) { return stores.Pods(namespace) }
	}
	onNode := func(name string) func() ([]*Pod, error) {
		return func() ([]*Pod, error) { return stores.PodsOnNode(name) }
	}
	for name, tc := range map[string]struct {
		list func() ([]*Pod, error)
		want []string
	}{
		"all namespaces":      {inNamespace(""), []string{"batch/a", "batch/b", "batch/new", "etl/a"}},
		"one namespace":       {inNamespace("batch"), []string{"batch/a", "batch/b", "batch/new"}},
		"unwatched namespace": {inNamespace("other"), nil},
		"one node":            {onNode("node-1"), []string{"batch/a", "etl/a"}},
		"unknown node":        {onNode("node-3"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := tc.list()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, pod := range pods {
				got = append(got, pod.Namespace+"/"+pod.Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

// newTestStores returns stores with an informer for each list of pods.
func newTestStores(t *testing.T, pods ...[]*corev1.Pod) Stores {
	t.Helper()
	var informers []toolscache.SharedIndexInformer
	for _, of := range pods {
		informer := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &Pod{}, 0,
			toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
		for _, pod := range of {
			if err := informer.GetIndexer().Add(newTestPod(t, pod)); err != nil {
				t.Fatal(err)
			}
		}
		informers = append(informers, informer)
	}
	stores, err := NewStores(informers)
	if err != nil {
		t.Fatal(err)
	}
	return stores
}

func TestCacheDropsManagedFields(t *testing.T) {
	options, err := ManagerOptions()
	if err != nil {
		t.Fatal(err)
	}
	object := &metav1.PartialObjectMetadata{}
	object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	if _, err := options.DefaultTransform(object); err != nil || object.ManagedFields != nil {
		t.Errorf("kept %v, error %v", object.ManagedFields, err)
	}
	if !options.ReaderFailOnMissingInformer {
		t.Error("a read of an undeclared kind would start an informer")
	}
}

func TestTrimPolicy(t *testing.T) {
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: "mesh", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"large": strings.Repeat("x", 1<<17)},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
	want := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mesh", Labels: map[string]string{"a": "b"}}}
	if got, err := trimPolicy(policy); err != nil || !cmp.Equal(any(want), got) {
		t.Errorf("error %v (-want +got):\n%s", err, cmp.Diff(any(want), got))
	}
}

func TestSchemeHasEveryCachedType(t *testing.T) {
	options, err := ManagerOptions()
	if err != nil {
		t.Fatal(err)
	}
	for object := range options.ByObject {
		if _, _, err := options.Scheme.ObjectKinds(object); err != nil {
			t.Error(err)
		}
	}
}
