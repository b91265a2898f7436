// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// noon is when the tests take place.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is what a case changes: a template of a Job with main and proxy, on a cluster with Kruise and no virtual nodes.
type world struct {
	explain.Pod
	operator explain.OperatorSettings
	cluster  explain.Cluster
}

func newWorld() *world {
	return &world{
		Pod: explain.Pod{
			Kind: "Job", Name: "job", Template: true, BackoffLimit: ptr.To(int32(6)),
			Pod: &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "job"},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{{Name: "main"}, {Name: "proxy"}},
				},
			},
		},
		operator: explain.OperatorSettings{
			Resolve:      resolve.Options{ExitCodes: v1alpha1.ExitCodesIgnore},
			NodeMarks:    plan.DefaultNodeMarks(),
			Capabilities: plan.Capabilities{PodPhase: plan.PodPhaseEnabled},
		},
		cluster: explain.Cluster{Kruise: ptr.To(true), VirtualNodes: ptr.To(false), DaemonlessNodes: ptr.To(false)},
	}
}

// policy adds a policy that names the containers.
func (w *world) policy(change func(*v1alpha1.PolicySpec), sidecars ...string) {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "batch", Name: fmt.Sprintf("p%d", len(w.Policies)), CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
	}}
	spec := &policy.Spec.PolicySpec
	spec.Enforcement = v1alpha1.EnforcementEnforce
	for _, name := range sidecars {
		spec.Sidecars = append(spec.Sidecars, v1alpha1.Sidecar{Name: name})
	}
	change(spec)
	parsed, err := resolve.FromNamespaced(policy)
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

// uncovered gives the sidecar a command that the shipped image does not have.
func uncovered(change func(*v1alpha1.PolicySpec)) func(*world) {
	return func(w *world) {
		w.policy(change, "proxy")
		w.operator.Resolve.Image = "quick-exit:v1"
		w.Pod.Pod.Spec.Containers[1].Command = []string{"/opt/proxy"}
	}
}

func dryRun(s *v1alpha1.PolicySpec) { s.Enforcement = v1alpha1.EnforcementDryRun }

// live makes a pod of the template: main ended some time ago with the exit code, and proxy runs.
func (w *world) live(ago time.Duration, code int32) {
	w.Kind, w.Template, w.Node = "Pod", false, plan.NodeReal
	w.Pod.Pod.Spec.NodeName = "node-1"
	w.Pod.Pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "main", ContainerID: "c://main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, FinishedAt: metav1.NewTime(noon.Add(-ago))}}},
		{Name: "proxy", ContainerID: "c://proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
			StartedAt: metav1.NewTime(noon.Add(-time.Hour))}}},
	}}
}

// runs makes a pod of the template, on a node of the kind, of which both containers run.
func (w *world) runs(on plan.NodeKind) {
	w.live(0, 0)
	w.Node = on
	w.Pod.Pod.Status.ContainerStatuses[0].State = w.Pod.Pod.Status.ContainerStatuses[1].State
}

