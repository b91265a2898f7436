// SPDX-License-Identifier: Apache-2.0

package native_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/resolve"
)

const preferred = v1alpha1.NativeConversionPreferred

// newPod returns a pod with a main container, main, and the sidecars proxy and logs.
func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job-1"},
		Spec: corev1.PodSpec{
			RestartPolicy:  corev1.RestartPolicyNever,
			InitContainers: []corev1.Container{{Name: "setup"}},
			Containers:     []corev1.Container{{Name: "proxy"}, {Name: "main"}, {Name: "logs"}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// mesh is a policy that asks for the conversion of proxy.
func mesh(change ...func(*v1alpha1.PolicySpec)) *v1alpha1.SidecarTerminationPolicy {
	return policy("mesh", append([]func(*v1alpha1.PolicySpec){func(s *v1alpha1.PolicySpec) {
		s.Sidecars, s.NativeConversion = sidecars("proxy"), preferred
	}}, change...)...)
}

func policy(name string, change ...func(*v1alpha1.PolicySpec)) *v1alpha1.SidecarTerminationPolicy {
	p := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name}}
	for _, c := range change {
		c(&p.Spec.PolicySpec)
	}
	return p
}

func sidecars(names ...string) []v1alpha1.Sidecar {
	var all []v1alpha1.Sidecar
	for _, name := range names {
		all = append(all, v1alpha1.Sidecar{Name: name})
	}
	return all
}

func parsed(t *testing.T, policies ...*v1alpha1.SidecarTerminationPolicy) []resolve.Policy {
	t.Helper()
	var all []resolve.Policy
	for _, p := range policies {
		one, err := resolve.FromNamespaced(p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

func env(container int, name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[container].Env = append(p.Spec.Containers[container].Env, corev1.EnvVar{Name: name, Value: value})
	}
}

const mainsKey = "example.com/mains"

// listing makes a policy read main containers from the annotation mainsKey, and lists these itself.
func listing(names ...v1alpha1.ContainerName) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) {
		s.Sidecars, s.MainContainers, s.MainContainersFrom = nil, names, &v1alpha1.MainContainersFrom{PodAnnotation: mainsKey}
	}
}

func lists(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{mainsKey: value} }
}

