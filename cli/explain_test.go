// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/hack/podtest"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/explain"
	"github.com/sidecar-termination/operator/internal/settings"
)

// template is of a pod with main and proxy, on the node of newNode.
func template() corev1.PodTemplateSpec {
	pod := podtest.New()
	pod.Spec.NodeName = "node-of-cli-tests"
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec}
}

func newJob(namespace string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job"}, Spec: batchv1.JobSpec{Template: template()}}
}

func newPolicy(namespace string) *v1alpha1.SidecarTerminationPolicy {
	policy := &v1alpha1.SidecarTerminationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mesh"}}
	policy.Spec.Sidecars = []v1alpha1.Sidecar{{Name: "proxy"}}
	return policy
}

func ago(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

// runPod creates the Job's pod, in which main terminated an hour ago.
func runPod(t *testing.T, c client.Client, job *batchv1.Job) *corev1.Pod {
	t.Helper()
	return runPodWith(t, c, job, "job-1", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: ago(time.Hour)}})
}

// runPodWith creates a pod of the Job in which proxy runs and main is in the given state.
func runPodWith(t *testing.T, c client.Client, job *batchv1.Job, name string, main corev1.ContainerState) *corev1.Pod {
	t.Helper()
	pod := podtest.New(podtest.InNamespace(job.Namespace, name), func(p *corev1.Pod) {
		p.Spec, p.Labels[batchv1.ControllerUidLabel] = *job.Spec.Template.Spec.DeepCopy(), string(job.UID)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	})
	status := pod.Status
	create(t, c, pod)
	status.ContainerStatuses[0].State = main
	pod.Status = status
	must(t, c.Status().Update(t.Context(), pod))
	return pod
}

// runRecorded creates the Job's pod with the marks of the operator and the record of the admission policy.
func runRecorded(t *testing.T, c client.Client, job *batchv1.Job) *corev1.Pod {
	t.Helper()
	pod := runPod(t, c, job)
	pod.Labels[v1alpha1.LabelOutcome] = v1alpha1.OutcomeMainContainers
	pod.Annotations = map[string]string{
		v1alpha1.AnnotationIgnoredExitCodes: "proxy/" + string(pod.UID), v1alpha1.AnnotationMainContainers: v1alpha1.MainsSucceeded + "/" + string(pod.UID),
	}
	must(t, c.Status().Update(t.Context(), pod))
	return pod
}

// newNode creates the node that the pods are on, and removes it at the end.
func newNode(t *testing.T, c client.Client) {
	t.Helper()
	addNode(t, c, "node-of-cli-tests", nil)
}

// addNode creates a node, and removes it at the end.
func addNode(t *testing.T, c client.Client, name string, labels map[string]string) {
	t.Helper()
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

func wantOutput(t *testing.T, what, got string, code, wantCode int, parts ...string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("%s: exit code is %d, want %d", what, code, wantCode)
	}
	flat := strings.Join(strings.Fields(got), " ")
	for _, part := range parts {
		if !strings.Contains(flat, part) {
			t.Errorf("%s: output lacks %q", what, part)
		}
	}
	if t.Failed() {
		t.Logf("%s:\n%s", what, got)
	}
}

