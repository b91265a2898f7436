// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/cli/finish"
	"github.com/sidecar-termination/operator/cli/output"
	"github.com/sidecar-termination/operator/config"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/settings"
	"github.com/sidecar-termination/operator/internal/shipped"
	"github.com/sidecar-termination/operator/internal/terminator/image"
	"github.com/sidecar-termination/operator/internal/terminator/podphase"
)

// newStuckPod creates a Job's pod whose main container ended an hour ago and whose container proxy runs, with or without a policy that
// declares it.
func newStuckPod(t *testing.T, policy bool) (client.Client, *batchv1.Job, *corev1.Pod) {
	t.Helper()
	c, namespace := newNamespace(t)
	newNode(t, c)
	job := newJob(namespace)
	create(t, c, job)
	if policy {
		create(t, c, newPolicy(namespace))
	}
	return c, job, runPod(t, c, job)
}

// reload reads the pod again.
func reload(t *testing.T, c client.Client, pod *corev1.Pod) {
	t.Helper()
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
}

// requireUnchanged fails the test if somebody has written the pod or an event since the pod was read.
func requireUnchanged(t *testing.T, c client.Client, pod *corev1.Pod) {
	t.Helper()
	version := pod.ResourceVersion
	if reload(t, c, pod); pod.ResourceVersion != version {
		t.Errorf("the pod was changed: phase %s, annotations %v", pod.Status.Phase, pod.Annotations)
	}
	if found := eventsIn(t, c, pod.Namespace); len(found) > 0 {
		t.Errorf("events: %v", found)
	}
}

func eventsIn(t *testing.T, c client.Client, namespace string) []eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	must(t, c.List(t.Context(), &list, client.InNamespace(namespace)))
	return list.Items
}

// installOutcomePolicy installs the admission policy that decides the outcome of pods.
func installOutcomePolicy(t *testing.T, c client.Client) {
	t.Helper()
	policies, err := config.AdmissionPolicies()
	must(t, err)
	for i := range policies {
		if policies[i].GetName() == shipped.OutcomePolicy {
			create(t, c, &policies[i])
		}
	}
	awaitOutcomePolicy(t, c)
}

// awaitOutcomePolicy waits until the API server has noticed the admission policy.
func awaitOutcomePolicy(t *testing.T, c client.Client) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-"}}
	create(t, c, namespace)
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "probe"}, Spec: template().Spec}
	create(t, c, probe)
	testenv.Eventually(t, "the admission policy answers", func(ctx context.Context) error {
		applied, err := (&podphase.Terminator{Client: client.NewDryRunClient(c)}).Execute(ctx, probe, plan.Write{Mark: &plan.Mark{}})
		if err == nil && (applied.Pod == nil || plan.OutcomeUndecided(applied.Pod)) {
			err = fmt.Errorf("no answer: %w", applied.Answer)
		}
		return err
	})
}

// requireMarked fails the test unless the pod has the values of the marks, with its UID.
func requireMarked(t *testing.T, pod *corev1.Pod, end, mains string) {
	t.Helper()
	want := map[string]string{v1alpha1.AnnotationIgnoredExitCodes: "proxy/" + string(pod.UID), v1alpha1.AnnotationEnd: end + "/" + string(pod.UID)}
	if mains != "" {
		want[v1alpha1.AnnotationMainContainers] = mains + "/" + string(pod.UID)
	}
	if diff := cmp.Diff(want, pod.Annotations); diff != "" || pod.Labels[v1alpha1.LabelOutcome] != v1alpha1.OutcomeMainContainers {
		t.Errorf("labels %v, annotations (-want +got):\n%s", pod.Labels, diff)
	}
}