func TestFindings(t *testing.T) {
	const problem, warning, note = explain.SeverityProblem, explain.SeverityWarning, explain.SeverityNote
	for name, tc := range map[string]struct {
		change func(w *world)
		want   []string // SEVERITY REASON CONTAINER, worst first
	}{
		"all is well": {func(w *world) { w.policy(asIs, "proxy") }, nil},

		"restartPolicy Always": {func(w *world) {
			w.policy(asIs, "proxy")
			w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		}, []string{"Problem RestartPolicyAlways "}},
		"restartPolicy Always, and nothing is declared": {func(w *world) { w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }, nil},
		"every container is a sidecar":                  {func(w *world) { w.policy(asIs, "main", "proxy") }, []string{"Problem NoMainContainer "}},
		"a native sidecar is named": {func(w *world) {
			w.policy(asIs, "proxy", "native")
			w.Pod.Pod.Spec.InitContainers = []corev1.Container{{Name: "native", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		}, []string{"Note NativeSidecar native"}},
		"a variable cannot be read": {func(w *world) {
			w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, ValueFrom: &corev1.EnvVarSource{}}}
		}, []string{"Problem UnreadableEnv proxy", "Warning MayHang "}},
		"a variable cannot be read, but a policy decides": {func(w *world) {
			w.policy(asIs, "proxy")
			w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, ValueFrom: &corev1.EnvVarSource{}}}
		}, []string{"Warning UnreadableEnv proxy"}},
		"a variable makes no sense": {func(w *world) {
			w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminate, Value: "yes"}}
		}, []string{"Problem InvalidEnv proxy", "Warning MayHang "}},
		"only a DryRun policy": {func(w *world) { w.policy(dryRun, "proxy") }, []string{"Warning DryRun proxy"}},
		"only a policy with an unknown enforcement": {func(w *world) {
			w.policy(func(s *v1alpha1.PolicySpec) { s.Enforcement = "Audit" }, "proxy")
		}, []string{"Warning DryRun proxy"}},
		"a DryRun policy beside an enforced one": {func(w *world) {
			w.policy(asIs, "proxy")
			w.policy(func(s *v1alpha1.PolicySpec) { dryRun(s); s.Priority = 1 }, "proxy")
		}, []string{"Note DryRun proxy"}},
		"a policy is overridden": {func(w *world) {
			w.policy(asIs, "proxy")
			w.policy(func(s *v1alpha1.PolicySpec) { s.Priority = 1 }, "proxy")
		}, []string{"Note Overridden proxy"}},
		"a policy names what may be injected": {func(w *world) { w.policy(asIs, "proxy", "other") }, []string{"Note ContainerNotFound "}},

		"mode CRR without Kruise": {func(w *world) {
			w.policy(mode(v1alpha1.ModeCRR), "proxy")
			w.cluster.Kruise = ptr.To(false)
		}, []string{"Warning CRRUnavailable proxy"}},
		"mode CRR alone without Kruise": {func(w *world) {
			w.policy(only(v1alpha1.ModeCRR), "proxy")
			w.cluster.Kruise = ptr.To(false)
		}, []string{"Problem CRRUnavailable proxy"}},
		"mode CRR alone, and Kruise may be absent": {func(w *world) {
			w.policy(only(v1alpha1.ModeCRR), "proxy")
			w.cluster = explain.Cluster{}
		}, []string{"Warning CRRUnavailable proxy"}},
		"mode CRR with fallback, and Kruise may be absent": {func(w *world) {
			w.policy(mode(v1alpha1.ModeCRR), "proxy")
			w.cluster = explain.Cluster{}
		}, nil},
		"mode Image alone without an image": {func(w *world) { w.policy(only(v1alpha1.ModeImage), "proxy") }, []string{"Problem NoQuickExitImage proxy"}},
		"mode Image without an image":       {func(w *world) { w.policy(mode(v1alpha1.ModeImage), "proxy") }, []string{"Warning NoQuickExitImage proxy"}},
		"there are virtual nodes, and no image": {func(w *world) {
			w.policy(asIs, "proxy")
			w.cluster.VirtualNodes = ptr.To(true)
		}, []string{"Warning NoUsableMode proxy"}},
		"nothing can be used": {func(w *world) {
			w.policy(func(s *v1alpha1.PolicySpec) { s.ExitCodes = v1alpha1.ExitCodesRespect }, "proxy")
			w.cluster.Kruise = ptr.To(false)
		}, []string{"Problem NoUsableMode proxy"}},
		"a mode is turned off": {func(w *world) {
			w.policy(mode(v1alpha1.ModePodPhase), "proxy")
			w.operator.Capabilities.PodPhase = plan.PodPhaseDisabled
		}, []string{"Warning PodPhaseDisabled proxy"}},
		"backoffLimit is reached by mode Image": {func(w *world) {
			w.policy(mode(v1alpha1.ModeImage), "proxy")
			w.operator.Resolve.Image = "quick-exit:v1"
			w.BackoffLimit, w.Pod.Pod.Spec.RestartPolicy = ptr.To(int32(1)), corev1.RestartPolicyOnFailure
		}, []string{"Problem BackoffLimitRisk "}},
		"backoffLimit is not reached by mode Image": {func(w *world) {
			w.policy(mode(v1alpha1.ModeImage), "proxy")
			w.operator.Resolve.Image, w.Pod.Pod.Spec.RestartPolicy = "quick-exit:v1", corev1.RestartPolicyOnFailure
		}, []string{"Warning BackoffLimitRisk "}},
		"restarts of mode Image count for no Job": {func(w *world) {
			w.policy(mode(v1alpha1.ModeImage), "proxy")
			w.operator.Resolve.Image, w.BackoffLimit, w.Pod.Pod.Spec.RestartPolicy = "quick-exit:v1", nil, corev1.RestartPolicyOnFailure
		}, []string{"Note BackoffLimitRisk "}},
		"a command is not in the quick-exit image": {uncovered(mode(v1alpha1.ModeImage)), []string{"Warning CommandNotCovered proxy"}},
		"a command is not in the quick-exit image, and nothing takes its place": {
			uncovered(only(v1alpha1.ModeImage)), []string{"Problem CommandNotCovered proxy"},
		},
		"a command is in the quick-exit image, says its policy": {uncovered(func(s *v1alpha1.PolicySpec) {
			only(v1alpha1.ModeImage)(s)
			s.Image, s.QuickExitPaths = "own:v1", []v1alpha1.QuickExitPath{"/opt/proxy"}
		}), []string{"Warning ImagePullRisk proxy"}},
		"a command is in the operator's quick-exit image": {func(w *world) {
			uncovered(only(v1alpha1.ModeImage))(w)
			w.operator.Resolve.QuickExitPaths = quickexit.CoverageOf("default", "/opt/proxy")
		}, []string{"Warning ImagePullRisk proxy"}},
		"a command is not in the image that the pod names, and its author vouches for it": {func(w *world) {
			w.Pod.Pod.Spec.Containers[1].Command = []string{"/opt/proxy"}
			w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvTerminateWithImage, Value: "quick-exit:v1"}}
		}, []string{"Warning ImagePullRisk proxy"}},
		"there are virtual nodes, and a command is not in the image": {func(w *world) {
			uncovered(asIs)(w)
			w.cluster.VirtualNodes = ptr.To(true)
		}, []string{"Warning NoUsableMode proxy"}},
		"the pod is stuck for its command": {func(w *world) {
			uncovered(only(v1alpha1.ModeImage))(w)
			w.live(time.Hour, 0)
		}, []string{"Problem CommandNotCovered "}},
		"an image that cannot be pulled fails a pod that never restarts": {func(w *world) {
			w.policy(mode(v1alpha1.ModeImage), "proxy")
			w.operator.Resolve.Image = "quick-exit:v1"
		}, []string{"Warning ImagePullRisk proxy"}},
		"an image that cannot be pulled, on a node without Kruise's daemon": {func(w *world) {
			w.policy(mode(v1alpha1.ModeImage), "proxy")
			w.operator.Resolve.Image = "quick-exit:v1"
			w.runs(plan.NodeDaemonless)
		}, []string{"Warning ImagePullRisk proxy"}},
		"an image that cannot be pulled is waited for by a virtual node": {func(w *world) {
			w.policy(mode(v1alpha1.ModeImage), "proxy")
			w.operator.Resolve.Image = "quick-exit:v1"
			w.runs(plan.NodeVirtual)
		}, nil},
		"an image that cannot be pulled is no matter where exit codes are respected": {func(w *world) {
			w.policy(func(s *v1alpha1.PolicySpec) { s.Mode, s.ExitCodes = v1alpha1.ModeImage, v1alpha1.ExitCodesRespect }, "proxy")
			w.operator.Resolve.Image = "quick-exit:v1"
		}, nil},
		"mode CRR on a node without Kruise's daemon": {func(w *world) {
			w.policy(mode(v1alpha1.ModeCRR), "proxy")
			w.runs(plan.NodeDaemonless)
		}, []string{"Note NoKruiseDaemon proxy"}},
		"mode CRR alone on a node without Kruise's daemon": {func(w *world) {
			w.policy(only(v1alpha1.ModeCRR), "proxy")
			w.runs(plan.NodeDaemonless)
		}, []string{"Problem NoKruiseDaemon proxy"}},
		"mode CRR alone, and there are nodes without Kruise's daemon": {func(w *world) {
			w.policy(only(v1alpha1.ModeCRR), "proxy")
			w.cluster.DaemonlessNodes = ptr.To(true)
		}, []string{"Warning NoKruiseDaemon proxy"}},
		"mode CRR with fallback, and there are nodes without Kruise's daemon": {func(w *world) {
			w.policy(mode(v1alpha1.ModeCRR), "proxy")
			w.cluster.DaemonlessNodes = ptr.To(true)
		}, nil},

		"nothing is declared": {func(*world) {}, []string{"Warning MayHang "}},
		"a variable may come from a ConfigMap": {func(w *world) {
			w.Pod.Pod.Spec.Containers[1].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
		}, []string{"Warning MayHang ", "Note UnreadableEnv proxy"}},
		"a variable may come from a ConfigMap, but a policy decides": {func(w *world) {
			w.policy(asIs, "proxy")
			w.Pod.Pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
			w.Pod.Pod.Spec.Containers[1].EnvFrom = w.Pod.Pod.Spec.Containers[0].EnvFrom
		}, nil},
		"a prefix keeps a ConfigMap from declaring a sidecar": {func(w *world) {
			w.Pod.Pod.Spec.Containers[1].EnvFrom = []corev1.EnvFromSource{{Prefix: "APP_", ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
		}, []string{"Warning MayHang "}},
		"an operator that reads no variables misses none": {func(w *world) {
			w.operator.Resolve.IgnoreEnv = true
			w.Pod.Pod.Spec.Containers[1].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
		}, []string{"Warning MayHang "}},
		"a well-known sidecar is not declared": {func(w *world) {
			w.Pod.Pod.Spec.Containers[1].Name = "istio-proxy"
		}, []string{"Problem MayHang istio-proxy"}},
		"one container alone": {func(w *world) { w.Pod.Pod.Spec.Containers = []corev1.Container{{Name: "envoy"}} }, nil},
		"mainContainers settles the matter": {func(w *world) {
			w.policy(func(s *v1alpha1.PolicySpec) { s.MainContainers = []v1alpha1.ContainerName{"main", "proxy"} })
		}, nil},

		"the sidecar of nobody runs on": {func(w *world) { w.live(time.Minute, 0) }, []string{"Problem MayHang proxy"}},
		"main is about to be started again": {func(w *world) {
			w.live(time.Minute, 1)
			w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			w.policy(asIs, "proxy")
		}, nil},
		"something was to be done a moment ago": {func(w *world) { w.live(time.Second, 0); w.policy(asIs, "proxy") }, nil},
		"something was to be done long ago":     {func(w *world) { w.live(time.Hour, 0); w.policy(asIs, "proxy") }, []string{"Problem Overdue "}},
		"the pod drains": {func(w *world) {
			w.live(time.Hour, 0)
			w.policy(func(s *v1alpha1.PolicySpec) { s.DrainSeconds = ptr.To(int32(7200)) }, "proxy")
		}, nil},
		"DryRun keeps a pod from its end": {func(w *world) { w.live(time.Hour, 0); w.policy(dryRun, "proxy") },
			[]string{"Warning DryRun proxy", "Warning WouldTerminate "}},
		"the pod is stuck": {func(w *world) {
			w.live(time.Hour, 0)
			w.policy(only(v1alpha1.ModePodPhase), "proxy")
			w.Attempts = []plan.Attempt{{Mode: v1alpha1.ModePodPhase, For: v1alpha1.ModePodPhase, Number: 2, Started: noon.Add(-time.Hour)}}
		}, []string{"Problem Stuck ", "Warning AttemptFailed proxy"}},
		"the records are spoilt": {func(w *world) {
			w.live(time.Hour, 0)
			w.policy(asIs, "proxy")
			w.Unreadable = "annotation is no JSON"
		}, []string{"Problem UnreadableRecord "}},
		"another mode takes the place": {func(w *world) {
			w.live(time.Second, 0)
			w.policy(mode(v1alpha1.ModeCRR), "proxy")
			w.cluster.Kruise = ptr.To(false)
		}, []string{"Warning CRRUnavailable proxy"}},
		"the pod is over": {func(w *world) {
			w.live(time.Hour, 0)
			w.Pod.Pod.Status.Phase = corev1.PodSucceeded
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, copied := newWorld(), newWorld()
			tc.change(w)
			tc.change(copied)
			report := explain.Explain(w.Pod, w.operator, w.cluster, noon)
			unchanged(t, "Explain", copied, w)
			var got []string
			for _, f := range report.Findings {
				if !slices.Contains([]explain.Severity{problem, warning, note}, f.Severity) || f.Message == "" {
					t.Errorf("finding is incomplete: %+v", f)
				}
				if f.Severity == problem && f.Hint == "" {
					t.Errorf("finding does not say what to do: %+v", f)
				}
				got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Reason, f.Container))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q; messages: %+v", got, tc.want, report.Findings)
			}
		})
	}
}

