//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const needsConversion = "Needs MutatingAdmissionPolicies in version v1, which Kubernetes supports since 1.36"

// sidecarConverted is the annotation of a pod whose sidecar was converted on request of the policy of preferNative.
const sidecarConverted = harness.SidecarName + "=SidecarTerminationPolicy/policy"

// newNative is harness.NewWithLabels on a cluster that converts sidecars.
func newNative(t *testing.T, labels map[string]string) *harness.Test {
	t.Helper()
	test := harness.NewWithLabels(t, labels)
	if !test.CanConvert() {
		test.Skip(needsConversion)
	}
	return test
}

// preferNative returns a policy that asks for the conversion of the sidecars, by default of the one that harness.Sidecar returns.
func preferNative(sidecars ...string) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(v1alpha1.ModeAuto, sidecars...)
	policy.Spec.NativeConversion = v1alpha1.NativeConversionPreferred
	return policy
}

// nativeCase is a Job whose sidecars are converted.
type nativeCase struct {
	name string
	// policies are the policies of the namespace, by default one that asks for the conversion of the sidecar.
	policies []client.Object
	// labels are the labels of the namespace.
	labels map[string]string
	job    *batchv1.Job
	// annotation is the pods' annotation, by default sidecarConverted.
	annotation string
	// reason is why the Job fails, or empty if it completes.
	reason string
	// restarts is true if the sidecar has restarted.
	restarts bool
}

func nativeCases() []nativeCase {
	named := func(policy *v1alpha1.SidecarTerminationPolicy, name string) *v1alpha1.SidecarTerminationPolicy {
		policy.Name = name
		return policy
	}
	exitsSeven, exitsEarly := harness.Sidecar(harness.ExitsSevenOnTerm), harness.Sidecar(harness.ExitsDuringMain(0))
	return []nativeCase{
		{name: "Never", job: harness.Job("job", corev1.RestartPolicyNever, exitsSeven, harness.Main(2))},
		{name: "OnFailure", job: harness.Job("job", corev1.RestartPolicyOnFailure, harness.Main(2), exitsSeven)},
		{name: "Indexed", job: indexed(harness.Job("job", corev1.RestartPolicyOnFailure, exitsSeven, harness.Main(2)))},
		{
			name: "exits 7 early", restarts: true, job: jobThatFailsWithEveryMode(), policies: []client.Object{preferNative(harness.SidecarName, "second")},
			annotation: "second=SidecarTerminationPolicy/policy," + sidecarConverted,
		},
		{name: "exits 0 early", restarts: true, job: reportsStart(harness.Job("job", corev1.RestartPolicyNever, exitsEarly, harness.Main(4)))},
		{
			name: "exits 0 early, backoffLimit", reason: batchv1.JobReasonBackoffLimitExceeded, restarts: true,
			job: withBackoffLimit(1, reportsStart(harness.Job("job", corev1.RestartPolicyOnFailure, exitsEarly, harness.Main(3600)))),
		},
		{name: "podFailurePolicy", reason: batchv1.JobReasonPodFailurePolicy, job: jobThatFailsOn143(nil)},
		{name: "podFailurePolicy names main", reason: batchv1.JobReasonBackoffLimitExceeded, job: jobThatFailsOn143(ptr.To(harness.MainName))},
		{
			name: "several policies", annotation: "sidecar=SidecarTerminationPolicy/a,second=SidecarTerminationPolicy/b",
			policies: []client.Object{named(preferNative(), "a"), named(preferNative("second"), "b"), named(harness.Policy("", harness.SidecarName, "second"), "c")},
			job:      harness.Job("job", corev1.RestartPolicyNever, harness.Main(2), exitsSeven, harness.Container("second", harness.IgnoresTerm)),
		},
		{
			name: "environment", annotation: harness.SidecarName + "=Environment", policies: []client.Object{},
			labels: map[string]string{v1alpha1.LabelNativeEnvironment: "true"},
			job:    jobWithEnv(corev1.RestartPolicyNever, v1alpha1.EnvTerminate, "true"),
		},
	}
}

func withBackoffLimit(limit int32, job *batchv1.Job) *batchv1.Job {
	job.Spec.BackoffLimit = &limit
	return job
}

