// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/lint"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/internal/explain"
)

// report is the part of the JSON output that the tests read.
type report struct {
	Summary struct {
		CheckedWorkloads, CheckedPolicies, UncheckedObjects int
	}
	Policies, Workloads, Objects []struct {
		Kind, Name, Path string
		Findings         []explain.Finding
	}
	Findings []explain.Finding
}

// run lints the text with further arguments.
func run(t *testing.T, text string, arguments ...string) (output string, err error) {
	t.Helper()
	command := lint.New(func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) })
	var out bytes.Buffer
	command.SetArgs(append([]string{"-f", "-"}, arguments...))
	command.SetIn(strings.NewReader(text))
	command.SetOut(&out)
	command.SetErr(&out)
	command.SilenceErrors, command.SilenceUsage = true, true
	err = command.ExecuteContext(t.Context())
	return out.String(), err
}

// lines returns each finding as SEVERITY REASON OBJECT, with the place and the container. The messages of mistakes and of what was
// not checked are the result, so they follow.
func (r report) lines() []string {
	var all []string
	add := func(object string, findings []explain.Finding) {
		for _, f := range findings {
			line := strings.Join([]string{string(f.Severity), string(f.Reason), object, f.Container}, " ")
			if f.Reason == v1alpha1.ReasonInvalidManifest || f.Reason == v1alpha1.ReasonNotChecked {
				line = strings.TrimSpace(line) + ": " + f.Message
			}
			all = append(all, strings.TrimSpace(line))
		}
	}
	for _, reports := range [][]struct {
		Kind, Name, Path string
		Findings         []explain.Finding
	}{r.Policies, r.Workloads, r.Objects} {
		for _, found := range reports {
			add(strings.TrimSpace(found.Kind+"/"+found.Name+" "+found.Path), found.Findings)
		}
	}
	add("manifests", r.Findings)
	return all
}

// The policies that lint prints for manifests declare what it has found in them.
func TestPoliciesResolveFindings(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	proposed := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		policies, _ := run(t, string(content), "-o", "policy")
		if strings.Contains(policies, "kind: ") {
			proposed++
		}
		text, _ := run(t, string(content)+"\n---\n"+policies, "-o", "json")
		var got report
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %v: %s", file, err, text)
		}
		for _, line := range got.lines() {
			if strings.Contains(line, string(v1alpha1.ReasonMayHang)) && !strings.HasPrefix(line, string(explain.SeverityWarning)) ||
				strings.Contains(line, string(v1alpha1.ReasonNoMainContainer)) {
				t.Errorf("%s: with the policies: %s\n%s", filepath.Base(file), line, policies)
			}
		}
		if again, _ := run(t, string(content)+"\n---\n"+policies, "-o", "policy"); again != "# nothing to declare\n" {
			t.Errorf("%s: proposed once more:\n%s", filepath.Base(file), again)
		}
	}
	if proposed < 10 {
		t.Errorf("only %d manifests have a proposal", proposed)
	}
}

