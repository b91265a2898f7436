// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/sidecars"
)

// noon is the time of the tests.
var noon = podtest.Noon

// fixture is the template of a Job with main and proxy, on a cluster with OpenKruise and no virtual nodes.
type fixture struct {
	explain.Pod
	operator settings.Decisions
	cluster  explain.Cluster
}

func newFixture() *fixture {
	return &fixture{
		Pod: explain.Pod{
			Kind: "Job", Name: "job", Template: true, BackoffLimit: ptr.To(int32(6)),
			Input: podinput.Input{Pod: &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job"},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{{Name: "main"}, {Name: "proxy"}},
				},
			}},
		},
		operator: settings.Decisions{
			Resolve:       resolve.Options{ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore},
			NodeKindRules: plan.DefaultNodeKindRules(),
			Capabilities:  plan.Capabilities{EnabledModes: plan.EnabledModes{CRR: true, Image: true, PodPhase: plan.PodPhaseEnabled}},
		},
		cluster: explain.Cluster{Kruise: ptr.To(true), VirtualNodes: ptr.To(false), DaemonlessNodes: ptr.To(false)},
	}
}

// policy adds a policy with the sidecars.
func (w *fixture) policy(change func(*v1alpha1.PolicySpec), sidecars ...string) {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "batch", Name: fmt.Sprintf("p%d", len(w.Policies)), CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
	}}
	spec := &policy.Spec.PolicySpec
	spec.Enforcement = v1alpha1.EnforcementEnforce
	spec.Sidecars = entries(sidecars)
	change(spec)
	parsed, err := resolve.Parse(policy)
	if err != nil {
		panic(err)
	}
	w.Policies = append(w.Policies, parsed)
}

func asIs(*v1alpha1.PolicySpec) {}

func mode(m v1alpha1.Mode) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.Mode = m }
}

func only(m v1alpha1.Mode) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.Mode, s.Fallback = m, v1alpha1.FallbackDisabled }
}

// withImage declares proxy, with a default image.
func withImage(change func(*v1alpha1.PolicySpec)) func(*fixture) {
	return func(w *fixture) { w.policy(change, "proxy"); w.operator.Resolve.Image = "quick-exit:v1" }
}

// uncovered gives the sidecar a command that the default image does not cover.
func uncovered(change func(*v1alpha1.PolicySpec)) func(*fixture) {
	return func(w *fixture) {
		withImage(change)(w)
		w.Pod.Pod.Spec.Containers[1].Command = []string{"/opt/proxy"}
	}
}

func drains(s *v1alpha1.PolicySpec)  { s.DrainSeconds = ptr.To(int32(7200)) }
func dryRun(s *v1alpha1.PolicySpec)  { s.Enforcement = v1alpha1.EnforcementDryRun }
func respect(s *v1alpha1.PolicySpec) { s.ExitCodePolicy = v1alpha1.ExitCodePolicyRespect }

func mains(names ...v1alpha1.ContainerName) func(*v1alpha1.PolicySpec) {
	return func(s *v1alpha1.PolicySpec) { s.MainContainers = names }
}

// live makes the template a pod, marked and recorded, in which main exited with the code and proxy runs.
func (w *fixture) live(ago time.Duration, code int32) {
	w.Kind, w.Template, w.Node = "Pod", false, plan.NodeReal
	w.Pod.Pod.UID, w.Pod.Pod.Spec.NodeName = "4a1b", "node-1"
	w.Pod.Pod.Labels = map[string]string{v1alpha1.LabelOutcome: v1alpha1.OutcomeMainContainers}
	w.Pod.Pod.Annotations = map[string]string{v1alpha1.AnnotationIgnoredExitCodes: "proxy/4a1b", v1alpha1.AnnotationMainContainers: "Succeeded/4a1b"}
	if code != 0 {
		w.Pod.Pod.Annotations[v1alpha1.AnnotationMainContainers] = "Running/4a1b"
	}
	main := podtest.Ended("main", code)
	main.State.Terminated.FinishedAt = metav1.NewTime(noon.Add(-ago))
	w.Pod.Pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{main, podtest.Running("proxy")}}
}

// succeeded makes the template a pod with that phase.
func (w *fixture) succeeded() {
	w.live(time.Hour, 0)
	w.Pod.Pod.Status.Phase = corev1.PodSucceeded
}

// also adds a container.
func (w *fixture) also(name string) {
	w.Pod.Pod.Spec.Containers = append(w.Pod.Pod.Spec.Containers, corev1.Container{Name: name})
}

// known gives proxy the image of a known sidecar.
func (w *fixture) known() { w.Pod.Pod.Spec.Containers[1].Image = "envoyproxy/envoy:v1.31.0" }

// restartsAlways gives the container a restartPolicy of its own.
func (w *fixture) restartsAlways(container int) {
	w.Pod.Pod.Spec.Containers[container].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
}