func reportsStart(job *batchv1.Job) *batchv1.Job {
	harness.ReportStart(&job.Spec.Template.Spec)
	return job
}

func indexed(job *batchv1.Job) *batchv1.Job {
	job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	job.Spec.Completions, job.Spec.Parallelism = ptr.To[int32](3), ptr.To[int32](2)
	return job
}

// jobThatFailsWithEveryMode returns a Job whose pod Kubernetes fails before any mode can act: its sidecar exits 7 before the main
// container is done. It also has what may get lost in a conversion.
func jobThatFailsWithEveryMode() *batchv1.Job {
	sidecar, second := harness.Sidecar(harness.ExitsDuringMain(7)), harness.Container("second", harness.IgnoresTerm)
	always := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
	second.ReadinessProbe, second.StartupProbe = &corev1.Probe{ProbeHandler: always}, &corev1.Probe{ProbeHandler: always, PeriodSeconds: 1}
	second.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: always.Exec}}
	second.Ports = []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9000}}
	job := withBackoffLimit(0, reportsStart(harness.Job("job", corev1.RestartPolicyNever, second, harness.Main(4), sidecar)))
	job.Spec.Template.Spec.InitContainers = []corev1.Container{harness.Container("init", "true")}
	return job
}

// jobThatFailsOn143 returns a Job whose main container fails and whose rule fails the Job on exit code 143, which the sidecar has.
func jobThatFailsOn143(container *string) *batchv1.Job {
	job := withBackoffLimit(0, harness.Job("job", corev1.RestartPolicyNever,
		harness.Sidecar(`trap 'exit 143' TERM; sleep 3600 & wait`), harness.Container(harness.MainName, "sleep 1; exit 1")))
	job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: batchv1.PodFailurePolicyActionFailJob,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			ContainerName: container, Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{143},
		},
	}}}
	return job
}

func TestNativeJobs(t *testing.T) {
	harness.Shared(t)
	for _, c := range nativeCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			test := newNative(t, c.labels)
			if c.policies == nil {
				c.policies = []client.Object{preferNative()}
			}
			if c.annotation == "" {
				c.annotation = sidecarConverted
			}
			test.Create(c.policies...)
			test.WaitForConversion(c.job.Spec.Template, c.annotation)
			test.Create(c.job)
			if c.reason == "" {
				test.WaitForComplete("job")
			} else {
				test.WaitForFailed("job")
			}
			requireNative(test, "job", c.annotation)
			test.Recorder.Look(func(seen harness.Seen) {
				if reason, failed := harness.JobCondition(seen.Job("job"), batchv1.JobFailed); failed && !strings.HasPrefix(reason, c.reason) {
					test.Errorf("The Job failed with %s, want %s", reason, c.reason)
				}
				if restarted := nativeStatus(seen.Pods("job")[0]).RestartCount > 0; restarted != c.restarts {
					test.Errorf("The sidecar has restarted: %t, want %t: %s", restarted, c.restarts, seen.Describe("job"))
				}
			})
		})
	}
}

// requireNative waits until the pods of the controller have no running process. It requires that the API server has converted
// the sidecars of the annotation, and that the operator has not written to the pods.
func requireNative(test *harness.Test, owner, annotation string) {
	test.Helper()
	test.EventuallySeen("the pods of "+owner+" to have no running process", harness.FinishTimeout, func(seen harness.Seen) error {
		for _, record := range seen.Pods(owner) {
			if !record.Deleted && (anyRunning([]*harness.PodRecord{record}) || record.Pod.DeletionTimestamp != nil) {
				return errors.New(seen.Describe(owner))
			}
		}
		return nil
	})
	var records []harness.PodRecord
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.Pods(owner) {
			records = append(records, *record)
		}
	})
	if len(records) == 0 {
		test.Errorf("%s has no pod", owner)
	}
	for i := range records {
		requireConverted(test, &records[i], annotation)
		requireUnwritten(test, &records[i])
		test.RequireNoReversal(&records[i])
	}
}

