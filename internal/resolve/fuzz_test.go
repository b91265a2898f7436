// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// FuzzResolve makes a pod and policies from bytes. In each view, every regular container is exactly once a main container or a
// sidecar. Sidecars are sorted and have all their settings. The order of the policies does not matter, and the same input gives
// the same output.
func FuzzResolve(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 1, 0, 1, 2, 1, 4, 1, 1, 0, 2, 2, 1})
	f.Add([]byte("a pod with containers, variables and a number of policies"))
	f.Fuzz(func(t *testing.T, data []byte) {
		next := bytesOf(data)
		pod := fuzzedPod(next)
		policies := fuzzedPolicies(t, next)
		options := resolve.Options{IgnoreEnv: next(4) == 1, Image: []string{"", quickExit}[next(2)], QuickExitPaths: quickexit.CoverageOf(fuzzedPaths(next)...)}

		got := resolve.Resolve(pod, policies, options)
		checkView(t, pod, got.Enforced)
		checkPaths(t, policies, options, got.Enforced)
		if got.DryRun != nil {
			checkView(t, pod, *got.DryRun)
		}
		for _, loss := range got.Overrides {
			if loss.By == loss.Policy {
				t.Errorf("%s loses to itself", loss.Policy)
			}
		}
		reversed := slices.Clone(policies)
		slices.Reverse(reversed)
		if diff := cmp.Diff(got, resolve.Resolve(pod, reversed, options)); diff != "" {
			t.Errorf("the order of policies matters (-first +reversed):\n%s", diff)
		}
		if diff := cmp.Diff(got, resolve.Resolve(pod, policies, options)); diff != "" {
			t.Errorf("another result the second time:\n%s", diff)
		}
	})
}

func checkView(t *testing.T, pod *corev1.Pod, view resolve.View) {
	t.Helper()
	var names, told []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	told = append(told, view.Mains...)
	for _, target := range view.Sidecars {
		told = append(told, target.Container)
		if target.Mode == "" || target.ExitCodePolicy == "" || target.Fallback == "" || target.Timeout <= 0 || target.Drain < 0 {
			t.Errorf("a sidecar without all its settings: %+v", target)
		}
	}
	if !slices.IsSortedFunc(view.Sidecars, func(a, b resolve.Sidecar) int { return strings.Compare(a.Container, b.Container) }) {
		t.Errorf("sidecars are not sorted: %+v", view.Sidecars)
	}
	slices.Sort(names)
	slices.Sort(told)
	if diff := cmp.Diff(names, told); diff != "" {
		t.Errorf("containers (-pod +view):\n%s", diff)
	}
}

// checkPaths checks that the source of an image is the only source of its paths.
func checkPaths(t *testing.T, policies []resolve.Policy, options resolve.Options, view resolve.View) {
	t.Helper()
	for _, target := range view.Sidecars {
		want := quickexit.Coverage{}
		switch from := target.Origins.Image; from.Source {
		case resolve.SourceEntry, resolve.SourcePolicy:
			policy := policies[slices.IndexFunc(policies, func(p resolve.Policy) bool { return p.Ref == from.Policy })]
			said := policy.Spec.TerminationSettings
			if from.Source == resolve.SourceEntry {
				said = policy.Spec.Sidecars[slices.IndexFunc(policy.Spec.Sidecars, func(s v1alpha1.Sidecar) bool {
					return resolve.Matches(s.Name, target.Container) && s.Image == target.Image
				})].TerminationSettings
			}
			want = quickexit.CoverageOf(said.QuickExitPaths...)
			if target.Image != said.Image {
				t.Errorf("image %q is said to be of %v, which has %q", target.Image, from, said.Image)
			}
		case resolve.SourceEnvironment:
			want = quickexit.CoverageOf(quickexit.Everything)
		case resolve.SourceOperator:
			want = options.QuickExitPaths
		}
		if !target.QuickExitPaths.Equal(want) {
			t.Errorf("image %q of %v covers %q, want %q", target.Image, target.Origins.Image, target.QuickExitPaths, want)
		}
	}
}

func fuzzedPaths(next func(int) int) []v1alpha1.QuickExitPath {
	return [][]v1alpha1.QuickExitPath{nil, {}, {"default", "/app/server"}, {"*"}, {"nonsense"}}[next(5)]
}

// fuzzedImage gives the settings an image with its paths, or none.
func fuzzedImage(next func(int) int, settings *v1alpha1.TerminationSettings) {
	if next(3) == 1 {
		settings.Image, settings.QuickExitPaths = fmt.Sprintf("image:v%d", next(3)), fuzzedPaths(next)
	}
}

// bytesOf returns a source of numbers below a bound. Each byte gives one number, and zeros follow the last.
func bytesOf(data []byte) func(bound int) int {
	return func(bound int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % bound
	}
}

func fuzzedPod(next func(int) int) *corev1.Pod {
	pod := newPod()
	for i := range next(6) {
		c := corev1.Container{Name: fmt.Sprintf("c%d", i)}
		for range next(4) {
			variable := corev1.EnvVar{
				Name:  []string{terminate, withImage, ignore, "PATH"}[next(4)],
				Value: []string{"true", "FALSE", "", quickExit, "$(IMAGE)", "yes"}[next(6)],
			}
			if next(5) == 1 {
				variable = fromField(variable.Name)
			}
			c.Env = append(c.Env, variable)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	if value := []string{"", "c0", "c1,c2", "c0, c7", "c9"}[next(5)]; value != "" {
		annotated(pod, value)
	}
	if next(3) == 1 {
		pod.Spec.InitContainers = []corev1.Container{{Name: "c7", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	}
	return pod
}

func fuzzedPolicies(t *testing.T, next func(int) int) []resolve.Policy {
	t.Helper()
	var policies []resolve.Policy
	for i := range next(6) {
		var names []string
		for range 1 + next(3) {
			if name := fmt.Sprintf("c%d", next(8)); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		s := spec(sidecars(names...), priority(int32(next(3))), settings(v1alpha1.TerminationSettings{
			Mode:         []v1alpha1.Mode{"", v1alpha1.ModeCRR, v1alpha1.ModeImage}[next(3)],
			DrainSeconds: []*int32{nil, ptr.To[int32](0), ptr.To[int32](86400)}[next(3)],
		}))
		if next(3) == 1 {
			mainContainers(v1alpha1.ContainerName(names[0]))(&s)
		} else if next(4) == 1 {
			s.Sidecars[0].Name = []string{"*1", "c*", "*c*0*"}[next(3)]
		}
		if next(3) == 1 {
			dryRun(&s)
		}
		of := namespaced
		if next(2) == 1 {
			of = cluster
		}
		fuzzedImage(next, &s.TerminationSettings)
		for j := range s.Sidecars {
			fuzzedImage(next, &s.Sidecars[j].TerminationSettings)
		}
		policies = append(policies, of(t, fmt.Sprintf("p%d", i), next(3), s))
	}
	return policies
}
