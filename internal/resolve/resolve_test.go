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

// TestMerging has one value for each field at each level, and takes the levels away from the top.
func TestMerging(t *testing.T) {
	entry := v1alpha1.TerminationSettings{
		Mode: v1alpha1.ModePodPhase, Image: "entry:v1", ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: v1alpha1.FallbackDisabled,
		DrainSeconds: ptr.To[int32](0), TerminationDeadlineSeconds: ptr.To[int32](11),
	}
	own := v1alpha1.TerminationSettings{
		Mode: v1alpha1.ModeImage, Image: "spec:v1", ExitCodes: v1alpha1.ExitCodesRespect, Fallback: v1alpha1.FallbackEnabled,
		DrainSeconds: ptr.To[int32](22), TerminationDeadlineSeconds: ptr.To[int32](33),
	}
	env := []string{terminate, "true", withImage, "env:v1", ignore, "false"}
	options := resolve.Options{Image: "default:v1", ExitCodes: v1alpha1.ExitCodesIgnore}
	policy := refOf("mesh")

	tests := map[string]struct {
		spec    v1alpha1.PolicySpec
		env     []string
		options resolve.Options
		want    resolve.Target
	}{
		"the policy's entry for the container comes first": {
			spec: spec(entrySettings(entry), settings(own)), env: env, options: options,
			want: resolve.Target{Mode: v1alpha1.ModePodPhase, Image: "entry:v1", ImageSource: resolve.SourceEntry, ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: v1alpha1.FallbackDisabled, Deadline: 11 * time.Second},
		},
		"the policy's spec comes second": {
			spec: spec(settings(own)), env: env, options: options,
			want: resolve.Target{Mode: v1alpha1.ModeImage, Image: "spec:v1", ImageSource: resolve.SourcePolicy, ExitCodes: v1alpha1.ExitCodesRespect, Fallback: v1alpha1.FallbackEnabled, Drain: 22 * time.Second, Deadline: 33 * time.Second},
		},
		"the container's variables come third": {
			spec: spec(), env: env, options: options,
			want: resolve.Target{Mode: v1alpha1.ModeAuto, Image: "env:v1", ImageSource: resolve.SourceEnvironment, QuickExitPaths: quickexit.CoverageOf("*"), ExitCodes: v1alpha1.ExitCodesRespect, Fallback: v1alpha1.FallbackEnabled, Deadline: 30 * time.Second},
		},
		"the operator's defaults come last": {
			spec: spec(), options: resolve.Options{Image: "default:v1", ExitCodes: v1alpha1.ExitCodesRespect},
			want: resolve.Target{Mode: v1alpha1.ModeAuto, Image: "default:v1", ImageSource: resolve.SourceOperator, ExitCodes: v1alpha1.ExitCodesRespect, Fallback: v1alpha1.FallbackEnabled, Deadline: 30 * time.Second},
		},
		"without any default exit codes are ignored and there is no image": {
			spec: spec(),
			want: resolve.Target{Mode: v1alpha1.ModeAuto, ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: v1alpha1.FallbackEnabled, Deadline: 30 * time.Second},
		},
		"each field is taken by itself": {
			spec: spec(entrySettings(v1alpha1.TerminationSettings{Image: "entry:v1"}), settings(v1alpha1.TerminationSettings{Fallback: v1alpha1.FallbackDisabled})),
			env:  []string{terminate, "true"}, options: options,
			want: resolve.Target{Mode: v1alpha1.ModeCRR, Image: "entry:v1", ImageSource: resolve.SourceEntry, ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: v1alpha1.FallbackDisabled, Deadline: 30 * time.Second},
		},
		"variables that are turned off are no level": {
			spec: spec(), env: env, options: resolve.Options{IgnoreEnv: true},
			want: resolve.Target{Mode: v1alpha1.ModeAuto, ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: v1alpha1.FallbackEnabled, Deadline: 30 * time.Second},
		},
		"a policy that names main containers has its spec for every sidecar": {
			spec: spec(mainContainers("main"), settings(own)), env: env,
			want: resolve.Target{Mode: v1alpha1.ModeImage, Image: "spec:v1", ImageSource: resolve.SourcePolicy, ExitCodes: v1alpha1.ExitCodesRespect, Fallback: v1alpha1.FallbackEnabled, Drain: 22 * time.Second, Deadline: 33 * time.Second},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := withEnv(newPod("main", "proxy"), test.env...)
			got := resolve.Resolve(pod, []resolve.Policy{namespaced(t, "mesh", 1, test.spec)}, test.options).Enforced
			test.want.Container, test.want.Policy = "proxy", &policy
			if diff := cmp.Diff(resolve.View{Targets: []resolve.Target{test.want}, Mains: []string{"main"}}, got); diff != "" {
				t.Errorf("Enforced (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPrecedence names one container in two policies; the first must win in whatever order they come.
func TestPrecedence(t *testing.T) {
	tests := map[string]struct{ winner, loser resolve.Policy }{
		"a namespaced policy beats a cluster one, whatever its priority and age": {
			namespaced(t, "z", 1, spec()), cluster(t, "a", 9, spec(priority(100))),
		},
		"a higher priority beats a lower one, whatever its age": {
			namespaced(t, "z", 1, spec(priority(2))), namespaced(t, "a", 9, spec(priority(1))),
		},
		"no priority beats a negative one": {
			namespaced(t, "z", 1, spec()), namespaced(t, "a", 9, spec(priority(-1))),
		},
		"an older policy beats a younger one, whatever its name": {
			namespaced(t, "z", 9, spec()), namespaced(t, "a", 1, spec()),
		},
		"the name decides between policies of one age": {
			namespaced(t, "a", 1, spec()), namespaced(t, "z", 1, spec()),
		},
		"the same holds among cluster policies": {
			cluster(t, "z", 1, spec(priority(2))), cluster(t, "a", 9, spec(priority(1))),
		},
		"naming the main containers is no less than naming the sidecar": {
			namespaced(t, "z", 9, spec(mainContainers("main"))), namespaced(t, "a", 1, spec()),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, policies := range [][]resolve.Policy{{test.winner, test.loser}, {test.loser, test.winner}} {
				before := slices.Clone(policies)
				got := resolve.Resolve(newPod("main", "proxy"), policies, resolve.Options{})
				if diff := cmp.Diff(&test.winner.Ref, got.Enforced.Targets[0].Policy); diff != "" {
					t.Errorf("winner (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]resolve.Loss{{Container: "proxy", Loser: test.loser.Ref, Winner: test.winner.Ref}}, got.Losses); diff != "" {
					t.Errorf("Losses (-want +got):\n%s", diff)
				}
				for i := range before {
					if before[i].Ref != policies[i].Ref {
						t.Error("the caller's policies were put into another order")
					}
				}
			}
		})
	}
}

func TestResolve(t *testing.T) {
	target := func(container string, policy resolve.PolicyRef) resolve.Target {
		return resolve.Target{
			Container: container, Mode: v1alpha1.ModeAuto, ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: v1alpha1.FallbackEnabled,
			Deadline: 30 * time.Second, Policy: &policy,
		}
	}
	view := func(mains []string, targets ...resolve.Target) resolve.View {
		return resolve.View{Mains: mains, Targets: targets}
	}
	mesh := refOf("mesh")
	fromVariables := resolve.Target{
		Container: "proxy", Mode: v1alpha1.ModeCRR, ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: v1alpha1.FallbackEnabled, Deadline: 30 * time.Second,
	}

	tests := map[string]struct {
		pod      *corev1.Pod
		policies []resolve.Policy
		want     resolve.Resolution
	}{
		"without a declaration every container is a main one": {
			pod:  newPod("main", "proxy"),
			want: resolve.Resolution{Enforced: view([]string{"main", "proxy"})},
		},
		"a pod without containers is possible": {
			pod:      newPod(),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec())},
		},
		"sidecars come sorted and main containers in the pod's order": {
			pod:      newPod("zeta", "proxy", "alpha", "logs"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(sidecars("proxy", "logs")))},
			want:     resolve.Resolution{Enforced: view([]string{"zeta", "alpha"}, target("logs", mesh), target("proxy", mesh))},
		},
		"a name that the pod does not have is passed over": {
			pod:      newPod("main"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec())},
			want:     resolve.Resolution{Enforced: view([]string{"main"})},
		},
		"with mainContainers every other container is a sidecar": {
			pod:      newPod("main", "proxy", "logs"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(mainContainers("main")))},
			want:     resolve.Resolution{Enforced: view([]string{"main"}, target("logs", mesh), target("proxy", mesh))},
		},
		"with mainContainers that the pod does not have every container is a sidecar": {
			pod:      newPod("proxy"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(mainContainers("main")))},
			want:     resolve.Resolution{Enforced: view(nil, target("proxy", mesh))},
		},
		"two policies may name different containers of one pod": {
			pod:      newPod("main", "proxy", "logs"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec()), cluster(t, "logging", 1, spec(sidecars("logs")))},
			want:     resolve.Resolution{Enforced: view([]string{"main"}, target("logs", clusterRefOf("logging")), target("proxy", mesh))},
		},
		"a policy and a variable that name one container are no conflict": {
			pod:      withEnv(newPod("main", "proxy"), terminate, "true"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(settings(v1alpha1.TerminationSettings{Mode: v1alpha1.ModeAuto})))},
			want:     resolve.Resolution{Enforced: view([]string{"main"}, target("proxy", mesh))},
		},
		"every loser is told who won": {
			pod:      newPod("main", "proxy"),
			policies: []resolve.Policy{cluster(t, "c", 1, spec()), namespaced(t, "b", 1, spec()), namespaced(t, "a", 1, spec())},
			want: resolve.Resolution{Enforced: view([]string{"main"}, target("proxy", refOf("a"))), Losses: []resolve.Loss{
				{Container: "proxy", Loser: refOf("b"), Winner: refOf("a")}, {Container: "proxy", Loser: clusterRefOf("c"), Winner: refOf("a")},
			}},
		},
		"a policy that is not enforced makes no sidecar": {
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
		"a policy that is not enforced is seen beside what is": {
			pod:      withEnv(newPod("main", "logs", "proxy"), terminate, "true"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(dryRun, sidecars("logs")))},
			want: resolve.Resolution{
				Enforced: view([]string{"main", "logs"}, fromVariables), DryRun: ptr.To(view([]string{"main"}, target("logs", mesh), fromVariables)),
			},
		},
		"an enforced policy loses nothing to one that is not": {
			pod:      newPod("main", "proxy"),
			policies: []resolve.Policy{cluster(t, "base", 1, spec()), namespaced(t, "mesh", 1, spec(dryRun))},
			want: resolve.Resolution{
				Enforced: view([]string{"main"}, target("proxy", clusterRefOf("base"))), DryRun: ptr.To(view([]string{"main"}, target("proxy", mesh))),
			},
		},
		"a policy that is not enforced loses to one that is, and would change nothing": {
			pod:      newPod("main", "proxy"),
			policies: []resolve.Policy{cluster(t, "base", 1, spec(dryRun)), namespaced(t, "mesh", 1, spec())},
			want: resolve.Resolution{
				Enforced: view([]string{"main"}, target("proxy", mesh)),
				Losses:   []resolve.Loss{{Container: "proxy", Loser: clusterRefOf("base"), Winner: mesh}},
			},
		},
		"a policy that is not enforced and names nothing is no matter": {
			pod:      newPod("main"),
			policies: []resolve.Policy{namespaced(t, "mesh", 1, spec(dryRun))},
			want:     resolve.Resolution{Enforced: view([]string{"main"})},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := resolve.Resolve(test.pod, test.policies, resolve.Options{})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Resolve() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNativeSidecars(t *testing.T) {
	pod := newPod("main")
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
		{Name: "setup"},
		{Name: "retry", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyOnFailure)},
	}
	mesh := refOf("mesh")
	tests := map[string]struct {
		spec v1alpha1.PolicySpec
		want []resolve.Warning
	}{
		"one that is named is warned of": {spec(), []resolve.Warning{{Container: "proxy", Reason: v1alpha1.ReasonNativeSidecar, Policy: &mesh}}},
		"one that is named by a policy that is not enforced is warned of": {
			spec(dryRun), []resolve.Warning{{Container: "proxy", Reason: v1alpha1.ReasonNativeSidecar, Policy: &mesh}},
		},
		"other init containers are passed over":                   {spec(sidecars("setup", "retry")), nil},
		"one that is not among the main containers is no sidecar": {spec(mainContainers("main")), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := resolve.Resolve(pod, []resolve.Policy{namespaced(t, "mesh", 1, test.spec)}, resolve.Options{})
			if diff := cmp.Diff(test.want, got.Warnings, cmpopts.IgnoreFields(resolve.Warning{}, "Message")); diff != "" {
				t.Errorf("Warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(resolve.View{Mains: []string{"main"}}, got.Enforced); diff != "" {
				t.Errorf("Enforced (-want +got):\n%s", diff)
			}
		})
	}
}

// Whoever may write policies must not be able to have the operator say, and remember, as much as they like.
func TestManyPoliciesOnNativeSidecarsAreOneWarningEach(t *testing.T) {
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
