// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// sources are those of Origins.
type sources struct {
	Mode, Image, QuickExitPaths, ExitCodePolicy, Drain, Order, Timeout, Fallback resolve.Source
}

func sourcesOf(o resolve.Origins) sources {
	return sources{o.Mode.Source, o.Image.Source, o.QuickExitPaths.Source, o.ExitCodePolicy.Source, o.Drain.Source, o.Order.Source, o.Timeout.Source, o.Fallback.Source}
}

// TestMerging has one value for each field at each level, and takes the levels away from the top.
func TestMerging(t *testing.T) {
	entry := v1alpha1.TerminationSettings{
		Mode: v1alpha1.ModePodPhase, Image: "entry:v1", ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore, DrainSeconds: ptr.To[int32](0),
		TerminationOrder: ptr.To[int32](0),
	}
	own := func(p *v1alpha1.PolicySpec) {
		p.TerminationSettings = v1alpha1.TerminationSettings{
			Mode: v1alpha1.ModeImage, Image: "spec:v1", ExitCodePolicy: v1alpha1.ExitCodePolicyRespect, DrainSeconds: ptr.To[int32](22),
			TerminationOrder: ptr.To[int32](44),
		}
		p.Fallback, p.TerminationDeadlineSeconds = v1alpha1.FallbackDisabled, ptr.To[int32](33)
	}
	env := []string{terminate, "true", withImage, "env:v1", ignore, "false"}
	options := resolve.Options{Image: "default:v1", ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore}
	policy := refOf("mesh")

	tests := map[string]struct {
		spec    v1alpha1.PolicySpec
		env     []string
		options resolve.Options
		want    resolve.Sidecar
		sources sources
	}{
		"the policy's entry for the container comes first": {
			spec: spec(entrySettings(entry), own), env: env, options: options,
			want:    resolve.Sidecar{Mode: v1alpha1.ModePodPhase, Image: "entry:v1", ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore, Fallback: v1alpha1.FallbackDisabled, Timeout: 33 * time.Second},
			sources: sources{Mode: resolve.SourceEntry, Image: resolve.SourceEntry, QuickExitPaths: resolve.SourceDefault, ExitCodePolicy: resolve.SourceEntry, Drain: resolve.SourceEntry, Order: resolve.SourceEntry, Timeout: resolve.SourcePolicy, Fallback: resolve.SourcePolicy},
		},
		"the policy's spec comes second": {
			spec: spec(own), env: env, options: options,
			want:    resolve.Sidecar{Mode: v1alpha1.ModeImage, Image: "spec:v1", ExitCodePolicy: v1alpha1.ExitCodePolicyRespect, Fallback: v1alpha1.FallbackDisabled, Drain: 22 * time.Second, Order: 44, Timeout: 33 * time.Second},
			sources: sources{Mode: resolve.SourcePolicy, Image: resolve.SourcePolicy, QuickExitPaths: resolve.SourceDefault, ExitCodePolicy: resolve.SourcePolicy, Drain: resolve.SourcePolicy, Order: resolve.SourcePolicy, Timeout: resolve.SourcePolicy, Fallback: resolve.SourcePolicy},
		},
		"the container's variables come third": {
			spec: spec(), env: env, options: options,
			want:    resolve.Sidecar{Mode: v1alpha1.ModeAuto, Image: "env:v1", QuickExitPaths: quickexit.CoverageOf("*"), ExitCodePolicy: v1alpha1.ExitCodePolicyRespect, Fallback: v1alpha1.FallbackEnabled, Timeout: 30 * time.Second},
			sources: sources{Mode: resolve.SourceEnvironment, Image: resolve.SourceEnvironment, QuickExitPaths: resolve.SourceEnvironment, ExitCodePolicy: resolve.SourceEnvironment, Drain: resolve.SourceDefault, Order: resolve.SourceDefault, Timeout: resolve.SourceDefault, Fallback: resolve.SourceDefault},
		},
		"the operator's defaults come last": {
			spec: spec(), options: resolve.Options{Image: "default:v1", ExitCodePolicy: v1alpha1.ExitCodePolicyRespect},
			want:    resolve.Sidecar{Mode: v1alpha1.ModeAuto, Image: "default:v1", ExitCodePolicy: v1alpha1.ExitCodePolicyRespect, Fallback: v1alpha1.FallbackEnabled, Timeout: 30 * time.Second},
			sources: sources{Mode: resolve.SourceDefault, Image: resolve.SourceOperator, QuickExitPaths: resolve.SourceDefault, ExitCodePolicy: resolve.SourceOperator, Drain: resolve.SourceDefault, Order: resolve.SourceDefault, Timeout: resolve.SourceDefault, Fallback: resolve.SourceDefault},
		},
		"no defaults: exit codes are ignored, there is no image": {
			spec:    spec(),
			want:    resolve.Sidecar{Mode: v1alpha1.ModeAuto, ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore, Fallback: v1alpha1.FallbackEnabled, Timeout: 30 * time.Second},
			sources: sources{Mode: resolve.SourceDefault, Image: resolve.SourceDefault, QuickExitPaths: resolve.SourceDefault, ExitCodePolicy: resolve.SourceDefault, Drain: resolve.SourceDefault, Order: resolve.SourceDefault, Timeout: resolve.SourceDefault, Fallback: resolve.SourceDefault},
		},
		"each field is merged separately": {
			spec: spec(entrySettings(v1alpha1.TerminationSettings{Image: "entry:v1"}), func(p *v1alpha1.PolicySpec) { p.Fallback = v1alpha1.FallbackDisabled }),
			env:  []string{terminate, "true"}, options: options,
			want:    resolve.Sidecar{Mode: v1alpha1.ModeCRR, Image: "entry:v1", ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore, Fallback: v1alpha1.FallbackDisabled, Timeout: 30 * time.Second},
			sources: sources{Mode: resolve.SourceEnvironment, Image: resolve.SourceEntry, QuickExitPaths: resolve.SourceDefault, ExitCodePolicy: resolve.SourceOperator, Drain: resolve.SourceDefault, Order: resolve.SourceDefault, Timeout: resolve.SourceDefault, Fallback: resolve.SourcePolicy},
		},
		"ignored variables are skipped": {
			spec: spec(), env: env, options: resolve.Options{IgnoreEnv: true},
			want:    resolve.Sidecar{Mode: v1alpha1.ModeAuto, ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore, Fallback: v1alpha1.FallbackEnabled, Timeout: 30 * time.Second},
			sources: sources{Mode: resolve.SourceDefault, Image: resolve.SourceDefault, QuickExitPaths: resolve.SourceDefault, ExitCodePolicy: resolve.SourceDefault, Drain: resolve.SourceDefault, Order: resolve.SourceDefault, Timeout: resolve.SourceDefault, Fallback: resolve.SourceDefault},
		},
		"mainContainers: the spec applies to every sidecar": {
			spec: spec(mainContainers("main"), own), env: env,
			want:    resolve.Sidecar{Mode: v1alpha1.ModeImage, Image: "spec:v1", ExitCodePolicy: v1alpha1.ExitCodePolicyRespect, Fallback: v1alpha1.FallbackDisabled, Drain: 22 * time.Second, Order: 44, Timeout: 33 * time.Second},
			sources: sources{Mode: resolve.SourcePolicy, Image: resolve.SourcePolicy, QuickExitPaths: resolve.SourceDefault, ExitCodePolicy: resolve.SourcePolicy, Drain: resolve.SourcePolicy, Order: resolve.SourcePolicy, Timeout: resolve.SourcePolicy, Fallback: resolve.SourcePolicy},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withEnv(newPod("main", "proxy"), test.env...)
			policies := []resolve.Policy{namespaced(t, "mesh", 1, test.spec)}
			got := resolve.Resolve(pod, policies, test.options).Enforced
			test.want.Container, test.want.Policy, test.want.DeclaredBy = "proxy", &policy, resolve.SourcePolicy
			want := resolve.View{Sidecars: []resolve.Sidecar{test.want}, Mains: []string{"main"}, Policies: []resolve.PolicyRef{policy}}
			if diff := cmp.Diff(want, got, withoutOrigins, cmpopts.IgnoreFields(resolve.View{}, "MainPolicies")); diff != "" {
				t.Errorf("Enforced (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.sources, sourcesOf(got.Sidecars[0].Origins)); diff != "" {
				t.Errorf("origins (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPrecedence names one container in two policies with another drain. The first takes precedence in either order.
func TestPrecedence(t *testing.T) {
	tests := map[string]struct{ first, overridden resolve.Policy }{
		"namespaced before cluster, despite priority and age": {
			namespaced(t, "z", 1, spec()), cluster(t, "a", 9, spec(priority(100))),
		},
		"higher priority first, despite age": {
			namespaced(t, "z", 1, spec(priority(2))), namespaced(t, "a", 9, spec(priority(1))),
		},
		"no priority before a negative one": {
			namespaced(t, "z", 1, spec()), namespaced(t, "a", 9, spec(priority(-1))),
		},
		"older policy first, despite its name": {
			namespaced(t, "z", 9, spec()), namespaced(t, "a", 1, spec()),
		},
		"same age: by name": {
			namespaced(t, "a", 1, spec()), namespaced(t, "z", 1, spec()),
		},
		"cluster policies: by name": {
			cluster(t, "z", 1, spec(priority(2))), cluster(t, "a", 9, spec(priority(1))),
		},
		"mainContainers and sidecars have equal precedence": {
			namespaced(t, "z", 9, spec(mainContainers("main"))), namespaced(t, "a", 1, spec()),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, policies := range [][]resolve.Policy{{test.first, test.overridden}, {test.overridden, test.first}} {
				test.first.Spec.DrainSeconds, test.overridden.Spec.DrainSeconds = ptr.To[int32](1), ptr.To[int32](2)
				before := slices.Clone(policies)
				got := resolve.Resolve(newPod("main", "proxy"), policies, resolve.Options{})
				if diff := cmp.Diff(&test.first.Ref, got.Enforced.Sidecars[0].Policy); diff != "" {
					t.Errorf("policy (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]resolve.Override{{Container: "proxy", Policy: test.overridden.Ref, By: test.first.Ref, Lost: "drainSeconds"}}, got.Overrides); diff != "" {
					t.Errorf("Overrides (-want +got):\n%s", diff)
				}
				for i := range before {
					if before[i].Ref != policies[i].Ref {
						t.Error("the caller's policies were reordered")
					}
				}
			}
		})
	}
}

func TestResolve(t *testing.T) {
	target := func(container string, policy resolve.PolicyRef) resolve.Sidecar {
		return resolve.Sidecar{
			Container: container, Mode: v1alpha1.ModeAuto, ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore, Fallback: v1alpha1.FallbackEnabled,
			Timeout: 30 * time.Second, Policy: &policy,
		}
	}
	view := func(mains []string, targets ...resolve.Sidecar) resolve.View {
		v := resolve.View{Mains: mains, Sidecars: targets}
		for _, policy := range []resolve.PolicyRef{refOf("a"), refOf("b"), refOf("mesh"), clusterRefOf("base"), clusterRefOf("c"), clusterRefOf("logging")} {
			if slices.ContainsFunc(targets, func(s resolve.Sidecar) bool { return s.Policy != nil && *s.Policy == policy }) {
				v.Policies = append(v.Policies, policy)
			}
		}
		return v
	}
	also := func(v resolve.View, policies ...resolve.PolicyRef) resolve.View {
		v.Policies = append(v.Policies, policies...)
		return v
	}
	drain := func(seconds int32) func(*v1alpha1.PolicySpec) {
		return func(s *v1alpha1.PolicySpec) { s.DrainSeconds = &seconds }
	}
	drained := func(s resolve.Sidecar) resolve.Sidecar {
		s.Drain = 5 * time.Second
		return s
	}
	mesh := refOf("mesh")
	fromVariables, fromOptions := target("proxy", mesh), target("logs", mesh)
	fromVariables.Mode, fromVariables.Policy, fromOptions.Policy = v1alpha1.ModeCRR, nil, nil
	ofPod := func(container string) resolve.Sidecar {
		s := target(container, mesh)
		s.Policy = nil
		return s
	}
	inMode := func(s resolve.Sidecar, mode v1alpha1.Mode) resolve.Sidecar {
		s.Mode = mode
		return s
	}
	invalidAnnotation := func(cause string) []resolve.Warning {
		return []resolve.Warning{{Reason: v1alpha1.ReasonInvalidSidecars, Message: "annotation sidecartermination.dev/sidecars declares no sidecar: " + cause}}
	}

	tests := map[string]struct {
		pod      *corev1.Pod
		policies []resolve.Policy
		options  resolve.Options
		want     resolve.Resolution
	}{
		"without a declaration every container is a main one": {
			pod:  newPod("main", "proxy"),
			want: resolve.Resolution{Enforced: view([]string{"main", "proxy"})},
		},
		"sidecars are sorted, main containers keep the pod's order": {
			pod:      newPod("zeta", "proxy", "alpha", "logs"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(sidecars("proxy", "logs")))},
			want:     resolve.Resolution{Enforced: view([]string{"zeta", "alpha"}, target("logs", mesh), target("proxy", mesh))},
		},
		"mainContainers: every other container is a sidecar": {
			pod:      newPod("main", "proxy", "logs"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(mainContainers("main")))},
			want:     resolve.Resolution{Enforced: view([]string{"main"}, target("logs", mesh), target("proxy", mesh))},
		},
		"mainContainers that the pod does not have: the policy does not apply": {
			pod:      newPod("wget", "proxy"),
			policies: []resolve.Policy{namespaced(t, "a", 1, spec(mainContainers("main"))), namespaced(t, "mesh", 1, spec())},
			want:     resolve.Resolution{Enforced: view([]string{"wget"}, target("proxy", mesh))},
		},
		"a main container of the first policy is no sidecar of another": {
			pod: newPod("etl", "worker", "proxy"),
			policies: []resolve.Policy{
				namespaced(t, "mesh", 1, spec(mainContainers("etl", "worker"))), cluster(t, "base", 1, spec(sidecars("worker", "proxy"))), cluster(t, "c", 1, spec(mainContainers("etl"))),
			},
			want: resolve.Resolution{Enforced: also(view([]string{"etl", "worker"}, target("proxy", mesh)), clusterRefOf("base"), clusterRefOf("c")), Overrides: []resolve.Override{
				{Container: "worker", Policy: clusterRefOf("base"), By: mesh, Lost: resolve.LostRole}, {Container: "worker", Policy: clusterRefOf("c"), By: mesh, Lost: resolve.LostRole},
			}},
		},
		"a field of a policy that does not declare the sidecar does not count": {
			pod:      newPod("main", "proxy", "logs"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec()), cluster(t, "base", 1, spec(sidecars("logs"), drain(5)))},
			want:     resolve.Resolution{Enforced: view([]string{"main"}, drained(target("logs", clusterRefOf("base"))), target("proxy", mesh))},
		},
		"equal fields are not lost, others are": {
			pod: newPod("main", "proxy"),
			policies: []resolve.Policy{
				namespaced(t, "mesh", 1, spec(drain(5))), cluster(t, "base", 1, spec(drain(5))),
				cluster(t, "c", 0, spec(drain(6), func(s *v1alpha1.PolicySpec) {
					s.Fallback, s.TerminationDeadlineSeconds = v1alpha1.FallbackEnabled, ptr.To[int32](30)
				})),
			},
			want: resolve.Resolution{Enforced: also(view([]string{"main"}, drained(target("proxy", mesh))), clusterRefOf("base"), clusterRefOf("c")), Overrides: []resolve.Override{
				{Container: "proxy", Policy: clusterRefOf("c"), By: mesh, Lost: "drainSeconds"},
			}},
		},
		"a pattern": {
			pod:      newPod("main", "csql-orders", "csql-x"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(sidecars("csql-*")))},
			want:     resolve.Resolution{Enforced: view([]string{"main"}, target("csql-orders", mesh), target("csql-x", mesh))},
		},
		"the annotation of the pod": {
			pod:  annotated(newPod("main", "logs", "proxy"), fmt.Sprintf("%-*s", resolve.MaxListBytes, " proxy ,gone,logs")),
			want: resolve.Resolution{Enforced: view([]string{"main"}, ofPod("logs"), ofPod("proxy"))},
		},
		"the annotation among policies and variables": {
			pod:      withEnv(annotated(newPod("main", "logs", "proxy"), "main,logs,proxy"), terminate, "true"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(mainContainers("main", "logs")))},
			want:     resolve.Resolution{Enforced: view([]string{"main", "logs"}, inMode(target("proxy", mesh), v1alpha1.ModeCRR))},
		},
		"the annotation without the convention": {
			pod:     withEnv(annotated(newPod("main", "proxy"), "proxy"), terminate, "true"),
			options: resolve.Options{IgnoreEnv: true},
			want:    resolve.Resolution{Enforced: view([]string{"main"}, ofPod("proxy"))},
		},
		"a pod that has opted out": {
			pod: optedOut(newPod("main", "proxy")), policies: []resolve.Policy{namespaced(t, "mesh", 1, spec())},
			want: resolve.Resolution{Enforced: view([]string{"main", "proxy"})},
		},
		"a namespace that has opted out": {
			pod: newPod("main", "proxy"), policies: []resolve.Policy{namespaced(t, "mesh", 1, spec())},
			options: resolve.Options{NamespaceLabels: map[string]string{v1alpha1.LabelIgnore: "true"}},
			want:    resolve.Resolution{Enforced: view([]string{"main", "proxy"})},
		},
		"an admin who forbids opting out": {
			pod: optedOut(newPod("main", "proxy")), policies: []resolve.Policy{namespaced(t, "mesh", 1, spec())},
			options: resolve.Options{NoOptOut: true},
			want:    resolve.Resolution{Enforced: view([]string{"main"}, target("proxy", mesh))},
		},
		"an annotation of too many bytes": {
			pod:  annotated(newPod("main", "proxy"), "proxy"+strings.Repeat(" ", resolve.MaxListBytes)),
			want: resolve.Resolution{Enforced: view([]string{"main", "proxy"}), Warnings: invalidAnnotation("it has more than 2560 bytes")},
		},
		"an annotation of too many names": {
			pod:  annotated(newPod("main", "proxy"), "proxy"+strings.Repeat(",proxy", 32)),
			want: resolve.Resolution{Enforced: view([]string{"main", "proxy"}), Warnings: invalidAnnotation("it lists more than 32 containers")},
		},
		"two policies may name different containers of one pod": {
			pod:      newPod("main", "proxy", "logs"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec()), cluster(t, "logging", 1, spec(sidecars("logs")))},
			want:     resolve.Resolution{Enforced: view([]string{"main"}, target("logs", clusterRefOf("logging")), target("proxy", mesh))},
		},
		"every override names the policy that takes precedence": {
			pod:      newPod("main", "proxy"),
			policies: []resolve.Policy{cluster(t, "c", 1, spec(drain(3))), namespaced(t, "b", 1, spec(drain(5))), namespaced(t, "a", 1, spec())},
			want: resolve.Resolution{Enforced: also(view([]string{"main"}, drained(target("proxy", refOf("a")))), refOf("b"), clusterRefOf("c")), Overrides: []resolve.Override{
				{Container: "proxy", Policy: clusterRefOf("c"), By: refOf("b"), Lost: "drainSeconds"},
			}},
		},
		"an override names its first container and counts the others": {
			pod:      newPod("main", "proxy", "logs", "dns"),
			policies: []resolve.Policy{cluster(t, "c", 1, spec(sidecars("proxy", "logs", "dns"))), namespaced(t, "mesh", 1, spec(mainContainers("main", "proxy", "logs", "dns")))},
			want: resolve.Resolution{Enforced: view([]string{"main", "proxy", "logs", "dns"}), Overrides: []resolve.Override{
				{Container: "proxy", Others: 2, Policy: clusterRefOf("c"), By: mesh, Lost: resolve.LostRole},
			}},
		},
		"a DryRun policy declares no sidecar": {
			pod:      newPod("main", "proxy"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(dryRun))},
			want: resolve.Resolution{
				Enforced: view([]string{"main", "proxy"}), DryRun: ptr.To(view([]string{"main"}, target("proxy", mesh))),
			},
		},
		"a policy with an unknown enforcement makes no sidecar": {
			pod:      newPod("main", "proxy"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(func(s *v1alpha1.PolicySpec) { s.Enforcement = "Audit" }))},
			want: resolve.Resolution{
				Enforced: view([]string{"main", "proxy"}), DryRun: ptr.To(view([]string{"main"}, target("proxy", mesh))),
			},
		},
		"a DryRun policy is shown separately": {
			pod:      withEnv(newPod("main", "logs", "proxy"), terminate, "true"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(dryRun, sidecars("logs")))},
			want: resolve.Resolution{
				Enforced: view([]string{"main", "logs"}, fromVariables), DryRun: ptr.To(view([]string{"main"}, target("logs", mesh), fromVariables)),
			},
		},
		"a DryRun policy does not override an enforced one": {
			pod:      newPod("main", "proxy"),
			policies: []resolve.Policy{cluster(t, "base", 1, spec()), namespaced(t, "mesh", 1, spec(dryRun))},
			want: resolve.Resolution{
				Enforced: view([]string{"main"}, target("proxy", clusterRefOf("base"))),
				DryRun:   ptr.To(also(view([]string{"main"}, target("proxy", mesh)), clusterRefOf("base"))),
			},
		},
		"an enforced policy overrides a DryRun one": {
			pod:      newPod("main", "proxy"),
			policies: []resolve.Policy{cluster(t, "base", 1, spec(dryRun, drain(6))), namespaced(t, "mesh", 1, spec(drain(5)))},
			want: resolve.Resolution{
				Enforced:  view([]string{"main"}, drained(target("proxy", mesh))),
				DryRun:    ptr.To(also(view([]string{"main"}, drained(target("proxy", mesh))), clusterRefOf("base"))),
				Overrides: []resolve.Override{{Container: "proxy", Policy: clusterRefOf("base"), By: mesh, Lost: "drainSeconds"}},
			},
		},
		"options declare further sidecars": {
			pod: withEnv(newPod("main", "proxy", "logs"), withImage, quickExit), policies: []resolve.Policy{namespaced(t, "mesh", 1, spec())},
			options: resolve.Options{IgnoreEnv: true, Sidecars: []string{"logs", "proxy", "unknown"}},
			want:    resolve.Resolution{Enforced: view([]string{"main"}, fromOptions, target("proxy", mesh))},
		},
		"variables of init containers do not count": {
			pod:  native(newPod("main"), corev1.EnvVar{Name: terminate, Value: "true"}),
			want: resolve.Resolution{Enforced: view([]string{"main"})},
		},
		"a DryRun policy that names no container has no effect": {
			pod:      newPod("main"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(dryRun))},
			want:     resolve.Resolution{Enforced: view([]string{"main"})},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := resolve.Resolve(test.pod, test.policies, test.options)
			ignored := cmp.Options{withoutOrigins, cmpopts.IgnoreFields(resolve.Sidecar{}, "DeclaredBy"), cmpopts.IgnoreFields(resolve.View{}, "MainPolicies")}
			if diff := cmp.Diff(test.want, got, ignored); diff != "" {
				t.Errorf("Resolve() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNativeSidecars(t *testing.T) {
	pod := newPod("main")
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "setup"},
		{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		{Name: "retry", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyOnFailure)},
	}
	mesh := refOf("mesh")
	tests := map[string]struct {
		spec v1alpha1.PolicySpec
		want []resolve.Warning
	}{
		"a named native sidecar has a warning": {spec(), []resolve.Warning{{Container: "proxy", Reason: v1alpha1.ReasonNativeSidecar, Policy: &mesh}}},
		"a native sidecar of a DryRun policy has a warning": {
			spec(dryRun), []resolve.Warning{{Container: "proxy", Reason: v1alpha1.ReasonNativeSidecar, Policy: &mesh}},
		},
		"other init containers are ignored":         {spec(sidecars("setup", "retry")), nil},
		"mainContainers does not make it a sidecar": {spec(mainContainers("main")), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := resolve.Resolve(pod, []resolve.Policy{namespaced(t, "mesh", 1, test.spec)}, resolve.Options{})
			if diff := cmp.Diff(test.want, got.Warnings, cmpopts.IgnoreFields(resolve.Warning{}, "Message")); diff != "" {
				t.Errorf("Warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(resolve.View{Mains: []string{"main"}}, got.Enforced, cmpopts.IgnoreFields(resolve.View{}, "MainPolicies")); diff != "" {
				t.Errorf("Enforced (-want +got):\n%s", diff)
			}
		})
	}
}

