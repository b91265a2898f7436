// SPDX-License-Identifier: Apache-2.0

package finish

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/safetext"
	"github.com/sidecar-termination/operator/internal/settings"
)

func TestParseNames(t *testing.T) {
	pod := func(name string) object { return object{name: name} }
	job := func(name string) object { return object{true, name} }
	for arguments, want := range map[string][]object{
		"":               nil,
		"pod":            nil,
		"pod/a":          {pod("a")},
		"po/a pods/b":    {pod("a"), pod("b")},
		"pods a b":       {pod("a"), pod("b")},
		"a pod/b":        {pod("a"), pod("b")},
		"job/a":          {job("a")},
		"jobs a b pod/a": {job("a"), job("b"), pod("a")},
	} {
		got, err := parseNames(strings.Fields(arguments))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(object{})); diff != "" || err != nil {
			t.Errorf("%q: %v, names (-want +got):\n%s", arguments, err, diff)
		}
	}
	for _, arguments := range []string{"job/", "pod/", "/a", "pod/a cronjob/b"} {
		if got, err := parseNames(strings.Fields(arguments)); err == nil {
			t.Errorf("%q: got %v, want an error", arguments, got)
		}
	}
}

// withLogs adds a third container, which runs.
func withLogs(pod *corev1.Pod) {
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "logs"})
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, podtest.Running("logs"))
}

func declaredByVariable(pod *corev1.Pod) {
	pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
}

// mainsOf returns a policy with main containers, of the namespace or of the cluster.
func mainsOf(kind resolve.PolicyKind, names ...v1alpha1.ContainerName) resolve.Policy {
	policy := podtest.Policy("mains")
	policy.Ref.Kind, policy.Spec.MainContainers = kind, names
	return policy
}

func inDryRun(policy resolve.Policy) resolve.Policy {
	policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
	return policy
}

