//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// modeLabel chooses the policy of a pod.
const modeLabel = "mode"

const (
	// jobsUnderWay is how many Jobs are kept under way.
	jobsUnderWay = 32
	// jobsOfWave is how many Jobs are created together, and waveSeconds is long enough for all of them to start.
	jobsOfWave  = 20
	waveSeconds = 30
	// slowGrace is the grace period of slowSidecars.
	slowGrace = 12
)

// expectation is what comes of a Job whose main container is alone in its pod.
type expectation struct {
	outcome batchv1.JobConditionType
	pods    int
	// runs is how often the main container runs, in all pods together. 0 stands for a main container that the Job ends some
	// time between two runs.
	runs int
}

// mainKind is a main container and what comes of it.
type mainKind struct {
	restartPolicy corev1.RestartPolicy
	// end is how the script of the main container ends. It finds the file in which it counts its runs in $runs.
	end          string
	backoffLimit int32
	expectation
}

// The limit where sidecars may be restarted leaves room for those restarts.
var mainKinds = []mainKind{
	{corev1.RestartPolicyNever, "exit 0", 0, expectation{batchv1.JobComplete, 1, 1}},
	{corev1.RestartPolicyOnFailure, "exit 0", 6, expectation{batchv1.JobComplete, 1, 1}},
	{corev1.RestartPolicyNever, "exit 3", 0, expectation{batchv1.JobFailed, 1, 1}},
	{corev1.RestartPolicyOnFailure, `test "$(wc -l < $runs)" -ge 2`, 6, expectation{batchv1.JobComplete, 1, 2}},
	{corev1.RestartPolicyNever, "exit 0", 1, expectation{batchv1.JobComplete, 1, 1}},
	{corev1.RestartPolicyOnFailure, "exit 0", 6, expectation{batchv1.JobComplete, 1, 1}},
	{corev1.RestartPolicyNever, "exit 3", 1, expectation{batchv1.JobFailed, 2, 2}},
	{corev1.RestartPolicyOnFailure, "exit 3", 1, expectation{batchv1.JobFailed, 1, 0}},
}

// controlKinds succeed by themselves, and have room for what a fault makes of them.
var controlKinds = []mainKind{
	{corev1.RestartPolicyNever, "exit 0", 6, expectation{batchv1.JobComplete, 1, 1}},
	{corev1.RestartPolicyOnFailure, "exit 0", 6, expectation{batchv1.JobComplete, 1, 1}},
}

var faultSidecars = []string{harness.ExitsZeroOnTerm, harness.ExitsSevenOnTerm, harness.IgnoresTerm}

// slowSidecars take their time, so that there is some between the request and the end.
var slowSidecars = []string{
	`trap 'sleep 8; exit 0' TERM; sleep 3600 & wait`,
	`trap 'sleep 8; exit 7' TERM; sleep 3600 & wait`,
	harness.IgnoresTerm,
}

// faultJob is a Job with what is expected of it.
type faultJob struct {
	name string
	mode v1alpha1.Mode
	mainKind
}

// faultJobs are Jobs of all modes, restart policies, main containers and sidecars.
type faultJobs struct {
	*harness.Test
	jobs []faultJob
	// created is how many of them have been created, and planned how many were asked for at first.
	created, planned int
	// inWaves has each Job be created only when those before it have finished or are of its wave: a wave's main containers
	// end when all of them have started, and need no second start. A kubelet or containerd that goes while it starts a
	// container may let it fail; control shows how often.
	inWaves bool
	// control has pods be of one container, which nobody ends. A main container that ran again and a Job that failed or did
	// not end are counted and are no errors.
	control bool
	// clockJumps says that the operator's clock jumps from one start to the next. What was asked by the former clock may look
	// overdue, and is asked once more.
	clockJumps bool
	// runs is a directory of the machine in which each main container counts its runs, by the name of its Job. No status
	// has to be believed for it.
	runs string
}

// newFaultJobs creates a policy for each mode.
func newFaultJobs(t *testing.T) *faultJobs {
	t.Helper()
	f := &faultJobs{Test: harness.New(t), runs: t.TempDir()}
	f.WholeAtEnd()
	for _, mode := range modes {
		policy := harness.Policy(mode)
		policy.Name = strings.ToLower(string(mode))
		policy.Spec.Image = harness.QuickExitImage
		policy.Spec.PodSelector.MatchLabels = map[string]string{modeLabel: string(mode)}
		f.Create(policy)
	}
	return f
}