// requireConverted requires that the containers of the annotation are native sidecars of the pod.
func requireConverted(test *harness.Test, record *harness.PodRecord, annotation string) {
	test.Helper()
	if got := record.Pod.Annotations[v1alpha1.AnnotationNativeSidecars]; got != annotation {
		test.Errorf("Pod %s has the converted sidecars %q, want %q", record.Pod.Name, got, annotation)
	}
	for conversion := range strings.SplitSeq(annotation, ",") {
		name, _, _ := strings.Cut(conversion, "=")
		if !slices.ContainsFunc(record.Pod.Spec.InitContainers, func(c corev1.Container) bool {
			return c.Name == name && ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
		}) {
			test.Errorf("Container %s of pod %s is not a native sidecar", name, record.Pod.Name)
		}
	}
}

// nativeStatus returns the status of the sidecar as an init container, or an empty one.
func nativeStatus(record *harness.PodRecord) corev1.ContainerStatus {
	for _, status := range record.Pod.Status.InitContainerStatuses {
		if status.Name == harness.SidecarName {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

func TestNativeCronJob(t *testing.T) {
	harness.Shared(t)
	test := newNative(t, nil)
	template := harness.PodTemplate(corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
	test.Create(preferNative())
	test.WaitForConversion(template, sidecarConverted)
	test.Create(harness.CronJob("cron", template))
	jobs := &batchv1.JobList{}
	test.Eventually("a Job of the CronJob to be Complete", twoRuns, func(ctx context.Context) error {
		if err := test.Client.List(ctx, jobs, client.InNamespace(test.Namespace)); err != nil {
			return err
		}
		if len(jobs.Items) == 0 {
			return errors.New("there is no Job")
		}
		if _, complete := harness.JobCondition(&jobs.Items[0], batchv1.JobComplete); !complete {
			return fmt.Errorf("the Job's status is %+v", jobs.Items[0].Status)
		}
		return nil
	})
	requireNative(test, jobs.Items[0].Name, sidecarConverted)
}

func TestNativeClusterPolicy(t *testing.T) {
	harness.Shared(t)
	labels := ownLabels()
	test, other := newNative(t, labels), harness.New(t)
	policy := clusterPolicy(test, "", labels)
	policy.Spec.NativeConversion = v1alpha1.NativeConversionPreferred
	test.CreateForCluster(policy)
	job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
	annotation := harness.SidecarName + "=ClusterSidecarTerminationPolicy/" + policy.Name
	test.WaitForConversion(job.Spec.Template, annotation)
	other.WaitForConversion(job.Spec.Template, "")
	test.Create(job)
	test.RequireCompleted("job")
	requireNative(test, "job", annotation)
}

// The status counts converted pods while they run. The operator never terminates them.
func TestNativeStatus(t *testing.T) {
	harness.Shared(t)
	test := newNative(t, nil)
	policy := preferNative()
	job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(0))
	gate := test.Gate(&job.Spec.Template)
	test.Create(policy)
	test.WaitForConversion(job.Spec.Template, sidecarConverted)
	test.Create(job)
	wantNativePods := func(wanted int32) {
		test.EventuallyStatus(policy, fmt.Sprintf("%d native pods", wanted), func(status v1alpha1.PolicyStatus) error {
			if status.NativePods != wanted || status.MatchedPods != 0 || status.TerminatedPods != 0 || status.FailedAttempts != 0 {
				return fmt.Errorf("the status is %+v", status)
			}
			return nil
		})
	}
	wantNativePods(1)
	output, code := plugin(test, "explain", "job/job", "-n", test.Namespace)
	requireOutput(test, output, code, 0, "native since admission", "SidecarTerminationPolicy/policy")
	gate.Open()
	test.RequireCompleted("job")
	requireNative(test, "job", sidecarConverted)
	wantNativePods(0)
}

// A pod is converted when it is created, so the next pod follows the changed policy, and the modes end its sidecar.
func TestNativeSwitchedOff(t *testing.T) {
	harness.Shared(t)
	for name, switchOff := range map[string]func(*harness.Test, *v1alpha1.SidecarTerminationPolicy){
		"None": func(test *harness.Test, policy *v1alpha1.SidecarTerminationPolicy) {
			test.MergePatch(policy, `{"spec":{"nativeConversion":"None"}}`)
		},
		"DryRun": func(test *harness.Test, policy *v1alpha1.SidecarTerminationPolicy) {
			test.MergePatch(policy, `{"spec":{"enforcement":"DryRun"}}`)
		},
		"deleted": func(test *harness.Test, policy *v1alpha1.SidecarTerminationPolicy) {
			if err := test.Client.Delete(test.Context(), policy); err != nil {
				test.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := newNative(t, nil)
			policy, other := preferNative(), harness.Policy(v1alpha1.ModeAuto)
			other.Name = "other"
			before := harness.Job("before", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
			after := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
			test.Create(policy, other)
			test.WaitForConversion(before.Spec.Template, sidecarConverted)
			test.Create(before)
			test.EventuallySeen("the pod to be created", harness.StartTimeout, func(seen harness.Seen) error {
				if len(seen.Pods("before")) == 0 {
					return errors.New("there is no pod")
				}
				return nil
			})
			switchOff(test, policy)
			test.WaitForConversion(after.Spec.Template, "")
			test.Create(after)
			requireEndedByPhase(test, map[string]int32{harness.SidecarName: 7})
			test.WaitForComplete("before")
			requireNative(test, "before", sidecarConverted)
		})
	}
}

// OpenKruise's webhook injects the sidecar. Its configuration does not ask to be called again.
func TestNativeSidecarSet(t *testing.T) {
	harness.Shared(t)
	test, _, job := newInjected(t)
	test.Create(job)
	test.RequireCompleted("job")
	requireNative(test, "job", sidecarConverted)
}

// An injector that is called again and searches only the regular containers injects its sidecar twice. OpenKruise's webhook becomes
// one by another configuration.
func TestNativeReinvokedInjector(t *testing.T) {
	harness.Shared(t)
	test, policy, job := newInjected(t)
	reinvokeKruise(test)
	test.WaitForDenial(job.Spec.Template, "Duplicate value")
	test.Create(job)
	test.Eventually("an event about the pod that cannot be created", harness.StatusTimeout, func(ctx context.Context) error {
		messages, err := failedCreations(ctx, test)
		if err == nil && !slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, "Duplicate value") }) {
			err = fmt.Errorf("the events are %q", messages)
		}
		return err
	})
	test.MergePatch(policy, `{"spec":{"nativeConversion":"None"}}`)
	requireEndedByPhase(test, map[string]int32{harness.SidecarName: 7})
}

// newInjected is newNative with a policy that asks for conversion, and a Job that does not exist yet. OpenKruise injects the sidecar
// into its pod, and the API server converts it.
func newInjected(t *testing.T) (*harness.Test, *v1alpha1.SidecarTerminationPolicy, *batchv1.Job) {
	t.Helper()
	test, policy, job := newNative(t, nil), preferNative(), harness.Job("job", corev1.RestartPolicyNever, harness.Main(2))
	job.Spec.Template.Labels = map[string]string{"app": "injected"}
	createSidecarSet(test, metav1.LabelSelector{MatchLabels: job.Spec.Template.Labels}, harness.Sidecar(harness.ExitsSevenOnTerm))
	test.Create(policy)
	test.WaitForConversion(job.Spec.Template, sidecarConverted)
	return test, policy, job
}

// reinvokeKruise has the API server call OpenKruise's webhook again for pods of the namespace that others have changed.
func reinvokeKruise(test *harness.Test) {
	test.Helper()
	kruise := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"}}
	test.Get(kruise)
	i := slices.IndexFunc(kruise.Webhooks, func(webhook admissionv1.MutatingWebhook) bool { return webhook.Name == "mpod.kb.io" })
	if i < 0 {
		test.Fatal("OpenKruise has no webhook mpod.kb.io")
	}
	webhook := kruise.Webhooks[i]
	webhook.Name, webhook.ReinvocationPolicy = "again.example.com", ptr.To(admissionv1.IfNeededReinvocationPolicy)
	webhook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: test.Namespace}}
	test.CreateForCluster(&admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: test.Namespace}, Webhooks: []admissionv1.MutatingWebhook{webhook},
	})
}

