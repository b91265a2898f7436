// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/podinput"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// labels sets the labels of the pod.
func (w *fixture) labels(all map[string]string) { w.Pod.Pod.Labels = all }

// notSelecting adds a policy with the selector that does not select the pod.
func (w *fixture) notSelecting(name string, selector metav1.LabelSelector, sidecars ...string) {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name}}
	policy.Spec.PodSelector, policy.Spec.Sidecars = selector, entries(sidecars)
	w.add(resolve.Parse(policy))
}

// clusterNotSelecting is notSelecting for a cluster policy.
func (w *fixture) clusterNotSelecting(name string, selector metav1.LabelSelector, sidecars ...string) {
	policy := &v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.NamespaceSelector, policy.Spec.Sidecars = &selector, entries(sidecars)
	w.add(resolve.Parse(policy))
}

func entries(names []string) []v1alpha1.Sidecar {
	var all []v1alpha1.Sidecar
	for _, name := range names {
		all = append(all, v1alpha1.Sidecar{Name: name})
	}
	return all
}

func (w *fixture) add(policy resolve.Policy, err error) {
	if err != nil {
		panic(err)
	}
	w.NotSelecting = append(w.NotSelecting, policy)
}

func matching(labels map[string]string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: labels}
}

func expression(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

// messages returns the messages of the findings with the reason, as SEVERITY MESSAGE.
func messages(findings []explain.Finding, reason v1alpha1.Reason) []string {
	var all []string
	for _, f := range findings {
		if f.Reason == reason {
			all = append(all, fmt.Sprintf("%s %s", f.Severity, f.Message))
		}
	}
	return all
}

func TestMismatchesOfOnePolicy(t *testing.T) {
	for name, tc := range map[string]struct {
		selector metav1.LabelSelector
		want     string
	}{
		"other value":             {matching(map[string]string{"app": "report"}), "label app: want report, pod has etl"},
		"misspelled value":        {matching(map[string]string{"app": "elt"}), "label app: want elt, pod has etl"},
		"empty value":             {matching(map[string]string{"app": ""}), `label app: want "", pod has etl`},
		"missing label":           {matching(map[string]string{"team": "etl"}), "label team: want etl, pod has none"},
		"two labels":              {matching(map[string]string{"team": "a", "app": "b"}), "label app: want b, pod has etl; label team: want a, pod has none"},
		"matching label omitted":  {matching(map[string]string{"app": "etl", "team": "a"}), "label team: want a, pod has none"},
		"one of several values":   {expression("app", metav1.LabelSelectorOpIn, "c", "a", "b"), "label app: want one of a, b, c, pod has etl"},
		"one of many values":      {expression("app", metav1.LabelSelectorOpIn, "g", "a", "b", "c", "d", "e", "f"), "label app: want one of a, b, c, d, e and 2 more, pod has etl"},
		"excluded value":          {expression("app", metav1.LabelSelectorOpNotIn, "etl", "b"), "label app: want a value other than b, etl, pod has etl"},
		"label that must exist":   {expression("team", metav1.LabelSelectorOpExists), "label team: want any value, pod has none"},
		"label that must be gone": {expression("app", metav1.LabelSelectorOpDoesNotExist), "label app: want no such label, pod has etl"},
		"many labels": {matching(map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
			"label a: want 1, pod has none; label b: want 2, pod has none; label c: want 3, pod has none and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.labels(map[string]string{"app": "etl"})
			w.notSelecting("mesh", tc.selector, "proxy")
			got := messages(explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings, v1alpha1.ReasonNotSelected)
			want := []string{"Note SidecarTerminationPolicy/mesh does not select the pod: " + tc.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLongLabelIsShortened(t *testing.T) {
	w := newFixture()
	w.labels(map[string]string{"app": strings.Repeat("x", 100_000)})
	w.notSelecting("mesh", matching(map[string]string{"app": "etl"}), "proxy")
	for _, f := range explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings {
		if len(f.Message)+len(f.Hint) > 500 {
			t.Errorf("%s has %d bytes", f.Reason, len(f.Message)+len(f.Hint))
		}
	}
}

func TestMisspelledLabelIsProposed(t *testing.T) {
	const template = "if it is a misspelling, change %[2]s to %[1]s in the labels of the %[4]s, or %[1]s to %[2]s in %[3]s if no other %[4]s has %[1]s"
	for name, tc := range map[string]struct {
		add  func(w *fixture)
		want string
	}{
		"value": {func(w *fixture) { w.notSelecting("mesh", matching(map[string]string{"app": "elt"}), "proxy") },
			fmt.Sprintf(template, "elt", "etl", "podSelector", "pod")},
		"one of the values": {func(w *fixture) {
			w.notSelecting("mesh", expression("app", metav1.LabelSelectorOpIn, "web", "elt"), "proxy")
		},
			fmt.Sprintf(template, "elt", "etl", "podSelector", "pod")},
		"key": {func(w *fixture) { w.notSelecting("mesh", matching(map[string]string{"appp": "etl"}), "proxy") },
			fmt.Sprintf(template, "appp", "app", "podSelector", "pod")},
		"label of the namespace": {func(w *fixture) {
			w.clusterNotSelecting("mesh", matching(map[string]string{"tenant": "blue"}), "proxy")
		},
			fmt.Sprintf(template, "tenant", "tenent", "namespaceSelector", "namespace")},
		"excluded value": {func(w *fixture) {
			w.notSelecting("mesh", expression("app", metav1.LabelSelectorOpNotIn, "etl", "elt"), "proxy")
		}, ""},
		"other value": {func(w *fixture) { w.notSelecting("mesh", matching(map[string]string{"app": "web"}), "proxy") }, ""},
		"generated value": {func(w *fixture) {
			w.labels(map[string]string{"job-name": "nightly-*"})
			w.notSelecting("mesh", matching(map[string]string{"job-name": "nightly"}), "proxy")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.labels(map[string]string{"app": "etl"})
			w.NamespaceLabels, w.cluster.Offline = map[string]string{"tenent": "blue"}, true
			tc.add(w)
			got := explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings
			i := slices.IndexFunc(got, func(f explain.Finding) bool { return f.Reason == v1alpha1.ReasonNotSelected })
			if i < 0 {
				t.Fatalf("no finding: %+v", got)
			}
			if proposes := strings.Contains(got[i].Hint, "misspelling"); tc.want == "" && proposes || tc.want != "" && got[i].Hint != tc.want {
				t.Errorf("hint is %q, want %q", got[i].Hint, tc.want)
			}
		})
	}
}

func TestNearestPolicyFirst(t *testing.T) {
	w := newFixture()
	w.labels(map[string]string{"app": "etl", "team": "data"})
	w.NamespaceLabels = map[string]string{"env": "test"}
	w.notSelecting("other-container", matching(map[string]string{"app": "elt"}), "agent")
	w.notSelecting("two-labels", matching(map[string]string{"app": "web", "team": "shop"}), "proxy")
	w.clusterNotSelecting("other-namespace", matching(map[string]string{"env": "production"}), "proxy")
	w.notSelecting("misspelled", matching(map[string]string{"app": "elt"}), "proxy")
	for i := range 1000 {
		w.notSelecting(fmt.Sprintf("far-%d", i), matching(map[string]string{"a": "1", "b": "2", "c": "3"}), "agent")
	}
	want := []string{
		"Note SidecarTerminationPolicy/misspelled does not select the pod: label app: want elt, pod has etl",
		"Note ClusterSidecarTerminationPolicy/other-namespace does not select the pod: label env: want production, namespace has test",
		"Note SidecarTerminationPolicy/two-labels does not select the pod: label app: want web, pod has etl; label team: want shop, pod has data",
		"Note 1001 more policies do not select the pod",
	}
	if diff := cmp.Diff(want, messages(explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings, v1alpha1.ReasonNotSelected)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestPoliciesThatNeedNotSelectThePod(t *testing.T) {
	web := matching(map[string]string{"app": "web"})
	for name, tc := range map[string]struct {
		change func(w *fixture)
		want   int
	}{
		"no declared sidecar":                   {func(w *fixture) { w.notSelecting("mesh", web, "agent") }, 1},
		"declared sidecar, policy for others":   {func(w *fixture) { w.policy(asIs, "proxy"); w.notSelecting("mesh", web, "agent") }, 0},
		"declared sidecar, policy for the same": {func(w *fixture) { w.policy(asIs, "proxy"); w.notSelecting("mesh", web, "proxy") }, 0},
		"declared sidecar, policy for a main":   {func(w *fixture) { w.policy(asIs, "proxy"); w.notSelecting("mesh", web, "main") }, 1},
		"every container is declared":           {func(w *fixture) { w.policy(asIs, "proxy", "main"); w.notSelecting("mesh", web, "main") }, 0},
		"template with one container":           {func(w *fixture) { w.only("main"); w.notSelecting("mesh", web, "agent") }, 1},
		"pod with one container":                {func(w *fixture) { w.live(time.Hour, 0); w.only("main"); w.notSelecting("mesh", web, "agent") }, 0},
		"finished pod":                          {func(w *fixture) { w.succeeded(); w.notSelecting("mesh", web, "proxy") }, 0},
		"declared sidecar, other main containers": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.notSelecting("mains", web)
			w.NotSelecting[0].Spec.MainContainers = []v1alpha1.ContainerName{"worker"}
		}, 0},
		"declared sidecar, own main container": {func(w *fixture) {
			w.policy(asIs, "proxy")
			w.also("agent")
			w.notSelecting("mains", web)
			w.NotSelecting[0].Spec.MainContainers = []v1alpha1.ContainerName{"main"}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.labels(map[string]string{"app": "etl"})
			tc.change(w)
			if got := messages(explain.Explain(w.Pod, w.operator, w.cluster, noon).Findings, v1alpha1.ReasonNotSelected); len(got) != tc.want {
				t.Errorf("got %d findings, want %d: %q", len(got), tc.want, got)
			}
		})
	}
}

func TestNearestPod(t *testing.T) {
	pod := func(namespace, name string, labels map[string]string, containers ...string) explain.Pod {
		of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		made := explain.Pod{Kind: "Pod", Name: name, Input: podinput.Input{Pod: of}}
		made.Pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		for _, container := range containers {
			made.Pod.Spec.Containers = append(made.Pod.Spec.Containers, corev1.Container{Name: container})
		}
		return made
	}
	other := pod("other", "elsewhere", map[string]string{"app": "elt"}, "main", "proxy")
	other.NamespaceLabels = map[string]string{"env": "test"}
	always := pod("batch", "always", map[string]string{"app": "elt"}, "main", "proxy")
	always.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	without := pod("batch", "without", map[string]string{"app": "etl"}, "main")
	web, etl := pod("batch", "web", map[string]string{"app": "web"}, "main", "proxy"), pod("batch", "etl", map[string]string{"app": "etl"}, "main", "proxy")
	own, cluster := newFixture(), newFixture()
	own.notSelecting("mesh", matching(map[string]string{"app": "elt"}), "proxy")
	cluster.clusterNotSelecting("mesh", matching(map[string]string{"env": "production"}), "proxy")
	nearest := func(pod, mismatch string) []string {
		return []string{"Note Pod " + pod + " is the nearest: " + mismatch}
	}
	for name, tc := range map[string]struct {
		policy resolve.Policy
		pods   []explain.Pod
		want   []string
	}{
		"misspelled":              {own.NotSelecting[0], []explain.Pod{web, etl, other}, nearest("batch/etl", "label app: want elt, pod has etl")},
		"with the container":      {own.NotSelecting[0], []explain.Pod{without, web}, nearest("batch/web", "label app: want elt, pod has web")},
		"without the container":   {own.NotSelecting[0], []explain.Pod{without}, nearest("batch/without", "label app: want elt, pod has etl")},
		"other namespace":         {own.NotSelecting[0], []explain.Pod{other}, nil},
		"restartPolicy Always":    {own.NotSelecting[0], []explain.Pod{always}, nil},
		"labels of the namespace": {cluster.NotSelecting[0], []explain.Pod{other}, nearest("other/elsewhere", "label env: want production, namespace has test")},
	} {
		t.Run(name, func(t *testing.T) {
			var reports []explain.Report
			for _, pod := range tc.pods {
				reports = append(reports, explain.Explain(pod, own.operator, own.cluster, noon))
			}
			report := explain.DescribePolicy(explain.Policy{Policy: tc.policy}, reports, own.operator, own.cluster)
			if diff := cmp.Diff(tc.want, messages(report.Findings, v1alpha1.ReasonNotSelected)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// only leaves one container.
func (w *fixture) only(name string) { w.Pod.Pod.Spec.Containers = []corev1.Container{{Name: name}} }

func TestMisspelledContainer(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *fixture)
		want   []string
	}{
		"sidecar": {func(w *fixture) { w.policy(asIs, "prxy") }, []string{
			"Warning SidecarTerminationPolicy/p0 names prxy (did you mean proxy?), which is not in the pod"}},
		"sidecar of a template": {func(w *fixture) { w.policy(asIs, "prxy"); w.Template = true }, []string{
			"Warning SidecarTerminationPolicy/p0 names prxy (did you mean proxy?), which is not in the pod unless a webhook injects it"}},
		"one of several": {func(w *fixture) { w.policy(asIs, "agent", "prxy") }, []string{
			"Warning SidecarTerminationPolicy/p0 names agent, prxy (did you mean proxy?), which is not in the pod"}},
		"next to a name in the pod": {func(w *fixture) {
			w.also("agent")
			w.policy(asIs, "agent", "prxy", "envoy")
		}, []string{"Warning SidecarTerminationPolicy/p0 names prxy (did you mean proxy?), which is not in the pod"}},
		"main container":     {func(w *fixture) { w.policy(mains("mian")) }, []string{"Warning SidecarTerminationPolicy/p0 names mian (did you mean main?), which is not in the pod"}},
		"declared container": {func(w *fixture) { w.policy(asIs, "proxy", "prxy") }, nil},
		"other name":         {func(w *fixture) { w.policy(asIs, "agent") }, []string{"Note SidecarTerminationPolicy/p0 names agent, which is not in the pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.live(time.Hour, 0)
			tc.change(w)
			report := explain.Explain(w.Pod, w.operator, w.cluster, noon)
			if diff := cmp.Diff(tc.want, messages(report.Findings, v1alpha1.ReasonContainerNotFound)); diff != "" {
				t.Errorf("findings on the pod (-want +got):\n%s", diff)
			}
			var want, shown []string
			for _, message := range tc.want {
				if text, misspelled := strings.CutPrefix(message, "Warning "); misspelled {
					shown = append(shown, message)
					want = append(want, fmt.Sprintf("Warning %s batch/job: %s", report.Kind, text))
				}
			}
			if diff := cmp.Diff(shown, messages(explain.Lint(report.Findings), v1alpha1.ReasonContainerNotFound)); diff != "" {
				t.Errorf("findings that lint shows (-want +got):\n%s", diff)
			}
			policy := explain.DescribePolicy(explain.Policy{Policy: w.Policies[0]}, []explain.Report{report}, w.operator, w.cluster)
			if diff := cmp.Diff(want, messages(policy.Findings, v1alpha1.ReasonContainerNotFound)); diff != "" {
				t.Errorf("findings on the policy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnvNames(t *testing.T) {
	const alone = "container proxy: environment variable KRUISE_TERMINATE_SIDECAR_IGNORE_EXIT_CODE alone has no effect, because nothing declares the container a sidecar"
	misspelled := func(name, meant string) string {
		return fmt.Sprintf("Warning container proxy: environment variable %s has no effect; did you mean %s?", name, meant)
	}
	for name, tc := range map[string]struct {
		env    map[string]string
		change func(w *fixture)
		want   []string
	}{
		"complete":              {map[string]string{v1alpha1.EnvTerminate: "true", v1alpha1.EnvIgnoreExitCode: "true"}, nil, nil},
		"exit code alone":       {map[string]string{v1alpha1.EnvIgnoreExitCode: "true"}, nil, []string{"Warning " + alone}},
		"with image":            {map[string]string{v1alpha1.EnvTerminateWithImage: "a:v1", v1alpha1.EnvIgnoreExitCode: "true"}, nil, nil},
		"explicitly no":         {map[string]string{v1alpha1.EnvTerminate: "false", v1alpha1.EnvIgnoreExitCode: "true"}, nil, nil},
		"declared by policy":    {map[string]string{v1alpha1.EnvIgnoreExitCode: "true"}, func(w *fixture) { w.policy(asIs, "proxy") }, nil},
		"declared by a dry run": {map[string]string{v1alpha1.EnvIgnoreExitCode: "true"}, func(w *fixture) { w.policy(dryRun, "proxy") }, nil},
		"environment ignored":   {map[string]string{v1alpha1.EnvIgnoreExitCode: "true"}, func(w *fixture) { w.operator.Resolve.IgnoreEnv = true }, nil},
		"finished pod":          {map[string]string{v1alpha1.EnvIgnoreExitCode: "true"}, (*fixture).succeeded, nil},
		"missing letter":        {map[string]string{"KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXT": "true"}, nil, []string{misspelled("KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXT", v1alpha1.EnvTerminate)}},
		"plural":                {map[string]string{"KRUISE_TERMINATE_SIDECARS_WHEN_JOB_EXITS": "true"}, nil, []string{misspelled("KRUISE_TERMINATE_SIDECARS_WHEN_JOB_EXITS", v1alpha1.EnvTerminate)}},
		"small letters":         {map[string]string{"kruise_terminate_sidecar_when_job_exit": "true"}, nil, []string{misspelled("kruise_terminate_sidecar_when_job_exit", v1alpha1.EnvTerminate)}},
		"without first words":   {map[string]string{"SIDECAR_IGNORE_EXIT_CODE": "true"}, nil, []string{misspelled("SIDECAR_IGNORE_EXIT_CODE", v1alpha1.EnvIgnoreExitCode)}},
		"with the right name":   {map[string]string{v1alpha1.EnvTerminate: "true", "KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXT": "true"}, nil, nil},
		"twice": {map[string]string{"KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXI": "true", "KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXT": "true"}, nil,
			[]string{misspelled("KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXI", v1alpha1.EnvTerminate)}},
		"other variables": {map[string]string{"PATH": "/bin", "CODE": "1", "SIDECAR": "yes", "SIDECAR_PORT": "80"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			for _, variable := range slices.Sorted(maps.Keys(tc.env)) {
				w.Pod.Pod.Spec.Containers[1].Env = append(w.Pod.Pod.Spec.Containers[1].Env, corev1.EnvVar{Name: variable, Value: tc.env[variable]})
			}
			if tc.change != nil {
				tc.change(w)
			}
			report := explain.Explain(w.Pod, w.operator, w.cluster, noon)
			if diff := cmp.Diff(tc.want, messages(report.Findings, v1alpha1.ReasonIneffectiveEnv)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if found := explain.Lint(report.Findings); len(tc.want) > 0 && !slices.ContainsFunc(found, func(f explain.Finding) bool { return f.Reason == v1alpha1.ReasonIneffectiveEnv }) {
				t.Errorf("lint does not report it: %+v", found)
			}
		})
	}
}

// The message of a decision to act says what the operator does next, because it has not done it yet.
func TestMessageSaysWhatIsPlanned(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(w *fixture)
		reason  v1alpha1.Reason
		message string
		planned bool
	}{
		"main containers run": {func(w *fixture) { w.runs("Real") }, v1alpha1.ReasonMainContainersRunning, "waiting for main containers to finish: main", false},
		"due": {func(w *fixture) { w.live(time.Hour, 0) }, v1alpha1.ReasonTerminating,
			"main containers are done, and the operator has not acted yet; it will end proxy by mode CRR", true},
		"not marked": {func(w *fixture) { w.live(time.Hour, 0); w.unmark() }, v1alpha1.ReasonMarking,
			"main containers have succeeded; recording it, because admission policy sidecar-termination-outcome has not", true},
		"marked in advance": {func(w *fixture) {
			w.runs("Real")
			w.Pod.Pod.Annotations[v1alpha1.AnnotationEnd] = "PodPhase/4a1b"
			w.cluster.Kruise = new(false)
		}, v1alpha1.ReasonMainContainersRunning, "waiting for main containers to finish: main", false},
		"ends by its phase": {func(w *fixture) {
			w.live(2*time.Second, 0)
			w.Pod.Pod.Annotations[v1alpha1.AnnotationEnd], w.Pod.Pod.Status.Phase = "PodPhase/4a1b", corev1.PodSucceeded
		}, v1alpha1.ReasonAttemptInProgress, "waiting for sidecars to end: proxy", false},
		"node unknown": {func(w *fixture) { w.live(time.Hour, 0); w.Node = "" }, v1alpha1.ReasonNodeUnknown,
			"main containers are done; the operator has not seen node node-1 yet", true},
		"attempt failed": {func(w *fixture) {
			w.live(time.Hour, 0)
			w.operator.Resolve.Image = "quick-exit:v1"
			w.Attempts = []plan.Attempt{{Mode: v1alpha1.ModeImage, RestartCounts: map[string]int32{"proxy": 0}, Started: noon.Add(-30 * time.Minute)}}
		}, v1alpha1.ReasonFallback, "main containers are done; next, the operator will end proxy by mode CRR", false},
		"sidecars ended": {func(w *fixture) {
			w.live(time.Hour, 0)
			w.Pod.Pod.Status.ContainerStatuses[1].State = w.Pod.Pod.Status.ContainerStatuses[0].State
		}, v1alpha1.ReasonMarking, "main containers have succeeded; recording it, because admission policy sidecar-termination-outcome has not", true},
		"another namespace": {func(w *fixture) { w.live(time.Hour, 0); w.operator.WatchNamespaces = []string{"etl", "web"} },
			v1alpha1.ReasonNamespaceNotWatched, "the operator does not watch namespace batch, but only etl, web", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.policy(asIs, "proxy")
			tc.change(w)
			got := explain.Explain(w.Pod, w.operator, w.cluster, noon)
			if got.Reason != tc.reason || got.Message != tc.message || got.Planned != tc.planned {
				t.Errorf("got %s, %q, planned %t; want %s, %q, planned %t", got.Reason, got.Message, got.Planned, tc.reason, tc.message, tc.planned)
			}
		})
	}
}

func TestNextReconcile(t *testing.T) {
	w := newFixture()
	w.live(2*time.Second, 0)
	w.policy(func(s *v1alpha1.PolicySpec) { s.DrainSeconds = new(int32(10)) }, "proxy")
	if next := explain.Explain(w.Pod, w.operator, w.cluster, noon).NextReconcileTime; next == nil || next.Sub(noon) != 8*time.Second {
		t.Errorf("next reconcile is at %v, want it at the end of the drain", next)
	}
}
