//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// sidecarConverted is the annotation of a pod whose sidecar was converted on request of the policy of preferNative.
const sidecarConverted = harness.SidecarName + "=SidecarTerminationPolicy/policy"

// newNative is harness.NewWithLabels on a cluster that converts sidecars.
func newNative(t *testing.T, labels map[string]string) *harness.Test {
	t.Helper()
	test := harness.NewWithLabels(t, labels)
	if !test.CanConvert() {
		test.Skip("Needs MutatingAdmissionPolicies in version v1, which Kubernetes supports since 1.36")
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
	exitsSeven, exitsEarly := harness.Sidecar(harness.ExitsSevenOnTerm), harness.Sidecar("sleep 1")
	return []nativeCase{
		{name: "Never", job: harness.Job("job", corev1.RestartPolicyNever, exitsSeven, harness.Main(2))},
		{name: "OnFailure", job: harness.Job("job", corev1.RestartPolicyOnFailure, harness.Main(2), exitsSeven)},
		{name: "Indexed", job: indexed(harness.Job("job", corev1.RestartPolicyOnFailure, exitsSeven, harness.Main(2)))},
		{
			name: "exits 7 early", restarts: true, job: jobThatFailsWithEveryMode(), policies: []client.Object{preferNative(harness.SidecarName, "second")},
			annotation: "second=SidecarTerminationPolicy/policy," + sidecarConverted,
		},
		{name: "exits 0 early", restarts: true, job: harness.Job("job", corev1.RestartPolicyNever, exitsEarly, harness.Main(4))},
		{
			name: "exits 0 early, backoffLimit", reason: batchv1.JobReasonBackoffLimitExceeded, restarts: true,
			job: withBackoffLimit(1, harness.Job("job", corev1.RestartPolicyOnFailure, exitsEarly, harness.Main(3600))),
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

func indexed(job *batchv1.Job) *batchv1.Job {
	job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	job.Spec.Completions, job.Spec.Parallelism = ptr.To[int32](3), ptr.To[int32](2)
	return job
}

// jobThatFailsWithEveryMode returns a Job whose pod Kubernetes fails before any mode can act: its sidecar exits 7 before the main
// container is done. It also has what may get lost in a conversion.
func jobThatFailsWithEveryMode() *batchv1.Job {
	sidecar, second := harness.Sidecar("sleep 1; exit 7"), harness.Container("second", harness.IgnoresTerm)
	always := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
	second.ReadinessProbe, second.StartupProbe = &corev1.Probe{ProbeHandler: always}, &corev1.Probe{ProbeHandler: always, PeriodSeconds: 1}
	second.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: always.Exec}}
	second.Ports = []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9000}}
	job := withBackoffLimit(0, harness.Job("job", corev1.RestartPolicyNever, second, harness.Main(4), sidecar))
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
				if restarted := nativeStatus(seen.Pods("job")[0], harness.SidecarName).RestartCount > 0; restarted != c.restarts {
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

// nativeStatus returns the status of an init container, or an empty one.
func nativeStatus(record *harness.PodRecord, name string) corev1.ContainerStatus {
	for _, status := range record.Pod.Status.InitContainerStatuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}