func TestExplainJob(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	job := newJob(namespace)
	create(t, c, newPolicy(namespace), job)

	wantCommand(t, "a Job without pods", "explain job/job -n "+namespace, 0, "no pod yet", "proxy sidecar SidecarTerminationPolicy/mesh", "real node PodPhase mode Auto (default)")

	pod := runRecorded(t, c, job)
	create(t, c, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "event"}, EventTime: metav1.NowMicro(), Type: "Normal",
		ReportingController: settings.Name, ReportingInstance: "one", Action: "TerminateSidecars", Reason: "Terminating", Note: "it is ending",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: pod.Name, UID: pod.UID},
	})
	for _, arguments := range []string{"job/job", "jobs job", "pod/job-1", "po job-1"} {
		wantCommand(t, arguments, "explain -n "+namespace+" "+arguments, 1, "of Job job", "real node node-of-cli-tests, main containers done 60m ago",
			"Due: main containers are done, and the operator has not acted yet; it will end proxy by mode PodPhase",
			"main exit 0, 60m ago -", "Overdue", settings.PluginName+" check", "Terminating: it is ending", "no operator found in namespace")
	}
	wantCommand(t, "every Job", "explain jobs -n "+namespace, 1, "job/job Never proxy Due", "problem Overdue",
		"-> see what to do about one of them: "+settings.PluginName+" explain job/job -n "+namespace)
	runPodWith(t, c, job, "job-2", corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Minute)}})
	out := wantCommand(t, "every Job, with two pods", "explain jobs -n "+namespace, 1, "job/job Never proxy Due", "problem Overdue")
	if rows := strings.Count(out, namespace+" "); rows != 1 {
		t.Errorf("a Job with two pods has %d lines, want one:\n%s", rows, out)
	}
	wantCommand(t, "every pod", "explain pods -A", 1, namespace+" pod/job-1")
	for _, arguments := range []string{"pods -l team=etl", "-l team=etl", "po -l team!=web"} {
		wantCommand(t, "pods with a label", "explain "+arguments+" -n "+namespace, 1, namespace+" pod/job-1 Never proxy Due", namespace+" pod/job-2")
	}
	if out := wantCommand(t, "no pods with a label", "explain jobs -l team=web -n "+namespace, 0); strings.Contains(out, "job/job") {
		t.Errorf("the Job does not have the label:\n%s", out)
	}
	wantCommand(t, "a name and labels", "explain job/job -l team=etl -n "+namespace, 2, "error: ")
	wantCommand(t, "a bad selector", "explain pods -l a==b==c -n "+namespace, 2, "error: ")

	wantCommand(t, "the policy", "explain policy/mesh -n "+namespace, 1, namespace+" pod/job-1 proxy Due", "Overdue: Pod "+namespace+"/job-1")
	wantCommand(t, "every policy", "explain stp -n "+namespace, 1, "NAME MODE ENFORCEMENT SIDECARS PODS FINDING", "policy/mesh Auto Enforce proxy 2 problem Overdue",
		settings.PluginName+" explain policy/mesh -n "+namespace)
	for line, want := range map[string]string{
		"jobs -l team=web -n " + namespace: "No unfinished Jobs found with labels team=web in namespace " + namespace,
		"policies -n default":              "No SidecarTerminationPolicy found in namespace default",
		"policies -l team=web -A":          "No SidecarTerminationPolicy found with labels team=web in any namespace",
		"cstp -l team=web":                 "No ClusterSidecarTerminationPolicy found with labels team=web",
	} {
		wantCommand(t, "nothing", "explain "+line, 0, want)
	}

	wantCommand(t, "a Job that is not there", "explain job/other -n "+namespace, 2, `error: jobs.batch "other" not found in namespace `+namespace)
}

func TestExplainPolicies(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	job, other := newJob(namespace), newPolicy(namespace)
	other.Name, other.Spec.PodSelector = "other", metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}}
	overridden := newPolicy(namespace)
	overridden.Name, overridden.Spec.Priority = "overridden", -1
	overridden.Spec.Sidecars, overridden.Spec.MainContainers = nil, []v1alpha1.ContainerName{"main", "proxy"}
	create(t, c, newPolicy(namespace), other, overridden, job)
	runPod(t, c, job)
	wantCommand(t, "policies", "explain policies -n "+namespace, 1, "policy/mesh Auto Enforce proxy 1 problem Overdue",
		"policy/other Auto Enforce proxy 0", "policy/overridden Auto Enforce all except main,proxy 0")
}

func TestExplainOfOtherTypes(t *testing.T) {
	for argument, want := range map[string]string{
		"widget/a":           `the server doesn't have a resource type "widget"`,
		"service/kubernetes": "Service is not a type to explain",
		"cstp/missing":       `clustersidecarterminationpolicies.sidecartermination.dev "missing" not found`,
		"clusterpolicy/none": `clustersidecarterminationpolicies.sidecartermination.dev "none" not found`,
	} {
		wantCommand(t, argument, "explain "+argument+" -n default", 2, want)
	}
	wantCommand(t, "a name in all namespaces", "explain job/a -A", 2, "cannot be retrieved by name across all namespaces")
}