// unmark makes the pod one that the operator has not marked yet.
func (w *fixture) unmark() { w.Pod.Pod.Labels, w.Pod.Pod.Annotations = nil, nil }

// runs makes the template a pod on a node of this kind. Both containers run.
func (w *fixture) runs(on plan.NodeKind) {
	w.live(0, 0)
	w.Node = on
	w.Pod.Pod.Annotations[v1alpha1.AnnotationMainContainers] = "Running/4a1b"
	w.Pod.Pod.Status.ContainerStatuses[0].State = w.Pod.Pod.Status.ContainerStatuses[1].State
}

// watchesBatch makes the operator one for the pod's namespace.
func (w *fixture) watchesBatch() {
	w.operator.WatchNamespaces, w.operator.Capabilities.NamespacesOnly = []string{"batch"}, true
}

// unchanged fails the test if the function modified its argument, which equals the copy before the call.
func unchanged(t *testing.T, function string, copied, given any) {
	t.Helper()
	all := cmp.Exporter(func(reflect.Type) bool { return true })
	if difference := cmp.Diff(copied, given, all); difference != "" {
		t.Errorf("%s modified its argument (-before +after):\n%s", function, difference)
	}
}

// list gives the pod a list of its sidecars.
func (w *fixture) list(value string) {
	w.Pod.Pod.Annotations = map[string]string{v1alpha1.AnnotationSidecars: value}
}

func injected(s *v1alpha1.PolicySpec) { s.IncludeInjected = true }