// failedCreations returns the messages of the events about pods of the namespace that could not be created.
func failedCreations(ctx context.Context, test *harness.Test) ([]string, error) {
	events := &corev1.EventList{}
	if err := test.Client.List(ctx, events, client.InNamespace(test.Namespace), client.MatchingFields{"reason": "FailedCreate"}); err != nil {
		return nil, fmt.Errorf("list the events: %w", err)
	}
	var messages []string
	for _, event := range events.Items {
		messages = append(messages, event.Message)
	}
	return messages, nil
}

// createSidecarSet has OpenKruise inject the sidecar into the pods of the namespace that the selector selects.
func createSidecarSet(test *harness.Test, selector metav1.LabelSelector, sidecar corev1.Container) {
	test.Helper()
	container := harness.ToMap(sidecar)
	container["podInjectPolicy"] = "BeforeAppContainer"
	container["shareVolumePolicy"] = map[string]any{"type": "disabled"}
	test.CreateForCluster(harness.Kruise("SidecarSet", test.Namespace, map[string]any{
		"namespace":      test.Namespace,
		"selector":       harness.ToMap(selector),
		"updateStrategy": map[string]any{"type": "NotUpdate"},
		"containers":     []any{container},
	}))
}

// The virtual node runs no init containers. By its marks the API server sees that a pod is for such a node.
func TestNativeOnVirtualNode(t *testing.T) {
	harness.Shared(t)
	marks := map[string]func(*corev1.PodSpec){
		"nodeSelector": func(pod *corev1.PodSpec) {
			pod.NodeSelector = map[string]string{"type": "virtual-kubelet"}
			pod.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		},
		"toleration": func(pod *corev1.PodSpec) {
			pod.NodeSelector = map[string]string{corev1.LabelHostname: virtualNode}
			pod.Tolerations = []corev1.Toleration{{Key: "virtual-kubelet.io/provider", Operator: corev1.TolerationOpExists}}
		},
	}
	for name, mark := range marks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := newNative(t, nil)
			job := harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
			test.Create(preferNative())
			test.WaitForConversion(job.Spec.Template, sidecarConverted)
			mark(&job.Spec.Template.Spec)
			test.Create(job)
			requireEndedByImage(test)
			if pod := test.PodOf("job"); pod.Annotations[v1alpha1.AnnotationNativeSidecars] != "" {
				test.Errorf("Pod %s for a virtual node was converted", pod.Name)
			}
		})
	}
}

