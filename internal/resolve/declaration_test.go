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
	"github.com/sidecar-termination/operator/internal/resolve"
)

const mainsKey = "example.com/mains"

// mainsFrom makes a policy read main containers from the annotation mainsKey, and lists these itself.
func mainsFrom(names ...v1alpha1.ContainerName) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) {
		mainContainers(names...)(s)
		s.MainContainersFrom = &v1alpha1.MainContainersFrom{PodAnnotation: mainsKey}
	}
}

// listing gives the pod the annotation mainsKey.
func listing(pod *corev1.Pod, value string) *corev1.Pod {
	pod.Annotations = map[string]string{mainsKey: value, "example.com/other": "proxy"}
	return pod
}

func TestMainContainersFrom(t *testing.T) {
	const (
		missing = "the pod has no annotation example.com/mains, or an empty one"
		unknown = "annotation example.com/mains lists %q, which is no container of the pod"
	)
	long := strings.Repeat("x", 63)
	names := make([]string, resolve.MaxListedContainers)
	for i := range names {
		names[i] = fmt.Sprintf("%s%02d", long[:61], i)
	}
	tests := map[string]struct {
		pod     *corev1.Pod
		own     []v1alpha1.ContainerName
		mains   []string // all containers if the policy leaves the pod alone
		reason  v1alpha1.Reason
		message string
	}{
		"one name":                       {pod: listing(newPod("main", "wait", "proxy"), "main"), mains: []string{"main"}},
		"two names":                      {pod: listing(newPod("main", "wait", "proxy"), "wait,main"), mains: []string{"main", "wait"}},
		"spaces around names":            {pod: listing(newPod("main", "wait", "proxy"), " main ,\twait\n"), mains: []string{"main", "wait"}},
		"a name that repeats":            {pod: listing(newPod("main", "wait", "proxy"), "main,main"), mains: []string{"main"}},
		"names of the policy as well":    {pod: listing(newPod("main", "wait", "proxy"), "main"), own: []v1alpha1.ContainerName{"wait", "gone"}, mains: []string{"main", "wait"}},
		"every container":                {pod: listing(newPod("main", "wait"), "main,wait"), mains: []string{"main", "wait"}},
		"32 names of 63 characters":      {pod: listing(newPod(append(names, "proxy")...), strings.Join(names, ", ")), mains: names},
		"as many bytes as possible":      {pod: listing(newPod("main", "proxy"), "main"+strings.Repeat(" ", resolve.MaxListBytes-4)), mains: []string{"main"}},
		"a native sidecar in the list":   {pod: native(listing(newPod("main", "proxy"), "main,native")), mains: []string{"main"}},
		"no annotation":                  {pod: newPod("main", "proxy"), mains: []string{"main", "proxy"}, reason: v1alpha1.ReasonMainContainersNotListed, message: missing},
		"no annotation, but own names":   {pod: newPod("main", "proxy"), own: []v1alpha1.ContainerName{"main"}, mains: []string{"main", "proxy"}, reason: v1alpha1.ReasonMainContainersNotListed, message: missing},
		"an empty annotation":            {pod: listing(newPod("main", "proxy"), ""), mains: []string{"main", "proxy"}, reason: v1alpha1.ReasonMainContainersNotListed, message: missing},
		"an annotation of spaces":        {pod: listing(newPod("main", "proxy"), " \n"), mains: []string{"main", "proxy"}, reason: v1alpha1.ReasonMainContainersNotListed, message: missing},
		"an unknown name":                {pod: listing(newPod("main", "proxy"), "main,wait"), mains: []string{"main", "proxy"}, reason: v1alpha1.ReasonInvalidMainContainers, message: fmt.Sprintf(unknown, "wait")},
		"an empty name":                  {pod: listing(newPod("main", "proxy"), "main,"), mains: []string{"main", "proxy"}, reason: v1alpha1.ReasonInvalidMainContainers, message: fmt.Sprintf(unknown, "")},
		"names without a comma":          {pod: listing(newPod("main", "wait"), "main wait"), mains: []string{"main", "wait"}, reason: v1alpha1.ReasonInvalidMainContainers, message: fmt.Sprintf(unknown, "main wait")},
		"the name of an init container":  {pod: native(listing(newPod("main", "proxy"), "main,setup")), mains: []string{"main", "proxy"}, reason: v1alpha1.ReasonInvalidMainContainers, message: fmt.Sprintf(unknown, "setup")},
		"a long name is cut in messages": {pod: listing(newPod("main", "proxy"), strings.Repeat("x", 2000)), mains: []string{"main", "proxy"}, reason: v1alpha1.ReasonInvalidMainContainers, message: fmt.Sprintf(unknown, strings.Repeat("x", 80))},
		"33 names": {
			pod: listing(newPod("main", "proxy"), strings.Repeat("main,", 32)+"main"), mains: []string{"main", "proxy"},
			reason: v1alpha1.ReasonInvalidMainContainers, message: "annotation example.com/mains lists more than 32 containers",
		},
		"one byte too many": {
			pod: listing(newPod("main", "proxy"), "main"+strings.Repeat(" ", resolve.MaxListBytes-3)), mains: []string{"main", "proxy"},
			reason: v1alpha1.ReasonInvalidMainContainers, message: "annotation example.com/mains has more than 2560 bytes",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			policy := namespaced(t, "argo", 1, spec(mainsFrom(test.own...)))
			got := resolve.Resolve(test.pod, []resolve.Policy{policy}, resolve.Options{})
			if diff := cmp.Diff(test.mains, got.Enforced.Mains); diff != "" {
				t.Errorf("main containers (-want +got):\n%s", diff)
			}
			if want := len(test.mains) < len(test.pod.Spec.Containers); policy.NamesAny(test.pod) != want {
				t.Errorf("NamesAny() = %t", !want)
			}
			for _, container := range test.pod.Spec.Containers {
				main := slices.Contains(test.mains, container.Name)
				if policy.Names(test.pod, container.Name) == main || policy.NamesMain(test.pod, container.Name) != (main && test.reason == "") {
					t.Errorf("%s is a main container: want %t", container.Name, main)
				}
			}
			reason, message := policy.LeavesAlone(test.pod)
			if diff := cmp.Diff([]string{string(test.reason), test.message}, []string{string(reason), message}); diff != "" {
				t.Errorf("LeavesAlone() (-want +got):\n%s", diff)
			}
			var warnings []resolve.Warning
			if test.reason == v1alpha1.ReasonInvalidMainContainers {
				warnings = []resolve.Warning{{
					Reason: test.reason, Message: "SidecarTerminationPolicy/argo leaves the pod alone: " + test.message, Policy: ptr.To(refOf("argo")),
				}}
			}
			if diff := cmp.Diff(warnings, got.Warnings); diff != "" {
				t.Errorf("Warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// native gives the pod an init container and a native sidecar, with the variables.
func native(pod *corev1.Pod, variables ...corev1.EnvVar) *corev1.Pod {
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "setup", Env: variables}, {Name: "native", Env: variables, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
	}
	return pod
}

// A policy that leaves a pod alone does not keep other policies from applying to it.
func TestMainContainersFromAmongPolicies(t *testing.T) {
	argo, mesh := refOf("argo"), refOf("mesh")
	target := func(container string, by resolve.PolicyRef) resolve.Sidecar {
		return resolve.Sidecar{
			Container: container, Mode: v1alpha1.ModeAuto, ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: v1alpha1.FallbackEnabled,
			Timeout: resolve.DefaultTerminationTimeout, Policy: &by,
		}
	}
	warning := []resolve.Warning{{
		Reason: v1alpha1.ReasonInvalidMainContainers, Policy: &argo,
		Message: `SidecarTerminationPolicy/argo leaves the pod alone: annotation example.com/mains lists "mian", which is no container of the pod`,
	}}
	for name, test := range map[string]struct {
		value string
		argo  v1alpha1.PolicySpec
		want  resolve.Resolution
	}{
		"a list takes precedence": {"main", spec(mainsFrom(), priority(1)), resolve.Resolution{
			Enforced:  resolve.View{Mains: []string{"main"}, Sidecars: []resolve.Sidecar{target("logs", argo), target("proxy", argo)}},
			Overrides: []resolve.Override{{Container: "proxy", Policy: mesh, By: argo}},
		}},
		"a listed sidecar of another policy remains one": {"main,proxy", spec(mainsFrom(), priority(1)), resolve.Resolution{
			Enforced: resolve.View{Mains: []string{"main"}, Sidecars: []resolve.Sidecar{target("logs", argo), target("proxy", mesh)}},
		}},
		"no list": {"", spec(mainsFrom(), priority(1)), resolve.Resolution{
			Enforced: resolve.View{Mains: []string{"main", "logs"}, Sidecars: []resolve.Sidecar{target("proxy", mesh)}},
		}},
		"an invalid list": {"mian", spec(mainsFrom(), priority(1)), resolve.Resolution{
			Enforced: resolve.View{Mains: []string{"main", "logs"}, Sidecars: []resolve.Sidecar{target("proxy", mesh)}}, Warnings: warning,
		}},
		"DryRun": {"main", spec(mainsFrom(), dryRun), resolve.Resolution{
			Enforced:  resolve.View{Mains: []string{"main", "logs"}, Sidecars: []resolve.Sidecar{target("proxy", mesh)}},
			DryRun:    &resolve.View{Mains: []string{"main"}, Sidecars: []resolve.Sidecar{target("logs", argo), target("proxy", mesh)}},
			Overrides: []resolve.Override{{Container: "proxy", Policy: argo, By: mesh}},
		}},
		"DryRun with an invalid list": {"mian", spec(mainsFrom(), dryRun), resolve.Resolution{
			Enforced: resolve.View{Mains: []string{"main", "logs"}, Sidecars: []resolve.Sidecar{target("proxy", mesh)}}, Warnings: warning,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			policies := []resolve.Policy{namespaced(t, "argo", 1, test.argo), namespaced(t, "mesh", 2, spec())}
			got := resolve.Resolve(listing(newPod("main", "logs", "proxy"), test.value), policies, resolve.Options{})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Resolve() (-want +got):\n%s", diff)
			}
		})
	}
}

// The number of policies must not increase the number of warnings that the operator emits and remembers.
func TestInvalidListHasOneWarning(t *testing.T) {
	var policies []resolve.Policy
	for i := range 1000 {
		policies = append(policies, namespaced(t, fmt.Sprintf("argo-%03d", i), 1, spec(mainsFrom())))
	}
	want := []resolve.Warning{{
		Reason: v1alpha1.ReasonInvalidMainContainers, Policy: ptr.To(refOf("argo-000")),
		Message: `SidecarTerminationPolicy/argo-000 and 999 more policies leave the pod alone: annotation example.com/mains lists "mian", which is no container of the pod`,
	}}
	got := resolve.Resolve(listing(newPod("main", "proxy"), "mian"), policies, resolve.Options{}).Warnings
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Warnings (-want +got):\n%s", diff)
	}
}

// FuzzListedMains reads any annotation of a pod. A valid list has only containers of the pod, within the limits, and no other
// list has an effect.
func FuzzListedMains(f *testing.F) {
	for _, value := range []string{"", "main", "main,wait", " main , wait", "main,", ",", "mian", "main\x00", "\u00a0main\u2003,wait", strings.Repeat("main,", 40)} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		pod := listing(newPod("main", "wait", "proxy"), value)
		policy := namespaced(t, "argo", 1, spec(mainsFrom()))
		listed, valid := policy.ListedMains(pod)
		if reason, message := policy.LeavesAlone(pod); valid == (reason != "") || valid == (message != "") || len(message) > 1024 {
			t.Errorf("valid %t, reason %q, message %q", valid, reason, message)
		}
		if valid != (len(listed) > 0) || len(listed) > resolve.MaxListedContainers || valid && len(value) > resolve.MaxListBytes {
			t.Errorf("valid %t with %d names in %d bytes", valid, len(listed), len(value))
		}
		for _, name := range listed {
			if !slices.Contains([]string{"main", "wait", "proxy"}, name) || !strings.Contains(value, name) {
				t.Errorf("lists %q", name)
			}
		}
		checkView(t, pod, resolve.Resolve(pod, []resolve.Policy{policy}, resolve.Options{}).Enforced)
	})
}