func TestFindings(t *testing.T) {
	const problem, warning, note = explain.SeverityProblem, explain.SeverityWarning, explain.SeverityNote
	for name, tc := range map[string]struct {
		change func(w *fixture)
		want   []string // SEVERITY REASON CONTAINER, worst first
	}{
		"no finding": {func(w *fixture) { w.policy(asIs, "proxy") }, nil},

		"restartPolicy Always": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		}, []string{"Problem RestartPolicyAlways "}},
		"restartPolicy Always without declaration": {func(w *fixture) { w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }, nil},
		"only sidecars": {func(w *fixture) { w.policy(asIs, "main", "proxy") }, []string{"Problem NoMainContainer "}},
		"native sidecar": {func(w *fixture) {
			w.policy(asIs, "proxy", "native")
			w.Pod.Pod.Spec.InitContainers = []corev1.Container{{Name: "native", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		}, []string{"Note NativeSidecar native"}},
		"unreadable variable": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, ValueFrom: &corev1.EnvVarSource{}}}
		}, []string{"Problem InvalidEnv proxy", "Warning MayHang "}},
		"invalid variable": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "yes"}}
		}, []string{"Problem InvalidEnv proxy", "Warning MayHang "}},
		"unknown enforcement": {func(w *fixture) {
			w.policy(func(s *v1alpha1.PolicySpec) { s.Enforcement = "Audit" }, "proxy")
		}, []string{"Warning DryRun proxy"}},
		"DryRun policy and enforced policy": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.policy(func(s *v1alpha1.PolicySpec) { dryRun(s); s.Priority = 1 }, "proxy")
		}, []string{"Note DryRun proxy"}},
		"overridden policy": {func(w *fixture) {
			w.policy(asIs, "main")
			w.policy(func(s *v1alpha1.PolicySpec) { s.Priority, s.MainContainers = 1, []v1alpha1.ContainerName{"main"} })
		}, []string{"Note Overridden main"}},
		"overridden field": {func(w *fixture) {
			w.policy(mode(v1alpha1.ModeCRR), "proxy")
			w.policy(func(s *v1alpha1.PolicySpec) { s.Priority, s.Mode = 1, v1alpha1.ModePodPhase }, "proxy")
		}, []string{"Note Overridden proxy"}},
		"opted out": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.Pod.Pod.Labels = map[string]string{v1alpha1.LabelIgnore: "true"}
		}, []string{"Warning MayHang ", "Note OptedOut "}},
		"injected containers": {func(w *fixture) { w.policy(injected); w.JobContainers = []string{"main"} }, nil},
		"injected containers, Jobs forbidden": {func(w *fixture) {
			w.policy(injected)
			w.JobContainers, w.JobsForbidden = []string{"main"}, true
		}, []string{"Warning JobsForbidden ", "Warning MayHang "}},
		"no Job template":   {func(w *fixture) { w.policy(injected) }, []string{"Warning MayHang "}},
		"missing container": {func(w *fixture) { w.policy(asIs, "proxy", "other") }, []string{"Note ContainerNotFound "}},

		"mode CRR, no Kruise":      {withoutKruise(mode(v1alpha1.ModeCRR)), []string{"Warning CRRUnavailable proxy"}},
		"mode CRR only, no Kruise": {withoutKruise(only(v1alpha1.ModeCRR)), []string{"Problem CRRUnavailable proxy"}},
		"mode CRR only, Kruise unknown": {func(w *fixture) {
			w.policy(only(v1alpha1.ModeCRR), "proxy")
			w.cluster = explain.Cluster{}
		}, []string{"Warning CRRUnavailable proxy"}},
		"mode Image only, no image": {func(w *fixture) { w.policy(only(v1alpha1.ModeImage), "proxy") }, []string{"Problem NoQuickExitImage proxy"}},
		"mode Image, no image":      {func(w *fixture) { w.policy(mode(v1alpha1.ModeImage), "proxy") }, []string{"Warning NoQuickExitImage proxy"}},
		"virtual nodes, no image": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.cluster.VirtualNodes = ptr.To(true)
		}, []string{"Warning NoUsableMode proxy"}},
		"no usable mode": {withoutKruise(respect), []string{"Problem NoUsableMode proxy"}},
		"mode disabled": {func(w *fixture) {
			w.policy(mode(v1alpha1.ModePodPhase), "proxy")
			w.operator.Capabilities.PodPhase = plan.PodPhaseDisabled
		}, []string{"Warning ModeDisabled proxy"}},
		"backoffLimit reached by mode Image": {func(w *fixture) {
			withImage(mode(v1alpha1.ModeImage))(w)
			w.BackoffLimit, w.Pod.Pod.Spec.RestartPolicy = ptr.To(int32(1)), corev1.RestartPolicyOnFailure
		}, []string{"Problem BackoffLimitRisk "}},
		"backoffLimit not reached by mode Image": {func(w *fixture) {
			w.policy(mode(v1alpha1.ModeImage), "proxy")
			w.operator.Resolve.Image, w.Pod.Pod.Spec.RestartPolicy = "quick-exit:v1", corev1.RestartPolicyOnFailure
		}, []string{"Warning BackoffLimitRisk "}},
		"mode Image without Job": {func(w *fixture) {
			w.policy(mode(v1alpha1.ModeImage), "proxy")
			w.operator.Resolve.Image, w.BackoffLimit, w.Pod.Pod.Spec.RestartPolicy = "quick-exit:v1", nil, corev1.RestartPolicyOnFailure
		}, []string{"Note BackoffLimitRisk "}},
		"two that mode CRR stops one after the other": {func(w *fixture) {
			w.policy(mode(v1alpha1.ModeCRR), "main", "proxy")
			w.also("work")
			w.BackoffLimit, w.Pod.Pod.Spec.RestartPolicy = ptr.To(int32(1)), corev1.RestartPolicyOnFailure
		}, []string{"Problem BackoffLimitRisk "}},
		"order that OpenKruise keeps": {ordered(nil), nil},
		"order that nothing keeps":    {ordered(func(w *fixture) { w.cluster.Kruise = ptr.To(false) }), []string{"Warning OrderNotKept "}},
		"order that an image keeps": {ordered(func(w *fixture) {
			w.cluster.Kruise, w.operator.Resolve.Image = ptr.To(false), "quick-exit:v1"
		}), nil},
		"order that OpenKruise may keep": {ordered(func(w *fixture) { w.cluster.Kruise = nil }), nil},
		"command not covered":            {uncovered(mode(v1alpha1.ModeImage)), []string{"Warning CommandNotCovered proxy"}},
		"command not covered, no fallback": {
			uncovered(only(v1alpha1.ModeImage)), []string{"Problem CommandNotCovered proxy"},
		},
		"image from environment variable": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[1].Command = []string{"/opt/proxy"}
			w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminateWithImage, Value: "quick-exit:v1"}}
		}, nil},
		"stuck pod, command not covered": {func(w *fixture) {
			uncovered(only(v1alpha1.ModeImage))(w)
			w.live(time.Hour, 0)
		}, []string{"Problem CommandNotCovered "}},
		"unknown kind of nodes": {func(w *fixture) {
			uncovered(asIs)(w)
			w.operator.NodeKindRules.All = plan.NodeNotRead
		}, []string{"Problem NoUsableMode proxy"}},
		"mode PodPhase, unknown kind of nodes": {func(w *fixture) {
			w.policy(only(v1alpha1.ModePodPhase), "proxy")
			w.operator.NodeKindRules.All = plan.NodeNotRead
		}, []string{"Problem NodeKindUnknown proxy"}},
		"mode CRR only, an operator for single namespaces": {func(w *fixture) {
			w.policy(only(v1alpha1.ModeCRR), "proxy")
			w.watchesBatch()
		}, []string{"Problem CRRUnavailable proxy"}},
		"an operator for other namespaces": {func(w *fixture) {
			w.operator.WatchNamespaces = []string{"etl"}
		}, []string{"Warning NamespaceNotWatched ", "Warning MayHang "}},
		"an operator for other namespaces, declared by the pod": {func(w *fixture) {
			w.operator.WatchNamespaces = []string{"etl"}
			w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "true"}}
			w.live(time.Hour, 0)
			w.list("proxy")
		}, []string{"Problem MayHang proxy", "Warning NamespaceNotWatched "}},
		"mode CRR only on daemonless node": {func(w *fixture) {
			w.policy(only(v1alpha1.ModeCRR), "proxy")
			w.runs(plan.NodeDaemonless)
		}, []string{"Problem NoKruiseDaemon proxy"}},
		"mode CRR only, daemonless nodes": {func(w *fixture) {
			w.policy(only(v1alpha1.ModeCRR), "proxy")
			w.cluster.DaemonlessNodes = ptr.To(true)
		}, []string{"Warning NoKruiseDaemon proxy"}},

		"no declaration": {func(*fixture) {}, []string{"Warning MayHang "}},
		"envFrom": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[1].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
		}, []string{"Warning MayHang ", "Note InvalidEnv proxy"}},
		"envFrom with policy": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.Pod.Pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
			w.Pod.Pod.Spec.Containers[1].EnvFrom = w.Pod.Pod.Spec.Containers[0].EnvFrom
		}, nil},
		"envFrom with prefix": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[1].EnvFrom = []corev1.EnvFromSource{{Prefix: "APP_", ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
		}, []string{"Warning MayHang "}},
		"undeclared well-known sidecar": {func(w *fixture) {
			w.Pod.Pod.Spec.Containers[1].Name = "istio-proxy"
		}, []string{"Problem MayHang istio-proxy"}},
		"restartPolicy Always of a container":      {func(w *fixture) { w.restartsAlways(1) }, []string{"Problem MayHang proxy"}},
		"restartPolicy Always of a known sidecar":  {func(w *fixture) { w.restartsAlways(1); w.Pod.Pod.Spec.Containers[1].Name = "envoy" }, []string{"Problem MayHang envoy"}},
		"restartPolicy Always of a sidecar":        {func(w *fixture) { w.restartsAlways(1); w.policy(asIs, "proxy") }, nil},
		"restartPolicy Always of every container":  {func(w *fixture) { w.restartsAlways(0); w.restartsAlways(1) }, []string{"Warning MayHang "}},
		"restartPolicy Always on an older kubelet": {func(w *fixture) { w.restartsAlways(1); w.Kubelet.Version = "v1.34.2" }, []string{"Warning MayHang "}},
		"restartPolicy Always of a main container": {func(w *fixture) { w.restartsAlways(1); w.policy(mains("main", "proxy")) }, []string{"Problem MayHang "}},
		"single container":                         {func(w *fixture) { w.only("envoy") }, nil},
		"mainContainers":                           {func(w *fixture) { w.policy(mains("main", "proxy")) }, nil},
		"annotation":                               {func(w *fixture) { w.list("proxy") }, nil},
		"too long annotation":                      {func(w *fixture) { w.list(strings.Repeat("proxy,", 40)) }, []string{"Problem InvalidSidecars ", "Warning MayHang "}},

		"main will restart": {func(w *fixture) {
			w.live(time.Minute, 1)
			w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			w.policy(asIs, "proxy")
		}, nil},
		"action just due": {func(w *fixture) { w.live(time.Second, 0); w.policy(asIs, "proxy") }, nil},
		"draining pod with deadlines": {func(w *fixture) {
			w.live(30*time.Second, 0)
			w.policy(drains, "proxy")
			w.Job, w.JobDeadline = "job", noon.Add(time.Minute)
			w.Pod.Pod.Status.StartTime, w.Pod.Pod.Spec.ActiveDeadlineSeconds = ptr.To(metav1.NewTime(noon.Add(-time.Hour))), ptr.To[int64](3700)
		}, []string{"Warning DeadlineRisk ", "Note DeadlineRisk "}},
		"draining pod": {func(w *fixture) { w.live(time.Hour, 0); w.policy(drains, "proxy") }, nil},
		"DryRun policy for hanging pod": {func(w *fixture) { w.live(time.Hour, 0); w.policy(dryRun, "proxy") },
			[]string{"Problem DryRun proxy", "Warning WouldTerminate "}},
		"DryRun policy for running pod": {func(w *fixture) { w.runs(plan.NodeReal); w.policy(dryRun, "proxy") }, []string{"Warning DryRun proxy"}},
		"sidecar after one that ended late": {ordered(func(w *fixture) {
			w.live(time.Hour, 0)
			logs := podtest.Ended("logs", 143)
			logs.State.Terminated.FinishedAt = metav1.NewTime(noon.Add(-10 * time.Second))
			w.Pod.Pod.Status.ContainerStatuses = append(w.Pod.Pod.Status.ContainerStatuses, logs)
			w.Attempts = []plan.Attempt{{Mode: v1alpha1.ModeCRR, Number: 1, RestartCounts: map[string]int32{"logs": 0}, Started: noon.Add(-20 * time.Minute)}}
		}), nil},
		"mark overdue": {func(w *fixture) { w.live(time.Hour, 0); w.unmark(); w.policy(asIs, "proxy") }, []string{"Problem Overdue "}},
		"disrupted pod": {func(w *fixture) {
			w.live(time.Hour, 0)
			w.Pod.Pod.Status.Reason = "Evicted"
			w.policy(asIs, "proxy")
		}, nil},
		"finished pod":          {(*fixture).succeeded, nil},
		"main container failed": {func(w *fixture) { w.live(time.Hour, 1); w.policy(asIs, "proxy") }, []string{"Problem Overdue "}},
		// A manifest may have a status without a node.
		"main ended and no node": {func(w *fixture) {
			w.live(time.Hour, 0)
			w.policy(asIs, "proxy")
			w.Pod.Pod.Spec.NodeName, w.Node = "", plan.NodeUnknown
		}, nil},
		"rules of a podFailurePolicy": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.FailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				ruleFor("", batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyOnExitCodesOpIn, 143, 137),
				ruleFor("", batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyOnExitCodesOpIn, 1),
			}}
		}, []string{"Warning SidecarMatchesFailurePolicy proxy"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, copied := newFixture(), newFixture()
			tc.change(w)
			tc.change(copied)
			report := explain.Explain(w.Pod, w.operator, w.cluster, noon)
			unchanged(t, "Explain", copied, w)
			again := explain.Explain(w.Pod, w.operator, w.cluster, noon)
			for _, policy := range w.Policies {
				explain.DescribePolicy(explain.Policy{Policy: policy}, []explain.Report{report}, w.operator, w.cluster)
			}
			explain.Lint(report.Findings)
			unchanged(t, "DescribePolicy or Lint", again, report)
			unchanged(t, "DescribePolicy", copied, w)
			keepsRoles(t, w, report.Findings)
			var got []string
			for _, f := range report.Findings {
				if !slices.Contains([]explain.Severity{problem, warning, note}, f.Severity) || f.Message == "" {
					t.Errorf("incomplete finding: %+v", f)
				}
				if f.Severity == problem && f.Hint == "" || f.Hint != "" && len(f.Commands) == 0 && !strings.Contains(f.Hint, "no command") {
					t.Errorf("finding without a hint, or a hint without a command: %+v", f)
				}
				got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Reason, f.Container))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q; messages: %+v", got, tc.want, report.Findings)
			}
		})
	}
}