func TestDecide(t *testing.T) {
	type all = []*v1alpha1.SidecarTerminationPolicy
	drain := func(s *v1alpha1.PolicySpec) { s.DrainSeconds = ptr.To[int32](5) }
	respect := func(s *v1alpha1.PolicySpec) { s.ExitCodes = v1alpha1.ExitCodesRespect }
	for name, tc := range map[string]struct {
		pod             *corev1.Pod
		namespaceLabels map[string]string
		policies        all
		options         native.Options
		// want are the conversions, and the excluded containers with reasons; reason applies to the whole decision.
		want     []native.Conversion
		excluded map[string]v1alpha1.Reason
		reason   v1alpha1.Reason
	}{
		"no policy": {reason: v1alpha1.ReasonConversionNotRequested},
		"policy without the field": {policies: all{mesh(func(s *v1alpha1.PolicySpec) { s.NativeConversion = "" })},
			reason: v1alpha1.ReasonConversionNotRequested},
		"unknown value": {policies: all{mesh(func(s *v1alpha1.PolicySpec) { s.NativeConversion = "Always" })},
			reason: v1alpha1.ReasonConversionNotRequested},
		"policy for another container": {policies: all{policy("mesh", func(s *v1alpha1.PolicySpec) {
			s.Sidecars, s.NativeConversion = sidecars("envoy"), preferred
		})}, reason: v1alpha1.ReasonConversionNotRequested},
		"one sidecar": {policies: all{mesh()},
			want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"only the entry asks": {policies: all{mesh(func(s *v1alpha1.PolicySpec) {
			s.NativeConversion, s.Sidecars = "", sidecars("logs", "proxy")
			s.Sidecars[0].NativeConversion = preferred
		})}, want: []native.Conversion{{Container: "logs", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"only the entry does not ask": {policies: all{mesh(func(s *v1alpha1.PolicySpec) {
			s.Sidecars = sidecars("logs", "proxy")
			s.Sidecars[0].NativeConversion = v1alpha1.NativeConversionNone
		})}, want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"main containers": {policies: all{mesh(func(s *v1alpha1.PolicySpec) {
			s.Sidecars, s.MainContainers = nil, []v1alpha1.ContainerName{"main"}
		})}, want: []native.Conversion{
			{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}, {Container: "logs", By: "SidecarTerminationPolicy/mesh"},
		}, reason: v1alpha1.ReasonConvertedToNative},
		"main containers in an annotation": {policies: all{mesh(listing())}, pod: newPod(lists("main")), want: []native.Conversion{
			{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}, {Container: "logs", By: "SidecarTerminationPolicy/mesh"},
		}, reason: v1alpha1.ReasonConvertedToNative},
		"main containers in both places": {policies: all{mesh(listing("logs"))}, pod: newPod(lists(" main ")),
			want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"no list of main containers":      {policies: all{mesh(listing("main"))}, reason: v1alpha1.ReasonConversionNotRequested},
		"invalid list of main containers": {policies: all{mesh(listing())}, pod: newPod(lists("main,mian")), reason: v1alpha1.ReasonConversionNotRequested},
		"invalid list and another policy": {policies: all{mesh(), policy("argo", listing(), func(s *v1alpha1.PolicySpec) { s.NativeConversion = preferred })},
			pod:  newPod(lists("mian")),
			want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"two policies, first by name is recorded": {policies: all{mesh(), policy("aaa", func(s *v1alpha1.PolicySpec) {
			s.Sidecars, s.NativeConversion = sidecars("proxy", "logs"), preferred
		})}, want: []native.Conversion{
			{Container: "proxy", By: "SidecarTerminationPolicy/aaa"}, {Container: "logs", By: "SidecarTerminationPolicy/aaa"},
		}, reason: v1alpha1.ReasonConvertedToNative},
		"another policy excludes it": {policies: all{mesh(), policy("aaa", func(s *v1alpha1.PolicySpec) {
			s.Sidecars, s.NativeConversion, s.DrainSeconds = sidecars("proxy"), preferred, ptr.To[int32](5)
		})}, want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"policies leave no main container": {policies: all{mesh(), policy("other", func(s *v1alpha1.PolicySpec) {
			s.Sidecars, s.NativeConversion = sidecars("main", "logs"), preferred
		})}, reason: v1alpha1.ReasonNoMainContainer},
		"excluded sidecar is no main container": {pod: newPod(func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:2] }),
			policies: all{mesh(func(s *v1alpha1.PolicySpec) {
				s.Sidecars = sidecars("proxy", "main")
				s.Sidecars[1].ExitCodes = v1alpha1.ExitCodesRespect
			})}, reason: v1alpha1.ReasonNoMainContainer},
		"DryRun": {policies: all{mesh(func(s *v1alpha1.PolicySpec) { s.Enforcement = v1alpha1.EnforcementDryRun })},
			reason: v1alpha1.ReasonConversionNotRequested},
		"DryRun as enforced": {policies: all{mesh(func(s *v1alpha1.PolicySpec) { s.Enforcement = v1alpha1.EnforcementDryRun })},
			options: native.Options{AsEnforced: true},
			want:    []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"drain of the sidecar": {policies: all{mesh(func(s *v1alpha1.PolicySpec) { s.Sidecars[0].DrainSeconds = ptr.To[int32](5) })},
			excluded: map[string]v1alpha1.Reason{"proxy": v1alpha1.ReasonDrainConfigured}, reason: v1alpha1.ReasonDrainConfigured},
		"drain of the policy below the sidecar's zero": {policies: all{mesh(drain, func(s *v1alpha1.PolicySpec) {
			s.Sidecars[0].DrainSeconds = ptr.To[int32](0)
		})}, want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"exit code respected by the policy": {policies: all{mesh(respect)},
			excluded: map[string]v1alpha1.Reason{"proxy": v1alpha1.ReasonExitCodesRespected}, reason: v1alpha1.ReasonExitCodesRespected},
		"exit code respected by the variable": {policies: all{mesh()}, pod: newPod(env(0, v1alpha1.EnvIgnoreExitCode, "False")),
			excluded: map[string]v1alpha1.Reason{"proxy": v1alpha1.ReasonExitCodesRespected}, reason: v1alpha1.ReasonExitCodesRespected},
		"variable not read": {policies: all{mesh()}, pod: newPod(env(0, v1alpha1.EnvIgnoreExitCode, "False")), options: native.Options{IgnoreEnv: true},
			want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"exit code respected by default": {policies: all{mesh()}, options: native.Options{ExitCodes: v1alpha1.ExitCodesRespect},
			excluded: map[string]v1alpha1.Reason{"proxy": v1alpha1.ReasonExitCodesRespected}, reason: v1alpha1.ReasonExitCodesRespected},
		"explicit Ignore": {policies: all{mesh(func(s *v1alpha1.PolicySpec) { s.ExitCodes = v1alpha1.ExitCodesIgnore })},
			pod: newPod(env(0, v1alpha1.EnvIgnoreExitCode, "false")), options: native.Options{ExitCodes: v1alpha1.ExitCodesRespect},
			want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"restart rules": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		}), excluded: map[string]v1alpha1.Reason{"proxy": v1alpha1.ReasonRestartRules}, reason: v1alpha1.ReasonRestartRules},
		"environment": {pod: newPod(env(2, v1alpha1.EnvTerminate, "true")), options: native.Options{Environment: true},
			want: []native.Conversion{{Container: "logs", By: native.Environment}}, reason: v1alpha1.ReasonConvertedToNative},
		"environment not converted": {pod: newPod(env(2, v1alpha1.EnvTerminate, "true")), reason: v1alpha1.ReasonConversionNotRequested},
		"environment not read": {pod: newPod(env(2, v1alpha1.EnvTerminate, "true")), options: native.Options{Environment: true, IgnoreEnv: true},
			reason: v1alpha1.ReasonConversionNotRequested},
		"environment and policy": {policies: all{mesh()}, pod: newPod(env(2, v1alpha1.EnvTerminateWithImage, "exit:v1"), env(0, v1alpha1.EnvTerminate, "true")),
			options: native.Options{Environment: true}, want: []native.Conversion{
				{Container: "proxy", By: native.Environment}, {Container: "logs", By: native.Environment},
			}, reason: v1alpha1.ReasonConvertedToNative},
		"restartPolicy Always": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }),
			reason: v1alpha1.ReasonRestartPolicyAlways},
		"mirror pod": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} }),
			reason: v1alpha1.ReasonMirrorPod},
		"pod opted out": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelNativeConversion: "false"} }),
			reason: v1alpha1.ReasonConversionOptedOut},
		"namespace opted out": {policies: all{mesh()}, namespaceLabels: map[string]string{v1alpha1.LabelNativeConversion: "false"},
			reason: v1alpha1.ReasonConversionOptedOut},
		"annotation present": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationNativeSidecars: ""} }),
			reason: v1alpha1.ReasonAnnotationPresent},
		"128 containers": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) { p.Spec.InitContainers = make([]corev1.Container, 125) }),
			want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"129 containers": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) { p.Spec.InitContainers = make([]corev1.Container, 126) }),
			reason: v1alpha1.ReasonPodTooLarge},
		"128 KiB of annotations": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{"note": strings.Repeat("é", 64<<10-2)}
		}), want: []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}, reason: v1alpha1.ReasonConvertedToNative},
		"more than 128 KiB of annotations": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{"note": strings.Repeat("é", 64<<10-2), "a": ""}
		}), reason: v1alpha1.ReasonPodTooLarge},
		"node name": {policies: all{mesh()}, pod: newPod(func(p *corev1.Pod) { p.Spec.NodeName = "node-1" }), reason: v1alpha1.ReasonNodeNameSet},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.pod == nil {
				tc.pod = newPod()
			}
			before := tc.pod.DeepCopy()
			got := native.Decide(tc.pod, tc.namespaceLabels, parsed(t, tc.policies...), tc.options)
			var excluded map[string]v1alpha1.Reason
			for _, e := range got.Exclusions {
				if excluded == nil {
					excluded = map[string]v1alpha1.Reason{}
				}
				excluded[e.Container] = e.Reason
				if e.Message == "" || e.By == "" {
					t.Errorf("exclusion without an explanation: %+v", e)
				}
			}
			if diff := cmp.Diff(tc.want, got.Conversions); diff != "" {
				t.Errorf("conversions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.excluded, excluded); diff != "" {
				t.Errorf("exclusions (-want +got):\n%s", diff)
			}
			if got.Reason != tc.reason || got.Message == "" {
				t.Errorf("reason %s, message %q; want reason %s", got.Reason, got.Message, tc.reason)
			}
			if diff := cmp.Diff(before, tc.pod); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
		})
	}
}