// A native sidecar whose startup probe waits for the main container blocks it, while a Job with the opt-out label completes.
func TestNativeSidecarWaitsForMain(t *testing.T) {
	harness.Shared(t)
	test := newNative(t, nil)
	blocked := jobWithWaitingSidecar("blocked")
	test.Create(preferNative())
	test.WaitForConversion(blocked.Spec.Template, sidecarConverted)
	optedOut := jobWithWaitingSidecar("job")
	optedOut.Spec.Template.Labels = map[string]string{v1alpha1.LabelNativeConversion: "false"}
	test.Create(blocked, optedOut)
	test.EventuallySeen("the sidecar to run", harness.StartTimeout, func(seen harness.Seen) error {
		if pods := seen.Pods("blocked"); len(pods) == 1 && nativeStatus(pods[0]).State.Running != nil {
			return nil
		}
		return errors.New(seen.Describe("blocked"))
	})
	requireEndedByPhase(test, map[string]int32{harness.SidecarName: 7})
	test.Recorder.Look(func(seen harness.Seen) {
		record := seen.Pods("blocked")[0]
		main := record.Container(harness.MainName).State.Waiting
		if record.Pod.Status.Phase != corev1.PodPending || main == nil || main.Reason != "PodInitializing" ||
			ptr.Deref(nativeStatus(record).Started, true) {
			test.Errorf("The main container does not wait for its sidecar: %s", seen.Describe("blocked"))
		}
	})
}

// jobWithWaitingSidecar returns a Job whose sidecar has started when its main container has.
func jobWithWaitingSidecar(name string) *batchv1.Job {
	sidecar := harness.Sidecar(harness.ExitsSevenOnTerm)
	sidecar.StartupProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", harness.StartedFile}}},
		PeriodSeconds: 1, FailureThreshold: 3600,
		TimeoutSeconds: 10, // for a busy node
	}
	return reportsStart(harness.Job(name, corev1.RestartPolicyNever, sidecar, harness.Main(2)))
}

// Load of TestNativeRemovedUnderLoad.
const (
	removals        = 4
	jobsPerStep     = 3
	parallelDryRuns = 2
)

