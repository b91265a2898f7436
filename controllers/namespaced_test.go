// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podcache"
	"github.com/sidecar-termination/operator/internal/settings"
)

// permit grants a ServiceAccount what the overlay namespaced grants the operator, in the namespaces, and returns its connection.
func (f *fixture) permit(namespaces ...string) *rest.Config {
	f.Helper()
	built, err := testenv.Kustomizer().Run(filesys.MakeFsOnDisk(), "../config/overlays/namespaced/batch")
	if err != nil {
		f.Fatal(err)
	}
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: f.namespace, Name: "operator"}
	for _, resource := range built.Resources() {
		object, err := resource.Map()
		if err != nil {
			f.Fatal(err)
		}
		for _, namespace := range namespaces {
			switch resource.GetKind() {
			case "Role":
				f.create(inNamespace(f, object, &rbacv1.Role{}, namespace))
			case "RoleBinding":
				binding := &rbacv1.RoleBinding{}
				inNamespace(f, object, binding, namespace)
				binding.Subjects = []rbacv1.Subject{account}
				f.create(binding)
			default:
				f.Fatalf("%s %s is not in a namespace", resource.GetKind(), resource.GetName())
			}
		}
	}
	limited := rest.CopyConfig(server)
	limited.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + account.Namespace + ":" + account.Name, Groups: []string{"system:authenticated"},
	}
	return limited
}

// inNamespace fills the object in, for another namespace.
func inNamespace(f *fixture, from map[string]any, into client.Object, namespace string) client.Object {
	f.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, into); err != nil {
		f.Fatal(err)
	}
	into.SetNamespace(namespace)
	return into
}

// newNamespace creates a further namespace.
func (f *fixture) newNamespace() string {
	f.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}
	f.create(namespace)
	f.Cleanup(func() { f.in(namespace.Name, f.cleanUp) })
	return namespace.Name
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
	mgr := f.newManagerAs(f.permit(namespaces...), func(o *manager.Options) { o.Cache = podcache.ManagerOptions(scheme, namespaces...) })
	if err := Setup(f.Context(), mgr, options); err != nil {
		f.Fatal(err)
	}
	f.start(mgr)
}

// in runs the function with the fixture in another namespace.
func (f *fixture) in(namespace string, do func()) {
	own := f.namespace
	f.namespace = namespace
	defer func() { f.namespace = own }()
	do()
}

// run runs a subtest in a namespace of its own.
func (f *fixture) run(name string, test func()) {
	f.Helper()
	outer := f.T
	defer func() { f.T = outer }()
	outer.Run(name, func(t *testing.T) {
		f.T = t
		f.in(f.newNamespace(), test)
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
			second, unwatched := f.newNamespace(), f.newNamespace()
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