// Each known sidecar that something injects or that a team adds by itself has a finding, unless something ends it.
func TestKnownSidecarMayHangUnlessItIsEnded(t *testing.T) {
	for _, known := range sidecars.Table {
		name := strings.NewReplacer("{namespace}", "batch", "{name}", "orders").Replace(known.Containers[0])
		t.Run(name, func(t *testing.T) {
			var want []string
			if known.EndedBy == "" {
				want = []string{"Problem " + name}
			}
			w := newFixture()
			w.Pod.Pod.Spec.Containers[1].Name = name
			added := newFixture()
			added.Pod.Pod.Spec.Containers = added.Pod.Pod.Spec.Containers[:1]
			added.Injected = []sidecars.Injection{{Sidecar: &sidecars.Sidecar{}, Container: name}}
			for place, w := range map[string]*fixture{"in the pod": w, "injected": added} {
				var got []string
				for _, f := range explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings {
					got = append(got, fmt.Sprintf("%s %s", f.Severity, f.Container))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", place, diff)
				}
			}
		})
	}
}

// The attempt of mode PodPhase is the pod's mark, once its main containers are done.
func TestAttempts(t *testing.T) {
	swap := plan.Attempt{Mode: v1alpha1.ModeImage, Number: 1, RestartCounts: map[string]int32{"proxy": 0}, Started: noon.Add(-2 * time.Minute)}
	for name, tc := range map[string]struct {
		change func(w *fixture)
		want   []explain.Attempt
	}{
		"none": {func(w *fixture) { w.live(time.Minute, 0) }, nil},
		"mark in advance": {func(w *fixture) {
			w.runs(plan.NodeReal)
			w.Pod.Pod.Annotations[v1alpha1.AnnotationEnd] = "PodPhase/4a1b"
		}, nil},
		"image, then phase": {func(w *fixture) {
			w.live(10*time.Second, 0)
			w.Pod.Pod.Annotations[v1alpha1.AnnotationEnd], w.Pod.Pod.Status.Phase = "PodPhase/4a1b", corev1.PodSucceeded
			w.Attempts = []plan.Attempt{swap}
		}, []explain.Attempt{
			{Mode: v1alpha1.ModeImage, Number: 1, Sidecars: []string{"proxy"}, StartTime: metav1.NewTime(swap.Started), Failure: "container proxy had not ended 1m0s after mode Image was used"},
			{Mode: v1alpha1.ModePodPhase, Number: 1, Sidecars: []string{"proxy"}, StartTime: metav1.NewTime(noon.Add(-10 * time.Second))},
		}},
		"late phase": {func(w *fixture) {
			w.live(time.Hour, 0)
			w.Pod.Pod.Annotations[v1alpha1.AnnotationEnd], w.Pod.Pod.Status.Phase = "PodPhase/4a1b", corev1.PodSucceeded
			w.PhaseSince = noon.Add(-time.Second)
		}, []explain.Attempt{{Mode: v1alpha1.ModePodPhase, Number: 1, Sidecars: []string{"proxy"}, StartTime: metav1.NewTime(noon.Add(-time.Second))}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.policy(asIs, "proxy")
			tc.change(w)
			if diff := cmp.Diff(tc.want, explain.Explain(w.Pod, w.operator, w.cluster, noon).Attempts); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
		})
	}
}

