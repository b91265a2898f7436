// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
)

// permit grants a ServiceAccount what the overlay namespaced grants the operator, in the namespaces, and returns its connection.
func (f *fixture) permit(namespaces ...string) *rest.Config {
	f.Helper()
	account := map[string]any{"kind": "ServiceAccount", "namespace": f.namespace, "name": "operator"}
	for _, rendered := range testenv.Render(f.T, "../config/overlays/namespaced/batch") {
		for _, namespace := range namespaces {
			object := rendered.DeepCopy()
			object.SetNamespace(namespace)
			if object.GetKind() == "RoleBinding" {
				object.Object["subjects"] = []any{account}
			}
			f.create(object)
		}
	}
	limited := rest.CopyConfig(server)
	limited.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + f.namespace + ":operator", Groups: []string{"system:authenticated"},
	}
	return limited
}

// startNamespaced runs an operator that watches the namespaces, with permissions there and nowhere else.
func (f *fixture) startNamespaced(nodeKind string, namespaces ...string) {
	f.Helper()
	parsed, err := settings.Parse([]string{"--watch-namespaces=" + strings.Join(namespaces, ","), "--node-kind=" + nodeKind})
	if err != nil {
		f.Fatal(err)
	}
	options := testOptions()
	options.WatchNamespaces, options.NodeKindRules = parsed.WatchNamespaces, parsed.NodeKindRules
	options.Capabilities = parsed.Capabilities
	mgr := f.newManagerAs(f.permit(namespaces...), func(o *manager.Options) { o.Cache = f.cacheOptions(namespaces...) })
	if err := Setup(f.Context(), mgr, options); err != nil {
		f.Fatal(err)
	}
	f.start(mgr)
}

// run runs a subtest in a namespace of its own.
func (f *fixture) run(name string, test func()) {
	f.Helper()
	outer := f.T
	defer func() { f.T = outer }()
	outer.Run(name, func(t *testing.T) {
		f.T = t
		f.in(f.newNamespace(nil), test)
	})
}

func TestOperatorForNamespacesNeedsNoClusterRole(t *testing.T) {
	for kind, tc := range map[string]struct {
		what  string
		ended func(*corev1.Pod) bool
	}{
		string(plan.NodeReal): {"its phase is Succeeded", succeeded},
		"Unknown":             {"its image is swapped", imageSwapped},
	} {
		t.Run("nodes "+kind, func(t *testing.T) {
			f := newFixture(t)
			second, unwatched := f.newNamespace(nil), f.newNamespace(nil)
			f.startNamespaced(kind, f.namespace, second)
			f.newClusterPolicy(func(spec *v1alpha1.ClusterSidecarTerminationPolicySpec) {
				spec.PodSelector.MatchLabels, spec.NamespaceSelector = map[string]string{"declared": "in-the-cluster"}, nil
			})
			var left []*corev1.Pod
			f.in(unwatched, func() {
				f.newPolicy("mesh")
				left = append(left, f.newPod("unwatched", podtest.MainDone))
			})
			declared := func(p *corev1.Pod) { p.Labels = map[string]string{"declared": "in-the-cluster"} }
			left = append(left, f.newPod("cluster-policy", podtest.MainDone, declared))
			selected := func(spec *v1alpha1.PolicySpec) { spec.PodSelector.MatchLabels = map[string]string{"team": "etl"} }
			etl := func(p *corev1.Pod) { p.Labels = map[string]string{"team": "etl"} }
			policy := f.newPolicy("mesh", selected, func(spec *v1alpha1.PolicySpec) { spec.PrePull = &v1alpha1.PrePull{} })
			ended := []*corev1.Pod{f.newPod("watched", podtest.MainDone, etl)}
			f.in(second, func() {
				f.newPolicy("mesh", selected)
				ended = append(ended, f.newPod("watched", podtest.MainDone, etl))
			})
			for _, pod := range ended {
				f.until(pod, tc.what, tc.ended)
				f.in(pod.Namespace, func() { f.untilEvent(pod) })
			}
			for _, pod := range left {
				f.untouched(pod)
			}
			f.untilStatus(policy, "what cannot be read has a reason", func(s v1alpha1.PolicyStatus) bool {
				says := func(condition string, reason v1alpha1.Reason) bool {
					found := meta.FindStatusCondition(s.Conditions, condition)
					return found != nil && found.Reason == string(reason) && strings.Contains(found.Message, "--watch-namespaces")
				}
				return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) &&
					says(v1alpha1.ConditionPrePulled, v1alpha1.ReasonPrePullUnavailable)
			})
			f.nothingWentWrong()
		})
	}
}