func TestPodForVirtualNodeIsNotConverted(t *testing.T) {
	options := native.Options{VirtualNodes: native.DefaultVirtualNodeMarks()}
	affinity := func(operator corev1.NodeSelectorOperator) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{}, {MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "zone", Operator: corev1.NodeSelectorOpExists}, {Key: "type", Operator: operator, Values: []string{"virtual-kubelet"}},
				}}},
			}}}
		}
	}
	for name, tc := range map[string]struct {
		change          func(*corev1.Pod)
		namespaceLabels map[string]string
		want            v1alpha1.Reason
	}{
		"label": {change: func(p *corev1.Pod) { p.Labels = map[string]string{"alibabacloud.com/eci": "true"} }, want: v1alpha1.ReasonVirtualNode},
		"label with another value": {change: func(p *corev1.Pod) { p.Labels = map[string]string{"alibabacloud.com/eci": "false"} },
			want: v1alpha1.ReasonConvertedToNative},
		"label of the namespace": {change: func(*corev1.Pod) {}, namespaceLabels: map[string]string{"alibabacloud.com/eci": "true"}, want: v1alpha1.ReasonVirtualNode},
		"node selector":          {change: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"type": "virtual-kubelet"} }, want: v1alpha1.ReasonVirtualNode},
		"toleration": {change: func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}, {Key: "virtual-kubelet.io/provider"}}
		}, want: v1alpha1.ReasonVirtualNode},
		"toleration of everything": {change: func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} },
			want: v1alpha1.ReasonConvertedToNative},
		"scheduler": {change: func(p *corev1.Pod) { p.Spec.SchedulerName = "eci-scheduler" }, want: v1alpha1.ReasonVirtualNode},
		"affinity":  {change: affinity(corev1.NodeSelectorOpIn), want: v1alpha1.ReasonVirtualNode},
		"affinity against virtual nodes": {change: affinity(corev1.NodeSelectorOpNotIn),
			want: v1alpha1.ReasonConvertedToNative},
		"affinity without terms": {change: func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} },
			want: v1alpha1.ReasonConvertedToNative},
	} {
		t.Run(name, func(t *testing.T) {
			if got := native.Decide(newPod(tc.change), tc.namespaceLabels, parsed(t, mesh()), options); got.Reason != tc.want {
				t.Errorf("got %s (%s), want %s", got.Reason, got.Message, tc.want)
			}
		})
	}
}