// The modes of a sidecar begin with the attempt that the report lists last, or with the one that its message announces.
func TestModesBeginWithTheCurrentAttempt(t *testing.T) {
	tried := func(mode v1alpha1.Mode, number int, ago time.Duration) func(*fixture) {
		return func(w *fixture) {
			w.live(time.Hour, 0)
			w.Attempts = append(w.Attempts, plan.Attempt{Mode: mode, Number: number, RestartCounts: map[string]int32{"proxy": 0}, Started: noon.Add(-ago)})
		}
	}
	const crr, image = v1alpha1.ModeCRR, v1alpha1.ModeImage
	for name, tc := range map[string]struct {
		policy func(*v1alpha1.PolicySpec)
		change func(w *fixture)
		want   string // modes, the number of the attempt, and why there is no mode
	}{
		"no attempt":        {asIs, func(w *fixture) { w.live(time.Hour, 0) }, "[CRR PodPhase] 0 "},
		"in progress":       {asIs, tried(crr, 1, time.Second), "[CRR PodPhase] 1 "},
		"another mode":      {asIs, tried(image, 1, time.Second), "[Image CRR PodPhase] 1 "},
		"after a failure":   {asIs, tried(crr, 1, 30*time.Minute), "[PodPhase] 1 "},
		"repeated":          {only(crr), tried(crr, 1, 30*time.Minute), "[CRR] 2 "},
		"before the repeat": {only(crr), tried(crr, 1, 61*time.Second), "[] 0 Stuck"},
		"ended by its phase": {asIs, func(w *fixture) {
			tried(image, 1, 2*time.Minute)(w)
			w.live(10*time.Second, 0)
			w.Pod.Pod.Annotations[v1alpha1.AnnotationEnd], w.Pod.Pod.Status.Phase = "PodPhase/4a1b", corev1.PodSucceeded
		}, "[PodPhase] 1 "},
		"ended": {asIs, func(w *fixture) {
			tried(image, 1, time.Minute)(w)
			w.Pod.Pod.Status.Phase = corev1.PodSucceeded
			w.Pod.Pod.Status.ContainerStatuses[1].State = w.Pod.Pod.Status.ContainerStatuses[0].State
		}, "[Image] 1 "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.policy(tc.policy, "proxy")
			tc.change(w)
			report := explain.Explain(w.Pod, w.operator, w.cluster, noon)
			on := report.Containers[1].Settings.Nodes[0]
			if diff := cmp.Diff(tc.want, fmt.Sprintf("%v %d %s", on.Modes, on.Attempt, on.Reason)); diff != "" {
				t.Errorf("modes (-want +got):\n%s", diff)
			}
			if announces := fmt.Sprintf("(attempt %d)", on.Attempt); on.Attempt > 1 && report.Stage != plan.StageStuck && !strings.Contains(report.Message, announces) {
				t.Errorf("message %q lacks %q", report.Message, announces)
			}
		})
	}
}