// The number of policies must not increase the number of warnings that the operator emits and remembers.
func TestNativeSidecarHasOneWarning(t *testing.T) {
	var names []string
	pod := newPod("main")
	for i := range 32 {
		names = append(names, fmt.Sprintf("proxy-%02d", i))
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
			Name: names[i], RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		})
	}
	for policies, want := range map[int]string{
		1:    "SidecarTerminationPolicy/mesh-0000 names container proxy-00, ",
		2:    "SidecarTerminationPolicy/mesh-0000 and 1 more policy name container proxy-00, ",
		1000: "SidecarTerminationPolicy/mesh-0000 and 999 more policies name container proxy-00, ",
	} {
		var selecting []resolve.Policy
		for i := range policies {
			selecting = append(selecting, namespaced(t, fmt.Sprintf("mesh-%04d", i), 1, spec(dryRun, sidecars(names...))))
		}
		got := resolve.Resolve(pod, selecting, resolve.Options{}).Warnings
		if len(got) != len(names) || !strings.HasPrefix(got[0].Message, want) || got[0].Policy.Name != "mesh-0000" {
			t.Errorf("%d policies give %d warnings, the first of %v: %s", policies, len(got), got[0].Policy, got[0].Message)
		}
	}
}

// TestQuickExitPaths goes through the places that an image may come from, with and without a word on what it covers.
func TestQuickExitPaths(t *testing.T) {
	type paths = []v1alpha1.QuickExitPath
	own := v1alpha1.TerminationSettings{Image: "own:v1", QuickExitPaths: paths{"default", "/app/server"}}
	entry := v1alpha1.TerminationSettings{Image: "entry:v1", QuickExitPaths: paths{"/opt/entry"}}
	silent := func(s v1alpha1.TerminationSettings) v1alpha1.TerminationSettings {
		s.QuickExitPaths = nil
		return s
	}
	flags := resolve.Options{Image: quickExit, QuickExitPaths: quickexit.CoverageOf("/opt/proxy")}
	one := func(changes ...func(*v1alpha1.PolicySpec)) []resolve.Policy {
		return []resolve.Policy{namespaced(t, "p", 1, spec(changes...))}
	}
	listed := quickexit.CoverageOf("default", "/app/server")
	for name, test := range map[string]struct {
		policies []resolve.Policy
		env      []string
		options  resolve.Options
		want     quickexit.Coverage
		from     resolve.Source
	}{
		"no quickExitPaths: the default coverage": {policies: one(settings(silent(own))), options: flags, from: resolve.SourceDefault},
		"empty quickExitPaths: the default coverage": {
			policies: one(settings(v1alpha1.TerminationSettings{Image: "own:v1", QuickExitPaths: paths{}})), from: resolve.SourceDefault,
		},
		"quickExitPaths of a namespaced policy": {policies: one(settings(own)), options: flags, want: listed, from: resolve.SourcePolicy},
		"quickExitPaths of a cluster policy": {
			policies: []resolve.Policy{cluster(t, "p", 1, spec(settings(own)))}, want: listed, from: resolve.SourcePolicy,
		},
		"quickExitPaths of a sidecar entry": {policies: one(settings(own), entrySettings(entry)), want: quickexit.CoverageOf("/opt/entry"), from: resolve.SourceEntry},
		"a second entry says what its image covers": {
			policies: one(sidecars("proxy", "other"), entrySettings(entry), reversed), want: quickexit.CoverageOf("/opt/entry"), from: resolve.SourceEntry,
		},
		"the spec's paths do not apply to an entry's image": {policies: one(settings(own), entrySettings(silent(entry))), from: resolve.SourceDefault},
		"an entry's paths do not apply to the spec's image": {
			policies: one(sidecars("other", "proxy"), entrySettings(entry), settings(silent(own))), from: resolve.SourceDefault,
		},
		"an image from a variable covers everything": {
			env: []string{withImage, quickExit}, options: flags, want: quickexit.CoverageOf("*"), from: resolve.SourceEnvironment,
		},
		"an image from a variable next to a policy without one": {
			policies: one(), env: []string{withImage, quickExit}, options: flags, want: quickexit.CoverageOf("*"), from: resolve.SourceEnvironment,
		},
		"the operator's flag applies to its own image":           {policies: one(), options: flags, want: flags.QuickExitPaths, from: resolve.SourceOperator},
		"no flag: the operator's image has the default coverage": {policies: one(), options: resolve.Options{Image: quickExit}, from: resolve.SourceDefault},
		"no image covers nothing":                                {policies: one(), from: resolve.SourceDefault},
		"the paths of an overridden policy do not count": {
			policies: []resolve.Policy{namespaced(t, "first", 2, spec(settings(silent(own)))), namespaced(t, "overridden", 1, spec(settings(own)))},
			from:     resolve.SourceDefault,
		},
		"the policy with precedence is found after another": {
			policies: []resolve.Policy{namespaced(t, "overridden", 1, spec(settings(silent(own)))), namespaced(t, "first", 2, spec(settings(own)))},
			want:     listed, from: resolve.SourcePolicy,
		},
		"a policy that names no container is no source": {
			policies: one(sidecars("other"), settings(own)), env: []string{withImage, quickExit}, want: quickexit.CoverageOf("*"), from: resolve.SourceEnvironment,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := withEnv(newPod("main", "proxy"), test.env...)
			target := resolve.Resolve(pod, test.policies, test.options).Enforced.Sidecars[0]
			if !target.QuickExitPaths.Equal(test.want) {
				t.Errorf("the image covers %q, want %q", target.QuickExitPaths, test.want)
			}
			if from := target.Origins.QuickExitPaths.Source; from != test.from {
				t.Errorf("the paths come from %s, want %s", from, test.from)
			}
		})
	}
}

// TestPathsAreParsedOncePerPolicy resolves a pod repeatedly. The cost must not grow with the paths that a policy lists.
func TestPathsAreParsedOncePerPolicy(t *testing.T) {
	pod := newPod("main", "proxy")
	allocations := func(count int) float64 {
		var paths []v1alpha1.QuickExitPath
		for i := range count {
			paths = append(paths, v1alpha1.QuickExitPath(fmt.Sprintf("/opt/%d", i)))
		}
		own := v1alpha1.TerminationSettings{Image: "own:v1", QuickExitPaths: paths}
		policies := []resolve.Policy{namespaced(t, "p", 1, spec(settings(own), entrySettings(own)))}
		return testing.AllocsPerRun(100, func() { _ = resolve.Resolve(pod, policies, resolve.Options{}) })
	}
	if none, most := allocations(0), allocations(64); most != none {
		t.Errorf("%.0f allocations with 64 paths, %.0f without any", most, none)
	}
}