func TestExplainJSON(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	job := newJob(namespace)
	create(t, c, newPolicy(namespace), job)
	runRecorded(t, c, job)
	out, _ := runCommand(t, "explain", "job/job", "-n", namespace, "-o", "json")
	var result struct {
		APIVersion, Kind string
		Summary          explain.Summary
		Pods             []explain.Report
		Jobs             []struct{ Name, Status string }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if result.APIVersion != "cli.sidecartermination.dev/v1alpha1" || result.Kind != "ExplainReport" || result.Summary.Problems != 1 ||
		len(result.Pods) != 1 || result.Pods[0].Reason != v1alpha1.ReasonTerminating || len(result.Jobs) != 1 || result.Jobs[0].Status != "Running" {
		t.Errorf("result is %+v", result)
	}
}

func TestExplainWithOpenKruise(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	testenv.NewKruise(t, c).Install(t)
	job := newJob(namespace)
	create(t, c, newPolicy(namespace), job)
	pod := runRecorded(t, c, job)
	wantCommand(t, "before a request", "explain job/job -n "+namespace, 1, "real node CRR, then PodPhase mode Auto", "it will end proxy by mode CRR")

	create(t, c, newRequest(pod))
	wantCommand(t, "after a request", "explain job/job -n "+namespace, 0, "Terminating (AttemptInProgress): waiting for sidecars to end: proxy",
		"MODE ATTEMPT STARTED SIDECARS CRR 1", "next reconcile within")
}

func TestExplainNodeTypes(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	addNode(t, c, "fargate-of-cli-tests", map[string]string{"eks.amazonaws.com/compute-type": "fargate"})
	testenv.NewKruise(t, c).Install(t)
	job := newJob(namespace)
	create(t, c, newPolicy(namespace), job)
	out := wantCommand(t, "a Job without pods", "explain job/job -n "+namespace, 0, "real node CRR, then PodPhase mode Auto", "node without OpenKruise's daemon PodPhase")
	if strings.Contains(out, "virtual node") {
		t.Errorf("there is no virtual node:\n%s", out)
	}

	job.Spec.Template.Spec.NodeName = "fargate-of-cli-tests"
	runRecorded(t, c, job)
	wantCommand(t, "a pod", "explain job/job -n "+namespace, 1, "daemonless node fargate-of-cli-tests", "node without OpenKruise's daemon PodPhase", "it will end proxy by mode PodPhase")
}

// TestExplainWithFewPermissions has a user with the usual permissions of a namespace owner.
func TestExplainWithFewPermissions(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	job := newJob(namespace)
	create(t, c, newPolicy(namespace), job)
	grant(t, c, namespace, "olga", rbacv1.PolicyRule{APIGroups: []string{"", "batch", v1alpha1.GroupName}, Resources: []string{"*"}, Verbs: []string{"get", "list"}})
	grant(t, c, namespace, "paul", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}})
	runPod(t, c, job)
	wantCommand(t, "an owner of a namespace", "explain job/job -n "+namespace+" --as olga", 1, "Overdue",
		"note: you may not read Deployments", "note: you may not read nodes", "note: you may not list clustersidecarterminationpolicies")
	wantCommand(t, "another namespace", "explain job/job -n default --as olga", 2, "error: jobs.batch", "forbidden")
	wantCommand(t, "lint", "lint -n "+namespace+" --as olga", 0, "Checked 1 workload: no findings")
	out := wantCommand(t, "a reader of pods, but not of Jobs", "explain pods -n "+namespace+" --as=paul", 1, "MayHang")
	if strings.Contains(out, "may not read namespace job:") {
		t.Errorf("a Job that the user may not read counts as a namespace:\n%s", out)
	}
}

func TestFailurePolicyOfJob(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	job := newJob(namespace)
	job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: batchv1.PodFailurePolicyActionIgnore,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{137, 143},
		},
	}}}
	create(t, c, newPolicy(namespace), job)
	const warning = "warning SidecarMatchesFailurePolicy: podFailurePolicy.rules[0] (Ignore on exit codes 137, 143) has no containerName"
	for _, command := range []string{"explain job/job", "lint"} {
		wantCommand(t, "template", command+" -n "+namespace, 0, warning)
	}
	runPodWith(t, c, job, "job-1", corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Minute)}})
	for _, command := range []string{"explain job/job", "explain pod/job-1", "lint"} {
		wantCommand(t, "pod", command+" -n "+namespace, 0, warning)
	}
}