// ordered declares that proxy ends after logs.
func ordered(change func(*fixture)) func(*fixture) {
	return func(w *fixture) {
		w.Pod.Pod.Spec.Containers = append(w.Pod.Pod.Spec.Containers, corev1.Container{Name: "logs", Command: []string{"/usr/bin/envoy"}})
		w.policy(func(s *v1alpha1.PolicySpec) { s.Sidecars[1].TerminationOrder = ptr.To(int32(100)) }, "logs", "proxy")
		if change != nil {
			change(w)
		}
	}
}

// TestOriginsOfSettings has one setting from each place.
func TestOriginsOfSettings(t *testing.T) {
	w := newFixture()
	w.operator.Resolve.Image = "operator:v1"
	w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvIgnoreExitCode, Value: "false"}}
	w.policy(func(s *v1alpha1.PolicySpec) {
		s.Mode, s.DrainSeconds = v1alpha1.ModeCRR, ptr.To(int32(3))
		s.Sidecars[0].DrainSeconds, s.Sidecars[0].TerminationOrder = ptr.To(int32(5)), ptr.To(int32(100))
	}, "proxy")
	w.policy(func(s *v1alpha1.PolicySpec) { s.TerminationDeadlineSeconds = ptr.To(int32(60)) }, "proxy")
	container := explain.Explain(w.Pod, w.operator, w.cluster, noon).Containers[1]
	container.Settings.Nodes = nil
	const first, second = "SidecarTerminationPolicy/p0", "SidecarTerminationPolicy/p1"
	want := &explain.Settings{
		Mode:                       explain.Setting[v1alpha1.Mode]{Value: v1alpha1.ModeCRR, Origin: explain.Origin{Source: resolve.SourcePolicy, Policy: first}},
		Image:                      explain.Setting[string]{Value: "operator:v1", Origin: explain.Origin{Source: resolve.SourceOperator}},
		QuickExitPaths:             explain.Setting[[]string]{Value: []string{"default"}, Origin: explain.Origin{Source: resolve.SourceDefault}},
		ExitCodePolicy:             explain.Setting[v1alpha1.ExitCodePolicy]{Value: v1alpha1.ExitCodePolicyRespect, Origin: explain.Origin{Source: resolve.SourceEnvironment}},
		DrainSeconds:               explain.Setting[int64]{Value: 5, Origin: explain.Origin{Source: resolve.SourceEntry, Policy: first}},
		TerminationOrder:           explain.Setting[int32]{Value: 100, Origin: explain.Origin{Source: resolve.SourceEntry, Policy: first}},
		TerminationDeadlineSeconds: explain.Setting[int64]{Value: 60, Origin: explain.Origin{Source: resolve.SourcePolicy, Policy: second}},
		Fallback:                   explain.Setting[v1alpha1.Fallback]{Value: v1alpha1.FallbackEnabled, Origin: explain.Origin{Source: resolve.SourceDefault}},
	}
	if difference := cmp.Diff(want, container.Settings); difference != "" || container.DeclaredBy != first {
		t.Errorf("declared by %s, settings (-want +got):\n%s", container.DeclaredBy, difference)
	}
}