// TestTheDecisionIsTheOperators holds the report to internal/plan.
func TestTheDecisionIsTheOperators(t *testing.T) {
	w := newWorld()
	w.live(2*time.Second, 0)
	w.policy(func(s *v1alpha1.PolicySpec) { s.DrainSeconds = ptr.To(int32(10)) }, "proxy")
	resolution := resolve.Resolve(w.Pod.Pod, w.Policies, w.operator.Resolve)
	decision := plan.Next(plan.Snapshot{
		Pod: w.Pod.Pod, View: resolution.Enforced, Node: plan.NodeReal, Capabilities: plan.Capabilities{CRR: true, PodPhase: plan.PodPhaseEnabled},
	}, noon)
	report := explain.Explain(w.Pod, w.operator, w.cluster, noon)
	if report.Stage != decision.Stage || report.StageReason != decision.Reason || report.Message != decision.Message {
		t.Errorf("got %s %s %q, want %s %s %q", report.Stage, report.StageReason, report.Message, decision.Stage, decision.Reason, decision.Message)
	}
	if want := noon.Add(8 * time.Second); report.NextLook == nil || !report.NextLook.Time.Equal(want) {
		t.Errorf("next look is at %v, want %v", report.NextLook, want)
	}
}

// TestWhereSettingsComeFrom goes through the places in their order.
func TestWhereSettingsComeFrom(t *testing.T) {
	w := newWorld()
	w.operator.Resolve.Image = "operator:v1"
	w.Pod.Pod.Spec.Containers[1].Env = []corev1.EnvVar{{Name: v1alpha1.EnvIgnoreExitCode, Value: "false"}}
	w.policy(func(s *v1alpha1.PolicySpec) {
		s.Mode, s.DrainSeconds = v1alpha1.ModeCRR, ptr.To(int32(3))
		s.Sidecars[0].DrainSeconds = ptr.To(int32(5))
	}, "proxy")
	settings := explain.Explain(w.Pod, w.operator, w.cluster, noon).Containers[1].Settings
	for name, tc := range map[string]struct{ got, want explain.Setting }{
		"mode":       {settings.Mode, explain.Setting{Value: "CRR", From: resolve.SourcePolicy}},
		"image":      {settings.Image, explain.Setting{Value: "operator:v1", From: resolve.SourceOperator}},
		"paths":      {settings.QuickExitPaths, explain.Setting{Value: "default", From: resolve.SourceDefault}},
		"exit codes": {settings.ExitCodes, explain.Setting{Value: "Respect", From: resolve.SourceEnvironment}},
		"drain":      {settings.Drain, explain.Setting{Value: "5s", From: resolve.SourceEntry}},
		"deadline":   {settings.Deadline, explain.Setting{Value: "30s", From: resolve.SourceDefault}},
	} {
		if tc.got != tc.want {
			t.Errorf("%s is %+v, want %+v", name, tc.got, tc.want)
		}
	}
}