func TestLint(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	create(t, c, newJob(namespace), &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cron"}, Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template()}},
	}})
	wantCommand(t, "templates", "lint -n "+namespace, 0, "Job "+namespace+"/job", "CronJob "+namespace+"/cron", "warning MayHang: main, proxy", "Checked 2 workloads: 2 have findings")
	wantCommand(t, "with --fail-on=warning", "lint --fail-on=warning -n "+namespace, 1)
	wantCommand(t, "a label of the Job", "lint -l team=etl -n "+namespace, 0, "Job "+namespace+"/job", "Checked 1 workload: 1 has findings")
	wantCommand(t, "not that label", "lint -l team!=etl -n "+namespace, 0, "CronJob "+namespace+"/cron", "Checked 1 workload: 1 has findings")
	wantCommand(t, "a bad selector", "lint -l a==b==c -n "+namespace, 2, "error: --selector")
	job := &batchv1.Job{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "job"}, job))
	runPod(t, c, job)
	wantCommand(t, "a hanging pod", "lint -n "+namespace, 1, "Job "+namespace+"/job (pods: job-1) problem MayHang: container proxy is still running", "Checked 2 workloads: 2 have findings")
	runPodWith(t, c, job, "job-0", corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Hour)}})
	runPodWith(t, c, job, "job-3", corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Hour)}})
	wantCommand(t, "a hanging pod among others", "lint -n "+namespace, 1, "Job "+namespace+"/job (pods: job-0, job-1, job-3)",
		"problem MayHang: container proxy is still running", "under mainContainers "+settings.PluginName+" lint -n "+namespace+" -o policy", "Checked 2 workloads: 2 have findings")
	wantCommand(t, "pods of a Job with a label", "lint -l team=etl -n "+namespace, 1, "Job "+namespace+"/job (pods: job-0,", "Checked 1 workload: 1 has findings")
	create(t, c, newPolicy(namespace))
	wantCommand(t, "after a policy", "lint -n "+namespace+" --fail-on=warning", 0, "no findings")
}

// Names of pods and of a CronJob's Jobs change from run to run.
func TestLintNamesOwners(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cron"}, Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template()}},
	}}
	create(t, c, cron)
	job := newJob(namespace)
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))}
	create(t, c, job)
	runPod(t, c, job)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Hour)}}
	workflow := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "etl", UID: "0"}} // an owner that the plugin cannot read
	for i, name := range []string{"etl-1", "etl-2"} {
		pod := podtest.New(podtest.InNamespace(namespace, name), func(p *corev1.Pod) {
			p.Spec, p.OwnerReferences = template().Spec, []metav1.OwnerReference{
				*metav1.NewControllerRef(workflow, schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Workflow"}),
			}
		})
		status := pod.Status
		create(t, c, pod)
		status.ContainerStatuses[0].State, pod.Status = running, status
		if i == 1 {
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: ago(time.Hour)}}
		}
		must(t, c.Status().Update(t.Context(), pod))
	}
	wantCommand(t, "text", "lint -n "+namespace, 1, "CronJob "+namespace+"/cron (pods: job-1)", "Workflow "+namespace+"/etl (pods: etl-1, etl-2) warning MayHang: main, proxy",
		"problem MayHang: container proxy is still running", "Checked 2 workloads: 2 have findings")
	out := wantCommand(t, "JUnit", "lint -o junit -n "+namespace, 1, `name="CronJob `+namespace+`/cron"`, `name="Workflow `+namespace+`/etl"`, `tests="3"`)
	if strings.Contains(out, `name="Pod`) || strings.Contains(out, `name="Job`) {
		t.Errorf("a name changes from run to run:\n%s", out)
	}
	wantCommand(t, "policy", "lint -o policy -n "+namespace, 0, "# proxy in 2 workloads")
}

func TestCompletionOfNames(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	job := newJob(namespace)
	create(t, c, newPolicy(namespace), job)
	runPod(t, c, job)
	config := kubeconfig(t)
	for line, want := range map[string]string{
		"explain job/":        "job/job\n",
		"explain pods ":       "job-1\n",
		"explain stp/m":       "stp/mesh\n",
		"explain cronjob ":    "",
		"finish po/":          "po/job-1\n",
		"finish pod/a job/":   "job/job\n",
		"explain --context ":  "test\n",
		"explain --user ":     "admin\n",
		"lint --namespace cl": namespace + "\n",
	} {
		words := strings.Split(line, " ")
		arguments := append([]string{"__completeNoDesc", words[0], "--kubeconfig=" + config, "--cache-dir=" + t.TempDir(), "--namespace=" + namespace, "--request-timeout=1m"}, words[1:]...)
		out, code := runArguments(t, arguments...)
		names, _, _ := strings.Cut(out, ":")
		if got := names; !strings.Contains(got, want) || want == "" && got != "" || code != 0 {
			t.Errorf("%q completes to %q, want %q", line, got, want)
		}
	}
	if out, code := runArguments(t, "__completeNoDesc", "explain", "--server=https://127.0.0.1:1", "pod/"); strings.Contains(out, "pod/") || code != 0 {
		t.Errorf("an API server that cannot be reached: %s", out)
	}
}
