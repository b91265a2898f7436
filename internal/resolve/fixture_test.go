// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// withoutOrigins leaves origins out of a comparison: TestMerging compares them.
var withoutOrigins = cmpopts.IgnoreFields(resolve.Sidecar{}, "Origins")

var created = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// newPod returns a pod of namespace batch with containers of these names.
func newPod(names ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job", Labels: map[string]string{"team": "etl"}}}
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
	}
	return pod
}

// withEnv gives the last container of the pod environment variables: name, value, name, value.
func withEnv(pod *corev1.Pod, variables ...string) *corev1.Pod {
	last := &pod.Spec.Containers[len(pod.Spec.Containers)-1]
	for i := 0; i < len(variables); i += 2 {
		last.Env = append(last.Env, corev1.EnvVar{Name: variables[i], Value: variables[i+1]})
	}
	return pod
}

func fromField(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
}

func optedOut(pod *corev1.Pod) *corev1.Pod {
	pod.Labels[v1alpha1.LabelIgnore] = "true"
	return pod
}

// annotated gives the pod a list of sidecars.
func annotated(pod *corev1.Pod, list string) *corev1.Pod {
	pod.Annotations = map[string]string{v1alpha1.AnnotationSidecars: list, "example.com/other": "main"}
	return pod
}

// native gives the pod an init container and a native sidecar, with the variables.
func native(pod *corev1.Pod, variables ...corev1.EnvVar) *corev1.Pod {
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "setup", Env: variables}, {Name: "native", Env: variables, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
	}
	return pod
}

// spec returns a policy spec that names the container proxy, and applies the changes.
func spec(changes ...func(*v1alpha1.PolicySpec)) v1alpha1.PolicySpec {
	s := v1alpha1.PolicySpec{Sidecars: []v1alpha1.Sidecar{{Name: "proxy"}}}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func settings(t v1alpha1.TerminationSettings) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.TerminationSettings = t }
}

func entrySettings(t v1alpha1.TerminationSettings) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.Sidecars[0].TerminationSettings = t }
}

func sidecars(names ...string) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) {
		s.Sidecars = nil
		for _, name := range names {
			s.Sidecars = append(s.Sidecars, v1alpha1.Sidecar{Name: name})
		}
	}
}

// reversed puts the entries of sidecars into the opposite order.
func reversed(s *v1alpha1.PolicySpec) { slices.Reverse(s.Sidecars) }

func mainContainers(names ...v1alpha1.ContainerName) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.Sidecars, s.MainContainers = nil, names }
}

func priority(p int32) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.Priority = p }
}

func dryRun(s *v1alpha1.PolicySpec) { s.Enforcement = v1alpha1.EnforcementDryRun }

// namespaced returns a policy of namespace batch with this age in hours.
func namespaced(tb testing.TB, name string, age int, s v1alpha1.PolicySpec) resolve.Policy {
	tb.Helper()
	return parsed(tb, &v1alpha1.SidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name}, Spec: v1alpha1.SidecarTerminationPolicySpec{PolicySpec: s},
	}, age)
}

func cluster(tb testing.TB, name string, age int, s v1alpha1.PolicySpec) resolve.Policy {
	tb.Helper()
	return parsed(tb, &v1alpha1.ClusterSidecarTerminationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSidecarTerminationPolicySpec{PolicySpec: s},
	}, age)
}

func parsed(tb testing.TB, policy v1alpha1.Policy, age int) resolve.Policy {
	tb.Helper()
	policy.SetCreationTimestamp(metav1.NewTime(created.Add(-time.Duration(age) * time.Hour)))
	parsed, err := resolve.Parse(policy)
	if err != nil {
		tb.Fatal(err)
	}
	return parsed
}

func refOf(name string) resolve.PolicyRef {
	return resolve.PolicyRef{Kind: resolve.KindNamespaced, Namespace: "batch", Name: name}
}

func clusterRefOf(name string) resolve.PolicyRef {
	return resolve.PolicyRef{Kind: resolve.KindCluster, Name: name}
}