func TestFinishJob(t *testing.T) {
	c, job, pod := newStuckPod(t, true)
	installOutcomePolicy(t, c)
	wantCommand(t, "no such Job", "finish job/other -n "+pod.Namespace, 2, `error: get Job: jobs.batch "other" not found`)
	runPodWith(t, c, job, "job-2", corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Hour)}})
	stray := runPodWith(t, c, job, "job-3", pod.Status.ContainerStatuses[0].State)
	stray.OwnerReferences = nil // somebody has copied the labels of the Job's pods
	must(t, c.Update(t.Context(), stray))
	if out := wantCommand(t, "names", "finish job/job --dry-run=server -o name -n "+pod.Namespace, 1); out != "pod/job-1\n" {
		t.Errorf("names of finished pods: %q", out)
	}
	out := wantCommand(t, "one of two pods hangs", "finish job/job pod/job-1 pod/job-1 -n "+pod.Namespace, 1, "pod/job-1 finished FinishedByUser", "pod/job-2 refused MainContainersRunning")
	if strings.Count(out, "pod/job-1") != 1 {
		t.Errorf("a pod is listed more than once:\n%s", out)
	}
	if reload(t, c, pod); pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase %s", pod.Status.Phase)
	}
	out = wantCommand(t, "again", "finish job job -n "+pod.Namespace, 1, "pod/job-2 refused")
	if strings.Contains(out, "pod/job-1") {
		t.Errorf("the finished pod is listed:\n%s", out)
	}
}

func TestFinishMarksPod(t *testing.T) {
	c, _, pod := newStuckPod(t, true)
	installOutcomePolicy(t, c)
	const message = "FinishedByUser main containers are done; ending proxy by mode PodPhase, with phase Succeeded"
	wantCommand(t, "dry run", "finish pod/job-1 -n "+pod.Namespace+" --dry-run=server", 0, "pod/job-1 finished (server dry run) "+message)
	requireUnchanged(t, c, pod)
	wantCommand(t, "finish", "finish pod/job-1 -n "+pod.Namespace, 0, pod.Namespace+" pod/job-1 finished "+message)
	reload(t, c, pod)
	requireMarked(t, pod, v1alpha1.EndPodPhase, v1alpha1.MainsDecided)
	conditions := pod.Status.Conditions
	if pod.Status.Phase != corev1.PodSucceeded || len(conditions) != 1 || conditions[0].Type != v1alpha1.PodConditionSidecarTerminated {
		t.Errorf("phase %s, conditions %v", pod.Status.Phase, conditions)
	}
	recorded := eventsIn(t, c, pod.Namespace)
	if len(recorded) != 1 || recorded[0].Reason != "FinishedByUser" || recorded[0].ReportingController != settings.PluginProgram ||
		recorded[0].Regarding.UID != pod.UID || !strings.HasSuffix(recorded[0].Note, "with phase Succeeded, as requested with: "+settings.PluginName+" finish") {
		t.Errorf("events: %+v", recorded)
	}

	version := pod.ResourceVersion
	wantCommand(t, "again", "finish pod/job-1 -n "+pod.Namespace, 0, "pod/job-1 unchanged PodFinished the pod has finished")
	if reload(t, c, pod); pod.ResourceVersion != version {
		t.Error("the second command changed the pod")
	}
	wantCommand(t, "explain", "explain pod/job-1 -n "+pod.Namespace, 0, "FinishedByUser: main containers are done")
}

