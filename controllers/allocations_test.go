// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/policyindex"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// knownNode returns a node with a kubelet for every name.
type knownNode struct{ client.Reader }

// Get sets the node's name.
func (knownNode) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetName(key.Name)
	return nil
}

// podCase is the part of a reconcile between the read of the pod and the writes.
type podCase struct {
	reader *clusterReader
	pod    *corev1.Pod
}

func newPodCase(tb testing.TB, policies int) podCase {
	tb.Helper()
	informers := newTestInformers(&v1alpha1.SidecarTerminationPolicy{}, &v1alpha1.ClusterSidecarTerminationPolicy{})
	index, err := policyindex.New(informers...)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range policies {
		policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: fmt.Sprintf("p%05d", i), UID: types.UID(fmt.Sprint(i))}}
		policy.Spec.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprintf("app-%05d", i), "enabled": "true"}
		policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
		if err := informers[0].GetIndexer().Add(policy); err != nil {
			tb.Fatal(err)
		}
	}
	pod, err := cachedPod(podtest.OfJob(podtest.MainDone)).Decode()
	if err != nil {
		tb.Fatal(err)
	}
	return podCase{
		pod: pod,
		reader: &clusterReader{
			Reader: podinput.Reader{
				Objects: knownNode{}, NodeKindRules: plan.DefaultNodeKindRules(),
				Observers: []podinput.Observer{&podphase.Terminator{}, &image.Terminator{}},
			},
			readers: readers{policies: index}, crrServed: func() bool { return true },
			options: Options{Operator: settings.Operator{Decisions: settings.Decisions{
				Resolve:       resolve.Options{ExitCodePolicy: v1alpha1.ExitCodePolicyRespect},
				NodeKindRules: plan.DefaultNodeKindRules(),
				Capabilities:  plan.Capabilities{EnabledModes: podtest.Modes(plan.PodPhaseEnabled)},
			}}},
		},
	}
}

// cachedPod returns what the cache holds of the pod.
func cachedPod(pod *corev1.Pod) *podcache.Pod {
	encoded, err := pod.Marshal()
	cached := &podcache.Pod{}
	if err := errors.Join(err, cached.Unmarshal(encoded)); err != nil {
		panic(err)
	}
	return cached
}

// newTestInformers returns informers that are never started. Tests fill their stores.
func newTestInformers(objects ...client.Object) []toolscache.SharedIndexInformer {
	var informers []toolscache.SharedIndexInformer
	for _, object := range objects {
		informers = append(informers, toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, object, 0,
			toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}))
	}
	return informers
}

// handle returns the decision about the pod.
func (e podCase) handle(ctx context.Context, now time.Time) (plan.Decision, error) {
	resolved, err := e.reader.resolve(ctx, e.pod)
	if err != nil {
		return plan.Decision{}, err
	}
	snapshot, err := e.reader.snapshot(ctx, resolved, resolved.resolution.Enforced)
	if err != nil {
		return plan.Decision{}, err
	}
	return plan.Next(snapshot, now), nil
}

// The test counts allocations, because times differ on a busy machine.
func TestPodEventAllocationsDoNotGrowWithPolicies(t *testing.T) {
	now := podtest.Noon.Add(time.Second)
	allocations := func(policies int) float64 {
		event := newPodCase(t, policies)
		return testing.AllocsPerRun(100, func() {
			decision, err := event.handle(t.Context(), now)
			if err != nil || len(decision.Writes) != 1 || decision.Writes[0].Mode != v1alpha1.ModeCRR {
				t.Fatalf("decided %+v: %v", decision, err)
			}
		})
	}
	few, many := allocations(1), allocations(10_000)
	// The race detector drops pooled memory at random. A scan of every policy would cost thousands of allocations.
	if many > few+few/10 {
		t.Errorf("a pod event takes %.0f allocations with 10,000 policies, %.0f with one", many, few)
	}
}