func TestPolicyFormat(t *testing.T) {
	pod := func(name string, containers ...string) string {
		text := "---\napiVersion: v1\nkind: Pod\nmetadata: {namespace: batch, name: " + name + "}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: main, image: app}\n"
		for _, container := range containers {
			text += "  - {name: " + container + ", image: x}\n"
		}
		return text
	}
	const earlier = "---\napiVersion: sidecartermination.dev/v1alpha1\nkind: SidecarTerminationPolicy\nmetadata: {namespace: batch, name: undeclared-sidecars}\n" +
		"spec: {enforcement: Enforce, sidecars: [{name: vault-agent, drainSeconds: 5}]}\n"
	const head = "apiVersion: sidecartermination.dev/v1alpha1\nkind: SidecarTerminationPolicy\nmetadata:\n  name: undeclared-sidecars\n  namespace: batch\nspec:\n"
	for name, tc := range map[string]struct{ manifests, want string }{
		"two workloads": {pod("a", "istio-proxy") + pod("b", "istio-proxy", "fluent-bit"), `---
# fluent-bit in 1 workload
# istio-proxy in 2 workloads
` + head + `  enforcement: DryRun
  podSelector: {}
  sidecars:
  - name: fluent-bit
  - name: istio-proxy
`},
		"policy of an earlier run": {earlier + pod("a", "istio-proxy"), `---
# istio-proxy in 1 workload
` + head + `  enforcement: Enforce
  podSelector: {}
  sidecars:
  - drainSeconds: 5
    name: vault-agent
  - name: istio-proxy
`},
		"nothing found": {pod("a"), "# nothing to declare\n"},
	} {
		got, _ := run(t, tc.manifests, "-o", "policy")
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Each manifest has the shape that the documentation of a tool describes, which its first line names.
func TestManifests(t *testing.T) {
	const mayHang = "Problem MayHang Job/"
	expected := map[string]struct {
		want    []string
		checked int
	}{
		"istio-pod-label.yaml":          {[]string{"Warning MayHang Job/etl istio-proxy"}, 1},
		"istio-namespace.yaml":          {[]string{"Warning MayHang Job/etl istio-proxy"}, 1},
		"istio-revision.yaml":           {[]string{"Warning MayHang Job/etl istio-proxy"}, 1},
		"istio-opted-out.yaml":          {nil, 1},
		"istio-namespace-disabled.yaml": {nil, 1},
		"istio-native.yaml":             {nil, 1},
		"istio-not-native.yaml":         {[]string{mayHang + "etl istio-proxy"}, 1},
		"istio-host-network.yaml":       {nil, 1},
		"istio-declared.yaml":           {nil, 1},
		"istio-injected-already.yaml":   {[]string{mayHang + "etl istio-proxy"}, 1},
		"linkerd-pod.yaml":              {[]string{"Warning MayHang Job/etl linkerd-proxy"}, 1},
		"linkerd-namespace.yaml":        {[]string{"Warning MayHang Job/etl linkerd-proxy"}, 1},
		"linkerd-opted-out.yaml":        {nil, 1},
		"linkerd-native.yaml":           {nil, 1},
		"dapr.yaml":                     {[]string{mayHang + "job-with-shutdown daprd"}, 1},
		"dapr-native.yaml":              {nil, 1},
		"vault.yaml":                    {[]string{mayHang + "report vault-agent"}, 1},
		"vault-pre-populate-only.yaml":  {nil, 1},
		"vault-main-containers.yaml":    {nil, 1},
		"consul.yaml":                   {[]string{mayHang + "sync consul-dataplane"}, 1},
		"cloud-sql-annotation.yaml":     {[]string{"Warning MayHang Job/migrate csql-batch-orders"}, 1},
		"cloud-sql-workload.yaml": {[]string{
			"Warning NotChecked AuthProxyWorkload/orders: the Cloud SQL Proxy Operator adds container csql-batch-orders to the workloads that it selects; which these are was not checked",
		}, 1},
		"datadog.yaml":                 {[]string{mayHang + "batch datadog-agent-injected"}, 1},
		"opentelemetry-pod.yaml":       {[]string{"Warning MayHang Job/etl otc-container"}, 1},
		"opentelemetry-namespace.yaml": {[]string{"Warning MayHang Job/etl otc-container"}, 1},
		"opentelemetry-opted-out.yaml": {nil, 1},
		"gcsfuse.yaml":                 {nil, 1},
		"jobset.yaml": {[]string{
			"Warning MayHang JobSet/training spec.replicatedJobs[1].template.spec.template linkerd-proxy",
		}, 2},
		"jobset-unquoted.yaml": {[]string{
			"Problem InvalidManifest JobSet/training spec.replicatedJobs[0].template.spec.template: " +
				"spec.replicatedJobs[0].template.spec.template.metadata.labels[sidecar.istio.io/inject]: must be a string, but is the Boolean false: put it in quotes",
			"Problem InvalidManifest JobSet/training spec.replicatedJobs[0].template.spec.template: " +
				"spec.replicatedJobs[0].template.spec.template.spec.containers[0].env[0].value: must be a string, but is the number 10: put it in quotes",
		}, 1},
		"argo-workflow.yaml":      {[]string{"Warning MayHang Workflow/steps-* spec.templates[1] istio-proxy"}, 1},
		"argo-kill-command.yaml":  {nil, 1},
		"argo-sidecars.yaml":      {nil, 1},
		"argo-cron-workflow.yaml": {[]string{"Problem MayHang CronWorkflow/nightly spec.workflowSpec.templates[0] vault-agent"}, 1},
		"pytorchjob.yaml":         {[]string{"Warning MayHang PyTorchJob/pytorch-simple spec.pytorchReplicaSpecs.Worker.template istio-proxy"}, 2},
		"tfjob.yaml":              {[]string{"Problem MayHang TFJob/tf-smoke spec.tfReplicaSpecs.Worker.template fluent-bit"}, 1},
		"mpijob.yaml": {[]string{
			"Problem InvalidManifest MPIJob/pi spec.mpiReplicaSpecs.Launcher.template: " +
				"spec.mpiReplicaSpecs.Launcher.template.spec.container: is an unknown field: containers, a list, must have at least one container",
		}, 1},
		"trainjob-with-runtime.yaml": {[]string{
			"Problem MayHang TrainingRuntime/torch spec.template.spec.replicatedJobs[0].template.spec.template promtail",
			"Note NotChecked TrainJob/example: its pods are those of its runtime, which is checked where its manifest is given",
		}, 1},
		"sparkapplication.yaml": {[]string{
			"Problem MayHang SparkApplication/spark-pi spec.driver fluent-bit",
			"Warning MayHang SparkApplication/spark-pi spec.driver istio-proxy",
		}, 1},
		"scheduledsparkapplication.yaml": {[]string{"Problem MayHang ScheduledSparkApplication/spark-pi spec.template.driver vault-agent"}, 1},
		"tekton-taskrun.yaml":            {[]string{"Note NotChecked TaskRun/build: left alone: Tekton ends the sidecars of its pods"}, 0},
		"airflow-pod-template.yaml":      {[]string{"Warning MayHang Pod/placeholder-name istio-proxy"}, 1},
		"airflow-preset.yaml":            {nil, 1},
		"jenkins-agent.yaml":             {[]string{"Warning MayHang Pod/build linkerd-proxy", "Warning MayHang Pod/build"}, 1},
		"jenkins-pod-template.yaml":      {[]string{"Warning NotChecked manifests: the manifests contain no policy, and no workload whose pods finish"}, 0},
		"github-arc-step.yaml":           {[]string{mayHang + "runner-step-1c0ffee0 fluent-bit"}, 1},
		"gitlab-pod.yaml":                {[]string{"Problem MayHang Pod/runner-project-7-concurrent-0 istio-proxy", "Warning MayHang Pod/runner-project-7-concurrent-0"}, 1},
		"helm-hook-job.yaml":             {[]string{mayHang + "airflow-run-airflow-migrations cloud-sql-proxy", "Warning MayHang Job/airflow-run-airflow-migrations istio-proxy"}, 1},
		"rayjob.yaml":                    {[]string{"Warning MayHang RayJob/fit-model spec.submitterPodTemplate istio-proxy"}, 1},
		"rayjob-submitter.yaml":          {[]string{"Problem MayHang RayJob/fit-model spec.submitterPodTemplate vault-agent"}, 1},
		"rayjob-sidecar-mode.yaml":       {[]string{"Note NotChecked RayJob/tune-model: left alone: with submissionMode SidecarMode no Job submits the Ray job"}, 0},
		"raycluster.yaml":                {[]string{"Note NotChecked RayCluster/shared: left alone: a Ray cluster runs until it is deleted"}, 0},
		"custom-template.yaml": {[]string{
			"Problem MayHang Experiment/sweep spec.trials[0].podTemplate daprd",
			"Problem MayHang Experiment/sweep spec.trials[1].runner envoy",
		}, 2},
		"custom-without-restart-policy.yaml": {[]string{
			"Note NotChecked Rollout/web: spec.template.spec.restartPolicy is not set: its pods are assumed to run forever",
		}, 0},
		"custom-without-template.yaml": {[]string{"Warning NotChecked Pipeline/nightly: no pod template was found in it"}, 0},
		"scaledjob.yaml":               {[]string{"Problem MayHang ScaledJob/consumer spec.jobTargetRef.template cloud-sql-proxy"}, 1},
		"nothing-to-check.yaml":        {[]string{"Warning NotChecked manifests: the manifests contain no policy, and no workload whose pods finish"}, 0},
		"job-without-restart-policy.yaml": {[]string{
			"Problem InvalidManifest Job/pi: spec.template.spec.restartPolicy: is missing: the default is Always, but a Job needs Never or OnFailure",
			mayHang + "pi fluentd",
			"Problem InvalidManifest CronJob/hello: spec.jobTemplate.spec.template.spec.restartPolicy: is Always, but a Job needs Never or OnFailure",
		}, 2},
		"job-container-field.yaml": {[]string{
			"Problem InvalidManifest Job/singular: spec.template.spec.container: is an unknown field: containers, a list, must have at least one container",
			mayHang + "singular promtail",
			"Problem InvalidManifest Pod/none: spec.containers: must have at least one container",
			mayHang + "read-as-well vector",
		}, 3},
		"job-unquoted.yaml": {[]string{
			"Problem InvalidManifest Job/unquoted: spec.template.metadata.annotations[vault.hashicorp.com/agent-inject]: must be a string, but is the Boolean true: put it in quotes",
			"Problem InvalidManifest Job/unquoted: spec.template.spec.containers[0].env[0].value: must be a string, but is the Boolean true: put it in quotes",
			mayHang + "unquoted vault-agent",
			mayHang + "read-as-well daprd",
			"Problem InvalidManifest Job/wrong-type: spec.template.spec.containers.args: a string is not allowed here",
		}, 2},
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) != len(expected) {
		t.Errorf("found %d manifests, want %d: %v", len(files), len(expected), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(text), "# Source: ") {
				t.Error("the first line names no source")
			}
			out, err := run(t, string(text), "-o", "json", "--fail-on=warning")
			var got report
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			tc := expected[filepath.Base(file)]
			if diff := cmp.Diff(tc.want, got.lines()); diff != "" {
				t.Errorf("findings differ (-want +got):\n%s", diff)
			}
			if got.Summary.CheckedWorkloads != tc.checked {
				t.Errorf("checked %d workloads, want %d", got.Summary.CheckedWorkloads, tc.checked)
			}
			failed := strings.Contains(strings.Join(tc.want, "\n"), "Problem ") || strings.Contains(strings.Join(tc.want, "\n"), "Warning ")
			if errors.Is(err, output.ErrProblem) != failed {
				t.Errorf("error %v, want a failure: %v", err, failed)
			}
		})
	}
}