// A container that a webhook has added is a sidecar for every command, as for the operator. finish needs no permission of the operator.
func TestFinishEndsInjectedSidecar(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	installOutcomePolicy(t, c)
	job := newJob(namespace)
	injected := job.Spec.Template.Spec.Containers
	job.Spec.Template.Spec.Containers = injected[:1]
	create(t, c, job)
	job.Spec.Template.Spec.Containers = injected
	policy := newPolicy(namespace)
	policy.Spec.Sidecars, policy.Spec.IncludeInjected = nil, true
	create(t, c, policy)
	pod := runPod(t, c, job)
	for _, arguments := range []string{"pod/job-1", "pods", "policy/mesh"} {
		out, _ := runCommand(t, "explain", arguments, "-n", namespace)
		if strings.Contains(out, string(v1alpha1.ReasonMainContainersRunning)) || strings.Contains(out, string(v1alpha1.ReasonNoSidecar)) {
			t.Errorf("explain %s takes the injected container for a main container:\n%s", arguments, out)
		}
	}
	policy.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue,
		Reason: string(v1alpha1.ReasonJobsForbidden), LastTransitionTime: metav1.Now()}}
	must(t, c.Status().Update(t.Context(), policy))
	wantCommand(t, "the operator may not read Jobs", "explain pod/job-1 -n "+namespace, 1, "proxy main", "warning JobsForbidden: includeInjected has no effect",
		"component include-injected", "problem MayHang: container proxy")
	out, code := runCommand(t, "finish", "pod/job-1", "-n", namespace)
	if reload(t, c, pod); code != 0 || pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("exit code %d, phase %s:\n%s", code, pod.Status.Phase, out)
	}
}

// Without the admission policy, the write of the command has the phase.
func TestFinishWithoutOutcomePolicy(t *testing.T) {
	c, _, pod := newStuckPod(t, true)
	testenv.Eventually(t, "the admission policy of other tests is gone", func(ctx context.Context) error {
		applied, err := (&podphase.Terminator{Client: client.NewDryRunClient(c)}).Execute(ctx, pod, plan.Write{Mark: &plan.Mark{}})
		if err == nil && (applied.Pod == nil || !plan.OutcomeUndecided(applied.Pod)) {
			err = errors.New("it answers")
		}
		return err
	})
	line := "finish pod/job-1 -n " + pod.Namespace
	wantCommand(t, "dry run", line+" --dry-run=server", 0, "pod/job-1 finished (server dry run) FinishedByUser")
	requireUnchanged(t, c, pod)
	wantCommand(t, "no policy", line, 0, "pod/job-1 finished FinishedByUser")
	reload(t, c, pod)
	requireMarked(t, pod, v1alpha1.EndPodPhase, v1alpha1.MainsDecided)
}

func TestFinishOfLongGracePeriod(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	job := newJob(namespace)
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3601)
	create(t, c, newPolicy(namespace), job)
	pod := runPod(t, c, job)
	wantCommand(t, "finish", "finish pod/job-1 -n "+namespace, 1, "pod/job-1 refused GracePeriodTooLong", "-> use --mode Image")
	requireUnchanged(t, c, pod)
}

// finishWhile finishes the pod job-1 and calls change each time that the command has read the pod. The command asks for the time
// then, and also when it starts and, after the write, for the event.
func finishWhile(t *testing.T, namespace string, change func()) (string, int) {
	t.Helper()
	started := false
	command := finish.New(func() time.Time {
		if started {
			change()
		}
		started = true
		return time.Now()
	})
	var out bytes.Buffer
	command.SetOut(&out)
	command.SetArgs([]string{"pod/job-1", "-n", namespace, "--kubeconfig=" + kubeconfig(t), "--cache-dir=" + t.TempDir()})
	code := output.Report(&out, command.ExecuteContext(t.Context()))
	return out.String(), code
}

