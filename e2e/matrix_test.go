//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	// podsOfMatrix is how many Jobs of a matrix run at once.
	podsOfMatrix = 16
	// cellTimeout is for one Job on a busy node.
	cellTimeout = 5 * time.Minute
)

var modes = []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase, v1alpha1.ModeAuto}

// columnNative is the column of a manifest with a native sidecar, without a policy.
const columnNative v1alpha1.Mode = "Native"

// columns are the columns of the tables.
var columns = append(slices.Clone(modes), columnNative)

// outcome is how a Job of a matrix ends.
type outcome struct {
	// job is Complete, Failed or neverStarts, and reason is the reason of that condition.
	job, reason string
	// pod is the last phase of the last pod, or Deleted.
	pod string
	// pods is how many pods the Job had, and runs how often the main container ran, in all of them.
	pods int
	runs int32
}

const (
	// neverStarts is a Job whose main container waits for ever.
	neverStarts = "never starts"
	// deletedPod is a pod that the Job controller has deleted.
	deletedPod = "Deleted"
)

// matrixRun runs the Jobs of a matrix in one namespace, which has a policy for each mode's column.
type matrixRun struct {
	*harness.Test
	slots chan struct{}
}

func newMatrixRun(t *testing.T, change func(*v1alpha1.PolicySpec)) *matrixRun {
	t.Helper()
	run := &matrixRun{harness.New(t), make(chan struct{}, podsOfMatrix)}
	for _, mode := range modes {
		policy := columnPolicy(mode)
		change(&policy.Spec.PolicySpec)
		run.Create(policy)
	}
	return run
}

// columnPolicy returns a policy for the pods of a mode's column.
func columnPolicy(mode v1alpha1.Mode) *v1alpha1.SidecarTerminationPolicy {
	return named(harness.Policy(mode), "column-"+strings.ToLower(string(mode)))
}

// run runs the Job in the column until it has finished, and returns its outcome. The operator must not have written to pods of native
// sidecars.
func (m *matrixRun) run(t *testing.T, job *batchv1.Job, column v1alpha1.Mode) outcome {
	t.Helper()
	m.slots <- struct{}{}
	defer func() { <-m.slots }()
	test := harness.Within(t, m.Test)
	job.Spec.Template.Labels = map[string]string{policyLabel: "column-" + strings.ToLower(string(column))}
	if ignoresTerm := slices.ContainsFunc(job.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Contains(c.Command, harness.IgnoresTerm)
	}); ignoresTerm {
		job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](2)
	}
	if column == columnNative {
		makeNative(job)
	}
	test.Create(job)
	var got outcome
	test.EventuallySeen("the Job to finish and its containers to terminate", cellTimeout, func(seen harness.Seen) error {
		var err error
		got, err = observe(seen, job.Name)
		return err
	})
	var records []harness.PodRecord
	test.Recorder.Look(func(seen harness.Seen) {
		for _, record := range seen.Pods(job.Name) {
			records = append(records, *record)
		}
	})
	for i := range records {
		test.RequireNoReversal(&records[i])
		if column == columnNative {
			requireUnwritten(test, &records[i])
		}
	}
	return got
}

// makeNative makes the sidecar of the Job a native one.
func makeNative(job *batchv1.Job) {
	pod := &job.Spec.Template.Spec
	i := slices.IndexFunc(pod.Containers, func(container corev1.Container) bool { return container.Name == harness.SidecarName })
	sidecar := pod.Containers[i]
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	pod.Containers = slices.Delete(pod.Containers, i, i+1)
	pod.InitContainers = append(pod.InitContainers, sidecar)
}

// observe returns the outcome of the Job and its pods, or an error while it has none.
func observe(seen harness.Seen, name string) (outcome, error) {
	job, pods := seen.Job(name), seen.Pods(name)
	unfinished := fmt.Errorf("the Job has not finished: %s", seen.Describe(name))
	got := outcome{pods: len(pods)}
	for _, condition := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if words, ok := harness.JobCondition(job, condition); ok {
			got.job, got.reason = string(condition), strings.Fields(words + " -")[0]
		}
	}
	switch {
	case got.job != "":
	case len(pods) == 1 && mainCannotStart(pods[0]):
		return outcome{job: neverStarts, pods: 1, pod: string(pods[0].Pod.Status.Phase)}, nil
	default:
		return got, unfinished
	}
	if counted := int(job.Status.Succeeded + job.Status.Failed); got.pods < counted {
		return got, fmt.Errorf("the Job has counted %d pods, the watch of pods has shown %d", counted, got.pods)
	}
	for _, record := range pods {
		got.pod = string(record.Pod.Status.Phase)
		if record.Deleted {
			got.pod = deletedPod
		} else if len(record.Running()) > 0 || record.Pod.DeletionTimestamp != nil || !record.Finished() {
			return got, unfinished
		}
		if main := record.Container(harness.MainName); main != nil && main.ContainerID != "" {
			got.runs += 1 + main.RestartCount
		}
	}
	return got, nil
}

// mainCannotStart reports whether the main container waits for a native sidecar whose image cannot be pulled.
func mainCannotStart(record *harness.PodRecord) bool {
	main := record.Container(harness.MainName)
	return main != nil && main.State.Waiting != nil && main.State.Waiting.Reason == "PodInitializing" &&
		slices.ContainsFunc(record.Pod.Status.InitContainerStatuses, func(status corev1.ContainerStatus) bool {
			return status.State.Waiting != nil && status.State.Waiting.Reason == "ErrImageNeverPull"
		})
}