func TestWaysByKindOfNode(t *testing.T) {
	const withKruise, without = "real node, OpenKruise[CRR Image]", "real node, no OpenKruise[PodPhase Image]"
	const daemonless, virtual = "node without OpenKruise's daemon[PodPhase Image]", "virtual node[Image]"
	for name, tc := range map[string]struct {
		change func(w *world)
		want   []string
	}{
		"nothing is known of the cluster": {func(w *world) { w.cluster = explain.Cluster{} }, []string{withKruise, without, virtual}},
		"nothing is known of the nodes": {func(w *world) { w.cluster = explain.Cluster{Kruise: ptr.To(true)} },
			[]string{"real node[CRR Image]", daemonless, virtual}},
		"every node is a real one": {func(*world) {}, []string{"real node[CRR Image]"}},
		"there are nodes of each kind": {func(w *world) { w.cluster.DaemonlessNodes, w.cluster.VirtualNodes = ptr.To(true), ptr.To(true) },
			[]string{"real node[CRR Image]", daemonless, virtual}},
		"a missing daemon makes no difference without Kruise": {func(w *world) {
			w.cluster.Kruise, w.cluster.DaemonlessNodes = ptr.To(false), ptr.To(true)
		}, []string{"real node[PodPhase Image]"}},
		"the pod is on a node without the daemon": {func(w *world) { w.runs(plan.NodeDaemonless) }, []string{daemonless}},
		"the pod is on a virtual node":            {func(w *world) { w.runs(plan.NodeVirtual) }, []string{virtual}},
		"the pod is restarted for ever": {func(w *world) { w.Pod.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways },
			[]string{"node of any kind[]"}},
		"every container is a sidecar": {func(w *world) { w.policy(asIs, "main") }, []string{"node of any kind[]"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.policy(asIs, "proxy")
			w.operator.Resolve.Image = "operator:v1"
			tc.change(w)
			var got []string
			for _, way := range explain.Explain(w.Pod, w.operator, w.cluster, noon).Containers[1].Settings.Ways {
				got = append(got, fmt.Sprint(way.Where, way.Modes))
				if way.PhaseFirst != slices.Contains(way.Modes, v1alpha1.ModeCRR) {
					t.Errorf("on a %s the phase goes before the request: %v", way.Where, way.PhaseFirst)
				}
				if (len(way.Modes) == 0) != (way.Reason != "" && way.Message != "") {
					t.Errorf("on a %s modes are %v for reason %q: %s", way.Where, way.Modes, way.Reason, way.Message)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPolicy(t *testing.T) {
	w := newWorld()
	w.live(time.Hour, 0)
	w.policy(asIs, "proxy")
	w.policy(func(s *v1alpha1.PolicySpec) { s.Priority = 1 }, "proxy")
	reports := []explain.Report{explain.Explain(w.Pod, w.operator, w.cluster, noon)}
	describe := func(i int) explain.PolicyReport {
		return explain.DescribePolicy(explain.Policy{Ref: w.Policies[i].Ref, Spec: w.Policies[i].Spec}, reports)
	}
	if loser := describe(0); len(loser.Pods) != 0 || len(loser.Findings) != 2 || loser.Findings[0].Reason != v1alpha1.ReasonOverridden {
		t.Errorf("the loser's report is %+v", loser)
	}
	winner := describe(1)
	if len(winner.Pods) != 1 || winner.Pods[0].Name != "job" || winner.Findings[0].Reason != v1alpha1.ReasonOverdue {
		t.Errorf("the winner's report is %+v", winner)
	}
	if slices.ContainsFunc(winner.Findings, func(f explain.Finding) bool { return f.Reason == v1alpha1.ReasonOverridden }) {
		t.Errorf("the winner reports that it has lost: %+v", winner.Findings)
	}
	invalid := explain.DescribePolicy(explain.Policy{Ref: w.Policies[1].Ref, Spec: w.Policies[1].Spec, Invalid: errors.New("cannot be parsed")}, nil)
	if found := explain.Lint(invalid.Findings); len(found) != 1 || found[0].Reason != v1alpha1.ReasonInvalidSelector || found[0].Hint == "" {
		t.Errorf("a selector that cannot be parsed is no finding of lint: %+v", found)
	}
}

func TestSeveritiesAreOrdered(t *testing.T) {
	ordered := []explain.Severity{explain.SeverityProblem, explain.SeverityWarning, explain.SeverityNote, ""}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := a.WorseThan(b); got != (i < j) {
				t.Errorf("%q is worse than %q: %v", a, b, got)
			}
		}
	}
}