func TestFinishWhilePodChanges(t *testing.T) {
	admin, _ := newNamespace(t)
	installOutcomePolicy(t, admin)
	type change func(t *testing.T, c client.Client, job *batchv1.Job, pod *corev1.Pod)
	updated := func(set func(status *corev1.PodStatus)) change {
		return func(t *testing.T, c client.Client, _ *batchv1.Job, pod *corev1.Pod) {
			t.Helper()
			reload(t, c, pod)
			set(&pod.Status)
			must(t, c.Status().Update(t.Context(), pod))
		}
	}
	touched := updated(func(status *corev1.PodStatus) { status.Message += "." })
	ended := updated(func(status *corev1.PodStatus) {
		status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}
	})
	replaced := func(t *testing.T, c client.Client, job *batchv1.Job, pod *corev1.Pod) {
		t.Helper()
		must(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		*pod = *runPod(t, c, job)
	}
	// The admission policy looks at the pod as it is. Phase Failed is only written to the pod that was read.
	const failed = 3
	for name, tc := range map[string]struct {
		exitCode int32
		change   change
		changes  int
		code     int
		want     string
	}{
		"once, main succeeded":     {0, touched, 1, 0, "pod/job-1 finished FinishedByUser"},
		"three times":              {failed, touched, 3, 0, "pod/job-1 finished FinishedByUser"},
		"each time":                {failed, touched, 4, 2, "the pod has changed each time since it was read; run the command again"},
		"sidecar ends":             {failed, ended, 1, 0, "pod/job-1 unchanged Terminated"},
		"replaced":                 {failed, replaced, 1, 2, "the pod is gone, and another one has its name"},
		"replaced, was to succeed": {0, replaced, 1, 2, "the pod is gone, and another one has its name"},
	} {
		t.Run(name, func(t *testing.T) {
			c, namespace := newNamespace(t)
			newNode(t, c)
			job := newJob(namespace)
			create(t, c, newPolicy(namespace), job)
			pod := runPodWith(t, c, job, "job-1", corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: tc.exitCode, FinishedAt: ago(time.Hour)},
			})
			changes := 0
			out, code := finishWhile(t, pod.Namespace, func() {
				if changes < tc.changes {
					changes++
					tc.change(t, c, job, pod)
				}
			})
			wantOutput(t, name, out, code, tc.code, tc.want)
			if changes != tc.changes {
				t.Errorf("%d changes", changes)
			}
			if !strings.Contains(tc.want, "finished") {
				requireUnchanged(t, c, pod)
			} else if found := eventsIn(t, c, pod.Namespace); len(found) != 1 {
				t.Errorf("events: %v", found)
			}
		})
	}
}

func TestFinishSwapsImages(t *testing.T) {
	const quickExit = "registry.example/quick-exit:v1"
	c, _, pod := newStuckPod(t, true)
	line := "finish pod/job-1 --mode=Image -n " + pod.Namespace
	wantCommand(t, "without an image", line, 1, "refused NoQuickExitImage")
	requireUnchanged(t, c, pod)
	wantCommand(t, "with an image", line+" --quick-exit-image="+quickExit, 0, "finished FinishedByUser main containers are done; ending proxy by mode Image")
	reload(t, c, pod)
	swaps := map[string]image.Swap{}
	if err := json.Unmarshal([]byte(pod.Annotations[v1alpha1.AnnotationImageSwap]), &swaps); err != nil {
		t.Fatalf("annotations %v: %v", pod.Annotations, err)
	}
	if pod.Spec.Containers[0].Image != "main:v1" || pod.Spec.Containers[1].Image != quickExit ||
		len(swaps) != 1 || swaps["proxy"].Image != "proxy:v1" {
		t.Errorf("images %s and %s, swaps %v", pod.Spec.Containers[0].Image, pod.Spec.Containers[1].Image, swaps)
	}
	wantCommand(t, "again", line+" --quick-exit-image="+quickExit, 1, "refused AttemptInProgress waiting for sidecars to end: proxy")
}

func TestFinishOfUndeclaredSidecars(t *testing.T) {
	c, _, pod := newStuckPod(t, false)
	installOutcomePolicy(t, c)
	policy := newPolicy(pod.Namespace)
	policy.Spec.Enforcement = v1alpha1.EnforcementDryRun
	create(t, c, policy)
	wantCommand(t, "DryRun", "finish pods job-1 -n "+pod.Namespace, 1, "refused NoSidecar", "enforcement DryRun declare: --sidecars proxy")
	requireUnchanged(t, c, pod)
	wantCommand(t, "sidecar of the user", "finish pods job-1 -n "+pod.Namespace+" --sidecars=proxy", 0, "finished FinishedByUser")
}

