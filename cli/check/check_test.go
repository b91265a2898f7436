// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/shipped"
)

// newChecker returns a checker of an operator with the flags.
func newChecker(t *testing.T, flags ...string) *checker {
	t.Helper()
	operator, err := settings.Parse(flags)
	if err != nil {
		t.Fatal(err)
	}
	return &checker{options: &options{connection: source.NewConnection()}, settings: operator, deployment: &appsv1.Deployment{}}
}

func TestKubernetesVersion(t *testing.T) {
	for minor, want := range map[string]outcome{"29": outcomeFailure, "30": outcomeWarning, "33+": outcomeWarning, "34": outcomeOK, "37+": outcomeOK, "next": outcomeWarning} {
		c := &checker{version: &version.Info{Major: "1", Minor: minor, GitVersion: "v1." + minor}}
		if err := c.checkKubernetes(t.Context()); err != nil || c.results[0].Outcome != want {
			t.Errorf("version 1.%s: got %+v, %v, want %s", minor, c.results, err, want)
		}
	}
}

func TestHintsFitTheInstallation(t *testing.T) {
	const upgrade = " CHART -n operators --reset-then-reuse-values"
	for name, tc := range map[string]struct {
		labels map[string]string
		want   []string
	}{
		"kubectl": {nil, []string{
			"kubectl apply --server-side -k 'https://github.com/sidecar-termination/operator//config/crd?ref=" + settings.Release + "'",
			"apply the operator's manifests again, as you installed them", "set --crr=Enabled", "set --node-kind=Real"}},
		"Helm": {map[string]string{"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "batch-sidecars"}, []string{
			"helm upgrade batch-sidecars" + upgrade + " --set crds.install=true", "helm upgrade batch-sidecars" + upgrade,
			"helm upgrade batch-sidecars" + upgrade + " --set modes.crr=Enabled", "helm upgrade batch-sidecars" + upgrade + " --set flags.node-kind=Real"}},
		"Helm without a release": {map[string]string{"app.kubernetes.io/managed-by": "Helm"}, []string{
			"helm upgrade RELEASE" + upgrade + " --set crds.install=true", "helm upgrade RELEASE" + upgrade,
			"helm upgrade RELEASE" + upgrade + " --set modes.crr=Enabled", "helm upgrade RELEASE" + upgrade + " --set flags.node-kind=Real"}},
	} {
		c := &checker{deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "operators", Labels: tc.labels}}}
		got := []string{c.apply("crd", "crds.install=true"), c.reinstall(), c.set("--crr=Enabled", "modes.crr=Enabled"), c.set("--node-kind=Real")}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: hints (-want +got):\n%s", name, diff)
		}
	}
}

func TestPermissionsFollowFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		flags []string
		want  string
	}{
		"defaults": {nil, "/ /mode CRR /mode Image /outcome of pods /prePull of policies operators/leader election"},
		"disabled": {[]string{"--crr=Disabled", "--image-swap=Disabled", "--pod-phase=Disabled", "--pre-pull=Disabled", "--leader-elect=false"}, "/ /outcome of pods"},
		"last resort": {[]string{"--crr=Disabled", "--pod-phase=LastResort", "--leader-election-namespace=leases"},
			"/ /mode Image /outcome of pods /prePull of policies leases/leader election"},
		"namespaces": {[]string{"--watch-namespaces=batch,etl", "--metrics-authentication=Disabled"},
			"batch/ batch/mode Image batch/outcome of pods etl/ etl/mode Image etl/outcome of pods operators/leader election"},
		"namespaces with nodes and metrics": {[]string{"--watch-namespaces=batch", "--node-kind=Read", "--image-swap=Disabled"},
			"/ batch/ batch/outcome of pods operators/leader election"},
	} {
		c := newChecker(t, tc.flags...)
		c.deployment.Namespace = "operators"
		permissions, err := c.permissions()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range permissions {
			got = append(got, p.Namespace+"/"+p.feature)
		}
		slices.Sort(got)
		if text := strings.Join(slices.Compact(got), " "); text != tc.want {
			t.Errorf("%s: got %s, want %s", name, text, tc.want)
		}
	}
}

