// SPDX-License-Identifier: Apache-2.0

//go:build integration

package config_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// creation is a pod that is created repeatedly, as a dry run.
type creation struct {
	name string
	pod  *corev1.Pod
	// want is the annotation of the created pod.
	want string
	// policies is the number of policies that the API server evaluates.
	policies int
	// none is the creation of the same pod in a namespace that is opted out, and first that with one policy.
	none, first *creation
	took        []time.Duration
}

// BenchmarkNativeCreate measures what conversion adds to the creation of a pod. The cases of a group exist at once, and each round
// creates the pod of each in random order, so that other load on the machine affects all alike. One policy selects the pod and
// converts two containers. The others select other pods, except in case Selecting10.
func BenchmarkNativeCreate(b *testing.B) {
	installNative(b)
	c, _ := newClient(b)
	// As many elsewhere as in the namespace with the most.
	benchPolicies(b, c, benchNamespace(b, c, nil), 1000, asking)
	// The garbage of 1,000 evaluations slows down what follows, so they are a group of their own.
	var first *creation
	for _, group := range []struct {
		name     string
		policies []int
	}{{"Namespaced", []int{1, 10, 100}}, {"Namespaced1000", []int{1000}}} {
		b.Run(group.name, func(b *testing.B) {
			none, always := baselines(b, c)
			all := []*creation{none, always, none.in(benchNamespace(b, c, nil), "NoPolicies", 0)}
			environment := none.in(benchNamespace(b, c, map[string]string{v1alpha1.LabelNativeEnvironment: "true"}), "Environment", 1)
			environment.want = "logs=Environment,proxy=Environment"
			all = append(all, environment)
			for _, n := range group.policies {
				space := benchNamespace(b, c, nil)
				benchPolicies(b, c, space, n, notAsking)
				all = append(all, none.in(space, fmt.Sprintf("WithoutConversion%d", n), 0))

				space = benchNamespace(b, c, nil)
				benchPolicies(b, c, space, n, asking)
				preferred := none.in(space, fmt.Sprintf("Preferred%d", n), n)
				preferred.want, preferred.first = "logs=SidecarTerminationPolicy/p0,proxy=SidecarTerminationPolicy/p0", first
				if first == nil {
					first = preferred
				}
				all = append(all, preferred, always.in(space, fmt.Sprintf("PreferredAlways%d", n), n))
				if n != 10 {
					continue
				}
				space = benchNamespace(b, c, nil)
				benchPolicies(b, c, space, n, func(int) v1alpha1.PolicySpec { return asking(0) })
				selecting := none.in(space, fmt.Sprintf("Selecting%d", n), n)
				selecting.want, selecting.first = preferred.want, first
				all = append(all, selecting)
			}
			measure(b, c, all)
		})
	}
	// Cluster policies apply in every namespace, so each number of them is a group.
	first = nil
	for _, n := range []int{1, 10, 100} {
		b.Run("Cluster"+strconv.Itoa(n), func(b *testing.B) {
			none, always := baselines(b, c)
			space := benchNamespace(b, c, nil)
			for i := range n {
				create(b, c, &v1alpha1.ClusterSidecarTerminationPolicy{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)},
					Spec:       v1alpha1.ClusterSidecarTerminationPolicySpec{PolicySpec: asking(i)},
				})
			}
			preferred := none.in(space, fmt.Sprintf("Preferred%d", n), n)
			preferred.want, preferred.first = "logs=ClusterSidecarTerminationPolicy/p0,proxy=ClusterSidecarTerminationPolicy/p0", first
			if first == nil {
				first = preferred
			}
			measure(b, c, []*creation{none, always, preferred, always.in(space, fmt.Sprintf("PreferredAlways%d", n), n)})
		})
	}
}

// benchPolicies creates policies in the namespace.
func benchPolicies(b *testing.B, c client.Client, space string, n int, spec func(i int) v1alpha1.PolicySpec) {
	b.Helper()
	for i := range n {
		policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: fmt.Sprintf("p%d", i)}}
		policy.Spec.PolicySpec = spec(i)
		create(b, c, policy)
	}
}

// baselines returns the creations of a Job's pod and of a Deployment's pod in a namespace that is opted out.
func baselines(b *testing.B, c client.Client) (none, always *creation) {
	b.Helper()
	space := benchNamespace(b, c, map[string]string{v1alpha1.LabelNativeConversion: "false"})
	none = &creation{name: "None", pod: benchPod(space, corev1.RestartPolicyNever)}
	always = &creation{name: "NoneAlways", pod: benchPod(space, corev1.RestartPolicyAlways)}
	return none, always
}