func TestFinishSelectedPods(t *testing.T) {
	c, namespace := newNamespace(t)
	newNode(t, c)
	job := newJob(namespace)
	create(t, c, newPolicy(namespace), job)
	installOutcomePolicy(t, c)
	wantCommand(t, "no pod", "finish -l team=etl -n "+namespace, 0, "No unfinished pods found")
	stuck := runPod(t, c, job)
	busy := runPodWith(t, c, job, "job-2", corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Minute)}})

	out, code := runCommand(t, "finish", "-l", "team=etl", "-A", "-o", "json")
	type podResult struct{ Name, Outcome, Phase, Reason string }
	type report struct {
		Kind, DryRun string
		Summary      map[string]int
		Pods         []podResult
	}
	var got report
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 1 {
		t.Fatalf("exit code %d, %v in %s", code, err, out)
	}
	want := report{"FinishReport", "none", map[string]int{"finished": 1, "unchanged": 0, "refused": 1, "failed": 0}, []podResult{
		{stuck.Name, "Finished", "Succeeded", "FinishedByUser"}, {busy.Name, "Refused", "", "MainContainersRunning"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	wantCommand(t, "other labels", "finish -l team=web -A", 0, "No unfinished pods found")

	failed := runPodWith(t, c, job, "job-3", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: ago(time.Hour)}})
	wantCommand(t, "a missing pod, and one whose main has failed", "finish pod/none pod/job-3 -n "+namespace, 2,
		`pod/none failed get pod: pods "none" not found`, "pod/job-3 finished", "with phase Failed", "error: 1 of 2 pods failed")
	if reload(t, c, failed); failed.Status.Phase != corev1.PodFailed {
		t.Errorf("phase %s", failed.Status.Phase)
	}
}

// finisherRole is the ClusterRole of the installation.
func finisherRole(t *testing.T) *rbacv1.ClusterRole {
	t.Helper()
	data, err := os.ReadFile("../config/rbac/pod_finisher_role.yaml")
	must(t, err)
	role := &rbacv1.ClusterRole{}
	must(t, yaml.UnmarshalStrict(data, role))
	return role
}

func TestFinishNeedsPermissions(t *testing.T) {
	c, job, pod := newStuckPod(t, false)
	installOutcomePolicy(t, c)
	role := finisherRole(t)
	rules := role.Rules
	role.Rules = slices.DeleteFunc(slices.Clone(rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") })
	create(t, c, role)
	grant(t, c, pod.Namespace, "olga", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
	line := "finish --sidecars=proxy --as=olga -n " + pod.Namespace
	const noEvent = "no event records the change"
	await := func(what, name, awaited string, noted bool) {
		t.Helper()
		testenv.Eventually(t, what, func(context.Context) error {
			if out, _ := runCommand(t, strings.Fields(line+" --dry-run=server "+name)...); !strings.Contains(out, awaited) || strings.Contains(out, noEvent) != noted {
				return errors.New(out)
			}
			return nil
		})
	}
	await("the user may read pods", "job-1", `cannot patch resource "pods/status"`, false)
	wantCommand(t, "a reader", line+" job-1", 2, "pod/job-1 failed", "bind the ClusterRole of the operator whose name ends in pod-finisher")
	requireUnchanged(t, c, pod)

	create(t, c, bind(pod.Namespace, role.Name, "olga"))
	await("the user may finish pods", "job-1", "finished (server dry run)", true)
	wantCommand(t, "no permission to create events", line+" job-1", 0, "pod/job-1 finished", "note: you may not read nodes",
		"note: "+noEvent, `cannot create resource "events"`)
	if reload(t, c, pod); pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase %s", pod.Status.Phase)
	}

	runPodWith(t, c, job, "job-2", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: ago(time.Hour)}})
	role.Rules = rules
	must(t, c.Update(t.Context(), role))
	await("the user may create events", "job-2", "finished (server dry run)", false)
	out := wantCommand(t, "a finisher", line+" job-2", 0, "pod/job-2 finished")
	if strings.Contains(out, noEvent) || len(eventsIn(t, c, pod.Namespace)) != 1 {
		t.Errorf("no event was recorded:\n%s", out)
	}
}