func TestTerminatorGate(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		want      bool
	}{
		"no gates":                 {[]string{"--v=5"}, false},
		"other gates":              {[]string{"--feature-gates=AllBeta=true"}, false},
		"on":                       {[]string{"--feature-gates=AllBeta=true,SidecarTerminator=true"}, true},
		"separate argument":        {[]string{"--feature-gates", "SidecarTerminator=true"}, true},
		"all alpha gates":          {[]string{"--feature-gates=AllAlpha=true,EnableExternalCerts=false"}, true},
		"all alpha gates but this": {[]string{"--feature-gates=SidecarTerminator=false,AllAlpha=true"}, false},
		"no value":                 {[]string{"--feature-gates"}, false},
	} {
		if got := terminatorGate([]corev1.Container{{Args: tc.arguments}}); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestReport(t *testing.T) {
	r := newResult([]checkResult{
		{"Operator", "Deployment", outcomeOK, "Deployment a/b is ready", ""},
		{"Operator", "Flags", outcomeWarning, "mode CRR is disabled", "set --crr=Enabled"},
		{"OpenKruise", "OpenKruise", outcomeFailure, "CRD c is missing", "install it"},
	})
	const asYAML = `apiVersion: cli.sidecartermination.dev/v1alpha1
checks:
- message: Deployment a/b is ready
  name: Deployment
  outcome: OK
  section: Operator
- hint: set --crr=Enabled
  message: mode CRR is disabled
  name: Flags
  outcome: Warning
  section: Operator
- hint: install it
  message: CRD c is missing
  name: OpenKruise
  outcome: Failure
  section: OpenKruise
kind: CheckReport
summary:
  failures: 1
  ok: 1
  warnings: 1
`
	var out strings.Builder
	if err := output.FormatYAML.Write(&out, r, r.text); err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(asYAML, out.String()); difference != "" {
		t.Errorf("report (-want +got):\n%s", difference)
	}
}

func TestInstalledKindsAreThoseOfDefault(t *testing.T) {
	want := sets.New[string]()
	for _, object := range testenv.Render(t, "../../config/default") {
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		name := plural.GroupResource().String()
		if object.GetNamespace() != "" {
			name += "/"
		}
		want.Insert(name)
	}
	if diff := cmp.Diff(sets.List(want), sets.List(sets.New(installedKinds...))); diff != "" {
		t.Errorf("kinds of config/default (-want +got):\n%s", diff)
	}
}

// An installation for single namespaces has no admission policies, whatever its values are.
func TestAdmissionHints(t *testing.T) {
	const namespaces = "--watch-namespaces=batch"
	upgrade := func(value string) []string {
		command := "helm upgrade RELEASE CHART -n operators --reset-then-reuse-values --set admissionPolicies." + value
		return []string{command, command + " --force"}
	}
	of := func(file string) []string {
		file = " -f https://raw.githubusercontent.com/sidecar-termination/operator/" + settings.Release + "/config/admission/" + file
		return []string{"kubectl apply --server-side" + file, "kubectl replace" + file}
	}
	again := slices.Repeat([]string{"apply the operator's manifests again, as you installed them"}, 2)
	for name, tc := range map[string]struct {
		flag, manager, deployment, policy string
		want                              []string
	}{
		"kubectl":                              {"", "", settings.DeploymentName, shipped.AuthorsOfPrePull, of("mode_pre_pull.yaml")},
		"kubectl, other names":                 {"", "", "acme-controller-manager", shipped.PhasePolicy, again},
		"kubectl, single namespaces":           {namespaces, "", settings.DeploymentName, shipped.PhasePolicy, of("phase.yaml")},
		"Helm, outcome":                        {"", "Helm", "acme-controller-manager", shipped.OutcomePolicy, upgrade("outcome=Enabled")},
		"Helm, another":                        {"", "Helm", "acme-controller-manager", shipped.PhasePolicy, upgrade("enabled=true")},
		"Helm, single namespaces, other names": {namespaces, "Helm", "acme-controller-manager", shipped.PhasePolicy, of("phase.yaml")},
	} {
		c := newChecker(t, strings.Fields(tc.flag)...)
		c.deployment.ObjectMeta = metav1.ObjectMeta{Namespace: "operators", Name: tc.deployment, Labels: map[string]string{"app.kubernetes.io/managed-by": tc.manager}}
		policy := shipped.AdmissionPolicy{Name: tc.policy}
		c.reportAdmission(policy, shipped.Status{State: shipped.Missing})
		c.reportAdmission(policy, shipped.Status{State: shipped.Changed, Differences: []string{"spec"}})
		got := []string{strings.TrimPrefix(c.results[0].Hint, "install it: "), strings.TrimPrefix(c.results[1].Hint, "if this is not intended, restore it: ")}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: hints (-want +got):\n%s", name, diff)
		}
	}
}