// in returns the creation of the same pod in another namespace.
func (n *creation) in(space, name string, policies int) *creation {
	pod := n.pod.DeepCopy()
	pod.Namespace = space
	return &creation{name: name, pod: pod, policies: policies, none: n}
}

func benchNamespace(b *testing.B, c client.Client, labels map[string]string) string {
	b.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-", Labels: labels}}
	create(b, c, space)
	return space.Name
}

// asking returns the spec of a policy that asks for conversion. That with index 0 selects the pod of benchPod.
func asking(i int) v1alpha1.PolicySpec {
	return v1alpha1.PolicySpec{
		PodSelector:         metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("app-%d", i)}},
		Sidecars:            []v1alpha1.Sidecar{{Name: "proxy"}, {Name: "logs"}},
		TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: v1alpha1.NativeConversionPreferred},
	}
}

// notAsking returns the same spec without conversion.
func notAsking(i int) v1alpha1.PolicySpec {
	spec := asking(i)
	spec.NativeConversion = v1alpha1.NativeConversionNone
	return spec
}

// benchPod returns a pod with a main container and two sidecars that environment variables declare as well.
func benchPod(space string, restartPolicy corev1.RestartPolicy) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: space, GenerateName: "app-0-",
		Labels: map[string]string{"app": "app-0", "app.kubernetes.io/part-of": "bench", "batch.kubernetes.io/job-name": "app-0"},
	}}
	pod.Spec.RestartPolicy = restartPolicy
	pod.Spec.Volumes = []corev1.Volume{{Name: "shared"}}
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	for _, name := range []string{"main", "logs", "proxy"} {
		container := corev1.Container{
			Name: name, Image: "registry.example/" + name + ":1", Args: []string{"--config=/etc/" + name},
			Env:          []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "REGION", Value: "north"}},
			Resources:    corev1.ResourceRequirements{Requests: resources},
			VolumeMounts: []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}},
		}
		if name != "main" {
			container.Env = append(container.Env, corev1.EnvVar{Name: v1alpha1.EnvTerminate, Value: "true"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

// measure creates the pods in turn and reports each case: p50 and p99, p50 as a ratio to the baseline and the difference, and how
// much each policy adds, of several each one after the first.
func measure(b *testing.B, c client.Client, all []*creation) {
	b.Helper()
	awaitNative(b)
	for _, one := range all {
		one.measure(b, c)
		one.took = nil
	}
	random, round := rand.New(rand.NewPCG(1, 2)), 0
	for b.Loop() {
		for _, i := range random.Perm(len(all)) {
			// The slow ones less often.
			if round%(1+all[i].policies/100) == 0 {
				all[i].measure(b, c)
			}
		}
		round++
	}
	for _, one := range all {
		b.Run(one.name, one.report)
	}
}

func (n *creation) measure(b *testing.B, c client.Client) {
	b.Helper()
	pod := n.pod.DeepCopy()
	start := time.Now()
	if err := c.Create(b.Context(), pod, client.DryRunAll); err != nil {
		b.Fatalf("%s: %v", n.name, err)
	}
	n.took = append(n.took, time.Since(start))
	if got := pod.Annotations[v1alpha1.AnnotationNativeSidecars]; got != n.want {
		b.Fatalf("%s: annotation is %q, want %q", n.name, got, n.want)
	}
}

func (n *creation) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(len(n.took)), "pods")
	b.ReportMetric(n.percentile(50), "p50-ms")
	b.ReportMetric(n.percentile(99), "p99-ms")
	if n.none == nil {
		return
	}
	b.ReportMetric(n.percentile(50)/n.none.percentile(50), "p50-ratio")
	b.ReportMetric(n.percentile(99)/n.none.percentile(99), "p99-ratio")
	b.ReportMetric(n.added(), "added-ms")
	switch {
	case n.first != nil:
		b.ReportMetric((n.added()-n.first.added())/float64(n.policies-n.first.policies), "each-ms")
	case n.policies > 1:
		b.ReportMetric(n.added()/float64(n.policies), "each-ms")
	}
}

// added returns the difference of the medians in milliseconds.
func (n *creation) added() float64 { return n.percentile(50) - n.none.percentile(50) }

// percentile returns a percentile in milliseconds.
func (n *creation) percentile(p int) float64 {
	sorted := slices.Sorted(slices.Values(n.took))
	return float64(sorted[(len(sorted)*p+99)/100-1].Microseconds()) / 1000
}
