// SPDX-License-Identifier: Apache-2.0

package policyindex

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// newTestIndex returns an index over stores of both kinds, which the test fills.
func newTestIndex() *Index {
	index := &Index{labels: newRequiredLabels()}
	for range 2 {
		store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{indexSelector: index.labels.index})
		index.indexers = append(index.indexers, store)
	}
	return index
}

func indexedPolicy(namespace, name string, selector metav1.LabelSelector) *v1alpha1.SidecarTerminationPolicy {
	return &v1alpha1.SidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)},
		Spec: v1alpha1.SidecarTerminationPolicySpec{PolicySpec: v1alpha1.PolicySpec{
			PodSelector: selector, Sidecars: []v1alpha1.Sidecar{{Name: "proxy"}},
		}},
	}
}

// The index must find the same policies as a scan of all of them, in the same order.
func TestIndexFindsEverySelectingPolicy(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	namespaces := map[string]map[string]string{"a": {"tier": "batch"}, "b": {}}
	index := newTestIndex()
	var namespaced, cluster []resolve.Policy
	for i := range 400 {
		selector := randomSelector(random)
		name := fmt.Sprintf("p%03d", i)
		if i%2 == 0 {
			policy := indexedPolicy([]string{"a", "b"}[random.IntN(2)], name, selector)
			must(t, index.indexers[0].Add(policy))
			if parsed, err := resolve.Parse(policy); err == nil {
				namespaced = append(namespaced, parsed)
			}
			continue
		}
		policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		policy.Spec.PodSelector = selector
		policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
		if random.IntN(2) == 0 {
			policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "batch"}}
		}
		must(t, index.indexers[1].Add(policy))
		if parsed, err := resolve.Parse(policy); err == nil {
			cluster = append(cluster, parsed)
		}
	}
	found := 0
	for range 500 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: []string{"a", "b"}[random.IntN(2)], Labels: randomLabels(random)}}
		var want []string
		for _, policy := range slices.Concat(namespaced, cluster) {
			if policy.Selects(pod, namespaces[pod.Namespace]) {
				want = append(want, policy.Ref.String())
			}
		}
		got := namesOf(t, index, pod, namespaces[pod.Namespace])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("pod %v (-want +got):\n%s", pod.ObjectMeta, diff)
		}
		found += len(got)
	}
	if found == 0 {
		t.Fatal("no policy selects any pod: the test compared nothing")
	}
}

func TestIndexFollowsPolicyChanges(t *testing.T) {
	index := newTestIndex()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Labels: map[string]string{"app": "new"}}}
	policy := indexedPolicy("a", "p", metav1.LabelSelector{MatchLabels: map[string]string{"app": "old"}})
	must(t, index.indexers[0].Add(policy))
	if got := namesOf(t, index, pod, nil); len(got) > 0 {
		t.Errorf("found %v for other labels", got)
	}
	changed := policy.DeepCopy()
	changed.Spec.PodSelector.MatchLabels["app"] = "new"
	must(t, index.indexers[0].Update(changed))
	if got := namesOf(t, index, pod, nil); len(got) != 1 {
		t.Errorf("found %v after the selector changed", got)
	}
	replaced := changed.DeepCopy()
	replaced.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Invalid"}}
	must(t, index.indexers[0].Update(replaced))
	if got := namesOf(t, index, pod, nil); len(got) > 0 {
		t.Errorf("found %v by an invalid selector", got)
	}
	must(t, index.indexers[0].Delete(replaced))
	index.forget(toolscache.DeletedFinalStateUnknown{Obj: replaced})
	index.parsed.Range(func(key, _ any) bool { t.Errorf("%v is still parsed", key); return true })
}

func namesOf(t *testing.T, index *Index, pod *corev1.Pod, namespaceLabels map[string]string) []string {
	t.Helper()
	policies, err := index.Policies(pod, namespaceLabels)
	must(t, err)
	var names []string
	for _, policy := range policies {
		names = append(names, policy.Ref.String())
	}
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	labelNames  = []string{"app", "team", "tier"}
	labelValues = []string{"", "x", "y", "batch"}
)

func randomLabels(random *rand.Rand) map[string]string {
	labels := map[string]string{}
	for _, name := range labelNames {
		if random.IntN(2) == 0 {
			labels[name] = labelValues[random.IntN(len(labelValues))]
		}
	}
	return labels
}

func randomSelector(random *rand.Rand) metav1.LabelSelector {
	var selector metav1.LabelSelector
	if random.IntN(2) == 0 {
		selector.MatchLabels = randomLabels(random)
	}
	operators := []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Invalid",
	}
	for range random.IntN(3) {
		requirement := metav1.LabelSelectorRequirement{Key: labelNames[random.IntN(len(labelNames))], Operator: operators[random.IntN(len(operators))]}
		if strings.HasSuffix(string(requirement.Operator), "In") {
			requirement.Values = labelValues[random.IntN(2) : 2+random.IntN(3)]
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

func TestIndexKeys(t *testing.T) {
	in := func(name string, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: name, Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	exists := metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpExists}
	type byName = map[string]string
	selector := func(labels byName, expressions ...metav1.LabelSelectorRequirement) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: labels, MatchExpressions: expressions}
	}
	for _, test := range []struct {
		name     string
		selector metav1.LabelSelector
		want     []string
	}{
		{"no label", selector(nil), []string{"batch"}},
		{"any value", selector(nil, exists), []string{"batch"}},
		{"one value", selector(byName{"team": "etl"}), []string{"batch\x00team\x00etl"}},
		{"the longest of many values", selector(byName{"team": "etl", "app": "import", "enabled": "true"}), []string{"batch\x00app\x00import"}},
		{"the first name of equally long values", selector(byName{"team": "etl", "app": "csv"}), []string{"batch\x00app\x00csv"}},
		{"an In expression", selector(nil, exists, in("app", "import", "export")), []string{"batch\x00app\x00import", "batch\x00app\x00export"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys, err := newRequiredLabels().index(indexedPolicy("batch", "mesh", test.selector))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, keys); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := newRequiredLabels().index(&v1alpha1.PolicySpec{}); err == nil {
		t.Error("an object of another kind was indexed")
	}
}

func TestUnrequiredLabelsAreSkipped(t *testing.T) {
	labels := newRequiredLabels()
	if _, err := labels.index(indexedPolicy("batch", "mesh", metav1.LabelSelector{MatchLabels: map[string]string{"team": "etl"}})); err != nil {
		t.Fatal(err)
	}
	lookups := 0
	for i := range 1000 {
		if labels.mayRequire(fmt.Sprintf("label-%d", i)) {
			lookups++
		}
	}
	// One in 4,096 shares the slot.
	if lookups > 10 {
		t.Errorf("%d of 1000 labels that no policy requires cost a lookup", lookups)
	}
}