// A sidecar that only a DryRun policy declares keeps its pod from finishing, so lint reports it.
func TestLintReportsDeclarationInDryRun(t *testing.T) {
	const only = "SidecarTerminationPolicy/p0 declares container proxy only in DryRun: "
	for name, tc := range map[string]struct {
		change func(w *fixture)
		want   []string
	}{
		"hanging pod": {func(w *fixture) { w.live(time.Hour, 0) }, []string{"Problem " + only + "the pod still hangs"}},
		"running pod": {func(w *fixture) { w.runs(plan.NodeReal) }, []string{"Warning " + only + "the pod will hang"}},
		"template":    {func(*fixture) {}, []string{"Warning " + only + "the pod will hang"}},
		"finished":    {(*fixture).succeeded, nil},
		"enforced":    {func(w *fixture) { w.policy(asIs, "proxy") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.policy(dryRun, "proxy")
			tc.change(w)
			found := explain.Lint(explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings)
			if diff := cmp.Diff(tc.want, messages(found, v1alpha1.ReasonDryRun)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMethodsByNodeType(t *testing.T) {
	const onReal, withKruise, without = "real node[CRR PodPhase Image]", "real node, OpenKruise[CRR PodPhase Image]", "real node, no OpenKruise[PodPhase Image]"
	const daemonless, virtual = "node without OpenKruise's daemon[PodPhase Image]", "virtual node[Image]"
	for name, tc := range map[string]struct {
		change func(w *fixture)
		want   []string
	}{
		"unknown cluster": {func(w *fixture) { w.cluster = explain.Cluster{} }, []string{withKruise, without, virtual}},
		"unknown nodes": {func(w *fixture) { w.cluster = explain.Cluster{Kruise: ptr.To(true)} },
			[]string{onReal, daemonless, virtual}},
		"real nodes only": {func(*fixture) {}, []string{onReal}},
		"all node kinds": {func(w *fixture) { w.cluster.DaemonlessNodes, w.cluster.VirtualNodes = ptr.To(true), ptr.To(true) },
			[]string{onReal, daemonless, virtual}},
		"daemonless nodes, no Kruise": {func(w *fixture) {
			w.cluster.Kruise, w.cluster.DaemonlessNodes = ptr.To(false), ptr.To(true)
		}, []string{"real node[PodPhase Image]"}},
		"pod on daemonless node": {func(w *fixture) { w.runs(plan.NodeDaemonless) }, []string{daemonless}},
		"pod on virtual node":    {func(w *fixture) { w.runs(plan.NodeVirtual) }, []string{virtual}},
		"marked pod without an answer": {func(w *fixture) {
			w.runs(plan.NodeReal)
			delete(w.Pod.Pod.Annotations, v1alpha1.AnnotationMainContainers)
		},
			[]string{"real node[CRR PodPhase Image]"}},
		"phase as a last resort": {func(w *fixture) { w.operator.Capabilities.PodPhase = plan.PodPhaseLastResort },
			[]string{"real node[CRR Image PodPhase]"}},
		"resource claim": {func(w *fixture) { w.Pod.Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
			[]string{"real node[CRR Image PodPhase]"}},
		"restartPolicy Always": {func(w *fixture) { w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways },
			[]string{"any node[]"}},
		"only sidecars": {func(w *fixture) { w.policy(asIs, "main") }, []string{"any node[]"}},
		"an operator without OpenKruise": {func(w *fixture) {
			w.operator.WatchNamespaces, w.operator.Capabilities.NamespacesOnly, w.cluster.Kruise = []string{"batch"}, true, nil
			w.operator.NodeKindRules.All = plan.NodeReal
		}, []string{"real node[PodPhase Image]"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.policy(asIs, "proxy")
			w.operator.Resolve.Image = "operator:v1"
			tc.change(w)
			var got []string
			for _, onNode := range explain.Explain(w.Pod, w.operator, w.cluster, noon).Containers[1].Settings.Nodes {
				got = append(got, fmt.Sprint(onNode.NodeType, onNode.Modes))
				if (len(onNode.Modes) == 0) != (onNode.Reason != "" && onNode.Message != "") {
					t.Errorf("%s: modes are %v for reason %q: %s", onNode.NodeType, onNode.Modes, onNode.Reason, onNode.Message)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDescribePolicy(t *testing.T) {
	w := newFixture()
	w.live(time.Hour, 0)
	w.policy(mains("main", "proxy"))
	w.policy(func(s *v1alpha1.PolicySpec) { s.Priority = 1 }, "proxy")
	reports := []explain.Report{explain.Explain(w.Pod, w.operator, w.cluster, noon)}
	describe := func(i int) explain.PolicyReport {
		return explain.DescribePolicy(explain.Policy{Policy: w.Policies[i]}, reports, w.operator, w.cluster)
	}
	if overridden := describe(0); len(overridden.Pods) != 0 || len(overridden.Findings) != 2 || overridden.Findings[0].Reason != v1alpha1.ReasonOverridden {
		t.Errorf("the overridden policy has %+v", overridden)
	}
	enforced := describe(1)
	if len(enforced.Pods) != 1 || enforced.Pods[0].Name != "job" || enforced.Findings[0].Reason != v1alpha1.ReasonOverdue {
		t.Errorf("the enforced policy has %+v", enforced)
	}
	if slices.ContainsFunc(enforced.Findings, func(f explain.Finding) bool { return f.Reason == v1alpha1.ReasonOverridden }) {
		t.Errorf("the enforced policy is overridden: %+v", enforced.Findings)
	}
	invalid := explain.DescribePolicy(explain.Policy{Policy: w.Policies[1], Invalid: errors.New("cannot be parsed")}, nil, w.operator, w.cluster)
	if found := explain.Lint(invalid.Findings); len(found) != 1 || found[0].Reason != v1alpha1.ReasonInvalidSelector || found[0].Hint == "" {
		t.Errorf("lint does not report an invalid selector: %+v", found)
	}
}

func TestPoliciesThatAreNotRead(t *testing.T) {
	for name, tc := range map[string]struct {
		watched   []string
		namespace string
		want      []string
	}{
		"the whole cluster":    {nil, "", nil},
		"a watched namespace":  {[]string{"batch"}, "batch", nil},
		"another namespace":    {[]string{"batch"}, "etl", []string{"Problem the operator does not watch namespace etl, but only batch"}},
		"a cluster policy":     {[]string{"batch"}, "", []string{"Problem the operator runs with --watch-namespaces and reads no cluster policies"}},
		"very many namespaces": {strings.Split("a,b,c,d,e,f,g", ","), "etl", []string{"Problem the operator does not watch namespace etl, but only a, b, c, d, e and 2 more"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := explain.Policy{Policy: resolve.Policy{Ref: resolve.PolicyRef{Namespace: tc.namespace}, Spec: &v1alpha1.PolicySpec{}}}
			found := explain.DescribePolicy(policy, nil, settings.Decisions{WatchNamespaces: tc.watched}, explain.Cluster{}).Findings
			if difference := cmp.Diff(tc.want, messages(found, v1alpha1.ReasonNamespaceNotWatched)); difference != "" {
				t.Errorf("findings (-want +got):\n%s", difference)
			}
		})
	}
}