func TestNothingToCheckIsNotGreen(t *testing.T) {
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: app}]}}}\n"
	const unknown = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: b}\nspec: {size: 1}\n"
	for name, tc := range map[string]struct {
		text      string
		arguments []string
		err       string // exit code 1 has ErrProblem
		line      string // last line of the output
	}{
		"no object":         {"---\n# nothing\n---\n", nil, "the manifests contain no object", ""},
		"empty input":       {"", nil, "the manifests contain no object", ""},
		"checked":           {job, nil, "", "Checked 1 workload: no findings"},
		"unknown kind":      {job + "---\n" + unknown, nil, "", "Checked 1 workload: no findings; not checked: 1 object"},
		"strict":            {job + "---\n" + unknown, []string{"--fail-on=warning"}, output.ErrProblem.Error(), "Checked 1 workload: no findings; not checked: 1 object"},
		"ignored kind":      {job + "---\n" + unknown, []string{"--fail-on=warning", "--ignore-kind=widget.example.com"}, "", "Checked 1 workload: no findings"},
		"only ignored kind": {unknown, []string{"--fail-on=warning", "--ignore-kind=Widget.example.com"}, output.ErrProblem.Error(), "No Jobs, CronJobs or pods with restartPolicy Never or OnFailure found"},
		"only a policy": {
			"apiVersion: sidecartermination.dev/v1alpha1\nkind: SidecarTerminationPolicy\nmetadata: {name: p}\nspec: {podSelector: {}, sidecars: [{name: a}]}\n",
			[]string{"--fail-on=warning"}, "", "Checked 1 policy: no findings",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, tc.text, tc.arguments...)
			if got := errorText(err); got != tc.err {
				t.Errorf("got error %q, want %q", got, tc.err)
			}
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			if got := lines[len(lines)-1]; got != tc.line {
				t.Errorf("the output ends with %q, want %q", got, tc.line)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