// internal/plan tests the decision.
func TestDecide(t *testing.T) {
	mesh := podtest.Policy("mesh", "proxy")
	type decided struct {
		Reason v1alpha1.Reason
		Ends   []string
		Hint   string
	}
	operator, err := settings.Parse([]string{"--pod-phase=Disabled", "--crr=Disabled"})
	if err != nil {
		t.Fatal(err)
	}
	withoutVariables, err := settings.Parse([]string{"--env-convention=Disabled"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change   []func(*corev1.Pod)
		policies []resolve.Policy
		operator *settings.Operator
		sidecars []string
		want     decided
	}{
		"declared by policy":                        {policies: []resolve.Policy{mesh}, want: decided{v1alpha1.ReasonTerminating, []string{"proxy"}, ""}},
		"declared by variable":                      {change: []func(*corev1.Pod){declaredByVariable}, want: decided{v1alpha1.ReasonTerminating, []string{"proxy"}, ""}},
		"variables are off":                         {change: []func(*corev1.Pod){declaredByVariable}, operator: &withoutVariables, want: decided{v1alpha1.ReasonNoSidecar, nil, "name the sidecars with --sidecars"}},
		"named by user":                             {sidecars: []string{"proxy"}, want: decided{v1alpha1.ReasonTerminating, []string{"proxy"}, ""}},
		"named besides policy":                      {change: []func(*corev1.Pod){withLogs}, policies: []resolve.Policy{mesh}, sidecars: []string{"logs"}, want: decided{v1alpha1.ReasonTerminating, []string{"logs", "proxy"}, ""}},
		"undeclared":                                {want: decided{v1alpha1.ReasonNoSidecar, nil, "name the sidecars with --sidecars"}},
		"declared in DryRun":                        {policies: []resolve.Policy{inDryRun(podtest.Policy("mesh", "proxy"))}, want: decided{v1alpha1.ReasonNoSidecar, nil, "name those that policies with enforcement DryRun declare: --sidecars proxy"}},
		"named main container":                      {policies: []resolve.Policy{mainsOf(resolve.KindNamespaced, "main", "proxy")}, sidecars: []string{"proxy"}, want: decided{Reason: v1alpha1.ReasonOverridden}},
		"named main container of overridden policy": {policies: []resolve.Policy{mesh, mainsOf(resolve.KindCluster, "main", "proxy")}, sidecars: []string{"proxy"}, want: decided{v1alpha1.ReasonTerminating, []string{"proxy"}, ""}},
		"named main container in DryRun":            {policies: []resolve.Policy{inDryRun(mainsOf(resolve.KindCluster, "main", "proxy"))}, sidecars: []string{"proxy"}, want: decided{Reason: v1alpha1.ReasonOverridden}},
		"named sidecar, main container in DryRun":   {policies: []resolve.Policy{mesh, inDryRun(mainsOf(resolve.KindNamespaced, "main", "proxy"))}, sidecars: []string{"proxy"}, want: decided{v1alpha1.ReasonTerminating, []string{"proxy"}, ""}},
		"both in DryRun":                            {policies: []resolve.Policy{inDryRun(podtest.Policy("mesh", "proxy")), inDryRun(mainsOf(resolve.KindCluster, "main", "proxy"))}, want: decided{v1alpha1.ReasonNoSidecar, nil, "name the sidecars with --sidecars"}},
		"named container that the pod lacks":        {sidecars: []string{"none"}, want: decided{Reason: v1alpha1.ReasonContainerNotFound}},
		"one of two undeclared":                     {change: []func(*corev1.Pod){withLogs}, policies: []resolve.Policy{mesh}, want: decided{v1alpha1.ReasonMainContainersRunning, nil, "if one of these is a sidecar, name it with --sidecars"}},
	} {
		t.Run(name, func(t *testing.T) {
			used := &operator
			if tc.operator != nil {
				used = tc.operator
			}
			pod := explain.Pod{Input: podinput.Input{
				Pod: podtest.New(append(tc.change, podtest.MainDone)...), Policies: tc.policies, Node: plan.NodeReal,
			}}
			o := &options{mode: v1alpha1.ModePodPhase, sidecars: tc.sidecars, now: func() time.Time { return podtest.Noon.Add(time.Hour) }}
			decision, dryRun, why := o.decide(pod, used.Decisions)
			got := decided{Reason: why.reason + decision.Reason, Hint: hintOf(decision.Reason, dryRun)} // one of them is empty
			for _, action := range decision.Writes {
				got.Ends = append(got.Ends, action.Containers...)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s\n%s", diff, decision.Message)
			}
			if len(used.Resolve.Sidecars) > 0 {
				t.Error("the settings of the operator were changed")
			}
		})
	}
}

func TestCheckSidecars(t *testing.T) {
	pod := explain.Pod{Input: podinput.Input{Pod: podtest.New(), Policies: []resolve.Policy{mainsOf(resolve.KindNamespaced, "main")}}}
	for name, want := range map[string]string{
		"proxy": "",
		"main":  "--sidecars names main, which SidecarTerminationPolicy/mains declares a main container",
		"none":  "--sidecars names none, which is no regular container of the pod",
		"prox":  "--sidecars names prox, which is no regular container of the pod; did you mean proxy?",
	} {
		o := &options{sidecars: []string{name}}
		if got := o.checkSidecars(pod, pod.Resolve(resolve.Options{}).Enforced); got.message != want {
			t.Errorf("%s: got %q, want %q", name, got.message, want)
		}
	}
}

func TestEventOfLongNames(t *testing.T) {
	o := &options{now: func() time.Time { return podtest.Noon }}
	for _, name := range []string{"job-1", strings.Repeat("x", 253), strings.Repeat("x", 57) + ".y", "report-" + strings.Repeat("a.", 100) + "b"} {
		event := o.event(podtest.New(func(p *corev1.Pod) { p.Name = name }), strings.Repeat("é", safetext.MaxEventNote))
		if problems := validation.NameIsDNSSubdomain(event.Name, false); len(problems) > 0 {
			t.Errorf("pod %s: event name %q: %v", name, event.Name, problems)
		}
		if len(event.Note) > safetext.MaxEventNote || event.Regarding.Name != name {
			t.Errorf("pod %s: a note of %d bytes about pod %s", name, len(event.Note), event.Regarding.Name)
		}
	}
}