// Each pod is either converted or ended by the modes, whatever the API server knows of the component and the policy at its
// creation.
func TestNativeRemovedUnderLoad(t *testing.T) {
	harness.Exclusive(t)
	test := newNative(t, nil)
	component := test.NativeComponent()
	other := harness.Policy(v1alpha1.ModeAuto)
	other.Name = "other"
	template := harness.PodTemplate(corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsZeroOnTerm), harness.Main(1))
	test.Create(other, preferNative())
	test.WaitForConversion(template, sidecarConverted)

	load := test.StartLoad(template, parallelDryRuns)
	jobs := 0
	createJobs := func() {
		for range jobsPerStep {
			test.Create(harness.Job(jobName(jobs), template.Spec.RestartPolicy, template.Spec.Containers...))
			jobs++
		}
	}
	for range removals {
		createJobs()
		component.Delete()
		createJobs()
		test.WaitForConversion(template, "")
		component.Apply()
		createJobs()
		test.WaitForConversion(template, sidecarConverted)
		policy := preferNative()
		policy.Namespace = test.Namespace
		if err := test.Client.Delete(test.Context(), policy); err != nil {
			test.Fatal(err)
		}
		createJobs()
		test.WaitForConversion(template, "")
		test.Create(preferNative())
		createJobs()
		test.WaitForConversion(template, sidecarConverted)
	}
	converted, others := load.Stop()
	test.Logf("%d dry runs were converted, %d were not", converted, others)
	if converted == 0 || others == 0 {
		test.Error("The dry runs were all converted or all not")
	}
	for i := range jobs {
		test.RequireCompleted(jobName(i))
	}
	if messages, err := failedCreations(test.Context(), test); err != nil || len(messages) > 0 {
		test.Errorf("Pods could not be created: %q, %v", messages, err)
	}
}

// Kubernetes before 1.36 cannot convert. The modes end the sidecar, and the policy, explain and check report why.
func TestNativeNotServed(t *testing.T) {
	harness.Shared(t)
	test := harness.New(t)
	if test.CanConvert() {
		test.Skip("Needs Kubernetes 1.35 or earlier")
	}
	policy := preferNative()
	test.Create(policy, harness.Job("job", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2)))
	requireEndedByPhase(test, map[string]int32{harness.SidecarName: 7})
	const reason = "upgrade to Kubernetes 1.36 or later"
	test.EventuallyStatus(policy, "Degraded to say that the cluster cannot convert", func(status v1alpha1.PolicyStatus) error {
		degraded := harness.Condition(status, v1alpha1.ConditionDegraded)
		if degraded.Status != metav1.ConditionTrue || degraded.Reason != string(v1alpha1.ReasonConversionUnavailable) || !strings.Contains(degraded.Message, reason) {
			return fmt.Errorf("the condition is %+v", degraded)
		}
		if ready := harness.Condition(status, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue {
			return fmt.Errorf("the condition is %+v", ready)
		}
		return nil
	})
	output, code := plugin(test, "explain", "policy/policy", "-n", test.Namespace)
	requireOutput(test, output, code, 0, reason)
	output, _ = plugin(test, "check")
	if !strings.Contains(output, reason) {
		test.Errorf("check does not report that the cluster cannot convert:\n%s", output)
	}
}

// The audit log shows what managed fields may hide. The other Job shows that the log has the operator's writes.
func TestNativeWithoutWrites(t *testing.T) {
	harness.Shared(t)
	test := newNative(t, nil)
	job := indexed(harness.Job("job", corev1.RestartPolicyOnFailure, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2)))
	other := harness.Job("other", corev1.RestartPolicyNever, harness.Sidecar(harness.ExitsSevenOnTerm), harness.Main(2))
	other.Spec.Template.Labels = map[string]string{v1alpha1.LabelNativeConversion: "false"}
	test.Create(preferNative())
	test.WaitForConversion(job.Spec.Template, sidecarConverted)
	test.Create(job, other)
	test.WaitForComplete("job")
	requireNative(test, "job", sidecarConverted)
	ended := test.RequireCompleted("other").Pod.Name

	writes := test.OperatorWrites()
	if len(writes[ended]) == 0 {
		test.Errorf("The audit log has no write of the operator to pod %s, only %v", ended, writes)
	}
	delete(writes, ended)
	if len(writes) > 0 {
		test.Errorf("The operator has written to converted pods: %v", writes)
	}
}
