// SPDX-License-Identifier: Apache-2.0

package diff

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

func TestNamespacesOfPolicies(t *testing.T) {
	namespaced := func(namespace string) client.Object {
		policy := &v1alpha1.SidecarTerminationPolicy{}
		policy.Namespace = namespace
		return policy
	}
	cluster := &v1alpha1.ClusterSidecarTerminationPolicy{}
	for name, tc := range map[string]struct {
		policies []client.Object
		want     []string
	}{
		"one namespace":    {[]client.Object{namespaced("b"), namespaced("b")}, []string{"b"}},
		"two namespaces":   {[]client.Object{namespaced("b"), namespaced("a")}, []string{"a", "b"}},
		"a cluster policy": {[]client.Object{namespaced("b"), cluster}, []string{""}},
	} {
		if got := namespacesOf(tc.policies); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	c := comparison{result: newResult()}
	for i := range maxPods + 3 {
		c.result.add(podDiff{Name: fmt.Sprint(i)})
	}
	c.noteOmitted()
	if len(c.result.Pods) != maxPods || c.result.Summary.ChangedPods != maxPods+3 {
		t.Errorf("%d pods are shown, %d counted", len(c.result.Pods), c.result.Summary.ChangedPods)
	}
	if want := []string{"3 more pods with another decision are not shown"}; !slices.Equal(c.result.Notes, want) {
		t.Errorf("notes %q, want %q", c.result.Notes, want)
	}
}