func TestApply(t *testing.T) {
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	pod := newPod()
	before := pod.DeepCopy()
	got := native.Apply(pod, native.Decision{Conversions: []native.Conversion{
		{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}, {Container: "logs", By: native.Environment},
	}})
	want := newPod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationNativeSidecars: "proxy=SidecarTerminationPolicy/mesh,logs=Environment"}
		p.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: always}, {Name: "logs", RestartPolicy: always}}
		p.Spec.Containers = []corev1.Container{{Name: "main"}}
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("converted pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, pod); diff != "" {
		t.Errorf("the argument was changed:\n%s", diff)
	}
	if diff := cmp.Diff(pod, native.Apply(pod, native.Decision{Reason: v1alpha1.ReasonConversionNotRequested})); diff != "" {
		t.Errorf("nothing to convert (-want +got):\n%s", diff)
	}
	noMain := native.Apply(pod, native.Decision{Reason: v1alpha1.ReasonNoMainContainer})
	if got := noMain.Annotations[v1alpha1.AnnotationNativeSidecars]; got != "!NoMainContainer" {
		t.Errorf("annotation %q of a pod without a main container", got)
	}
}

func TestRecorded(t *testing.T) {
	converted := native.Apply(newPod(), native.Decide(newPod(), nil, parsed(t, mesh()), native.Options{}))
	for name, tc := range map[string]struct {
		annotation string
		want       []native.Conversion
	}{
		"what Apply wrote":                   {converted.Annotations[v1alpha1.AnnotationNativeSidecars], []native.Conversion{{Container: "proxy", By: "SidecarTerminationPolicy/mesh"}}},
		"no native sidecar of this name":     {"setup=A,main=B,other=C", nil},
		"pending":                            {"?proxy=A", nil},
		"nothing converted":                  {"!proxy=A", nil},
		"empty":                              {"", nil},
		"no requester":                       {"proxy", nil},
		"too long":                           {"proxy=" + strings.Repeat("a", 128<<10), nil},
		"a requester longer than any policy": {"proxy=" + strings.Repeat("a", 300), nil},
		"a good record among corrupt ones":   {",=,=x,proxy=Environment,", []native.Conversion{{Container: "proxy", By: native.Environment}}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := converted.DeepCopy()
			pod.Annotations[v1alpha1.AnnotationNativeSidecars] = tc.annotation
			if diff := cmp.Diff(tc.want, native.Recorded(pod)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := native.Recorded(newPod()); got != nil {
		t.Errorf("recorded without an annotation: %v", got)
	}
}

func TestConvertedSidecarsCauseNoWarning(t *testing.T) {
	warnings := func(reasons ...v1alpha1.Reason) []resolve.Warning {
		var all []resolve.Warning
		for i, reason := range reasons {
			all = append(all, resolve.Warning{Container: []string{"proxy", "logs"}[i%2], Reason: reason})
		}
		return all
	}
	foreign, env := v1alpha1.ReasonNativeSidecar, v1alpha1.ReasonInvalidEnv
	proxy := native.Conversion{Container: "proxy", By: native.Environment}
	for name, tc := range map[string]struct {
		warnings []resolve.Warning
		recorded []native.Conversion
		want     []resolve.Warning
	}{
		"nothing recorded":      {warnings(foreign, foreign), nil, warnings(foreign, foreign)},
		"one of two recorded":   {warnings(foreign, foreign), []native.Conversion{proxy}, warnings(foreign, foreign)[1:]},
		"warnings about others": {warnings(env, env), []native.Conversion{proxy}, warnings(env, env)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, native.WithoutRecorded(tc.warnings, tc.recorded)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		spec v1alpha1.PolicySpec
		want bool
	}{
		"nothing set":      {v1alpha1.PolicySpec{Sidecars: sidecars("a")}, false},
		"every entry None": {v1alpha1.PolicySpec{TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: preferred}, Sidecars: []v1alpha1.Sidecar{{Name: "a", TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: v1alpha1.NativeConversionNone}}}}, false},
		"one entry":        {v1alpha1.PolicySpec{Sidecars: append(sidecars("a"), v1alpha1.Sidecar{Name: "b", TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: preferred}})}, true},
		"spec":             {v1alpha1.PolicySpec{TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: preferred}, Sidecars: sidecars("a")}, true},
		"main containers":  {v1alpha1.PolicySpec{TerminationSettings: v1alpha1.TerminationSettings{NativeConversion: preferred}, MainContainers: []v1alpha1.ContainerName{"main"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := native.Requests(&tc.spec); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