// plan has feed create the number of Jobs, besides those that have been planned.
func (f *faultJobs) plan(number int) {
	kinds := mainKinds
	switch {
	case f.control:
		kinds = controlKinds
	case f.inWaves:
		kinds = slices.DeleteFunc(slices.Clone(mainKinds), func(kind mainKind) bool { return kind.runs != 1 })
	}
	if f.planned == 0 {
		f.planned = number
	}
	for range number {
		i := len(f.jobs)
		f.jobs = append(f.jobs, faultJob{name: jobName(i), mode: modes[i%len(modes)], mainKind: kinds[i/len(modes)%len(kinds)]})
	}
}

// feed creates Jobs until enough are under way at once, so that there are some for every fault and the node is not
// overrun. Components may be down: a Job that could not be created is tried again.
func (f *faultJobs) feed() {
	f.Helper()
	var underWay int
	f.Recorder.Look(func(seen harness.Seen) { underWay = len(f.unfinished(seen)) - (len(f.jobs) - f.created) })
	most := jobsUnderWay
	if f.inWaves {
		most = jobsOfWave
		if underWay > 0 {
			return
		}
	}
	for ; f.created < len(f.jobs) && underWay < most; underWay++ {
		i := f.created
		seconds, sidecar := 1+i%5, faultSidecars[i%len(faultSidecars)]
		if f.inWaves {
			seconds, sidecar = waveSeconds, slowSidecars[i%len(slowSidecars)]
			if f.jobs[i].mode == v1alpha1.ModeImage {
				// A kubelet that goes after it has stopped the container, and before it starts the swapped image, does not
				// start it later where restartPolicy is Never: the pod ends with the exit code that the sidecar had.
				sidecar = slowSidecars[0]
			}
		}
		object := f.object(f.jobs[i], seconds, sidecar)
		if f.inWaves {
			object.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](slowGrace)
		}
		object.Namespace = f.Namespace
		f.Eventually("a Job to be created", harness.StartTimeout, func(ctx context.Context) error {
			if err := f.Client.Create(ctx, object); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
		f.created++
	}
}

func (f *faultJobs) object(job faultJob, seconds int, sidecar string) *batchv1.Job {
	script := fmt.Sprintf("runs=/runs/%s; echo run >> $runs; sleep %d; %s", job.name, seconds, job.end)
	main := harness.Container(harness.MainName, script)
	main.VolumeMounts = []corev1.VolumeMount{{Name: "runs", MountPath: "/runs"}}
	containers := []corev1.Container{harness.Sidecar(sidecar), main}
	if f.control {
		containers = containers[1:]
	}
	object := harness.Job(job.name, job.restartPolicy, containers...)
	object.Spec.BackoffLimit = ptr.To(job.backoffLimit)
	object.Spec.Template.Labels = map[string]string{modeLabel: string(job.mode)}
	object.Spec.Template.Spec.Volumes = []corev1.Volume{{
		Name: "runs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: f.runs}},
	}}
	return object
}

// unfinished returns the Jobs that have not finished or have processes left.
func (f *faultJobs) unfinished(seen harness.Seen) []faultJob {
	var unfinished []faultJob
	for _, job := range f.jobs {
		object := seen.Job(job.name)
		done := hasCondition(object, batchv1.JobComplete) || hasCondition(object, batchv1.JobFailed)
		if !done || f.processesLeft(seen, job) {
			unfinished = append(unfinished, job)
		}
	}
	return unfinished
}

func (f *faultJobs) processesLeft(seen harness.Seen, job faultJob) bool {
	for _, record := range seen.Pods(job.name) {
		if !record.Deleted && (len(record.Running()) > 0 || !record.Finished()) {
			return true
		}
	}
	return false
}

func (f *faultJobs) allFinished(seen harness.Seen) error {
	if left := len(f.unfinished(seen)); left > 0 {
		return fmt.Errorf("%d of %d Jobs have not finished", left, len(f.jobs))
	}
	return nil
}

// runsOf returns how often the main container of the Job has run.
func (f *faultJobs) runsOf(job faultJob) int {
	content, err := os.ReadFile(filepath.Join(f.runs, job.name))
	if err != nil {
		f.Errorf("Count the runs of Job %s: %v", job.name, err)
	}
	return strings.Count(string(content), "\n")
}
