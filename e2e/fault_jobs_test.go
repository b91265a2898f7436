//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// policyLabel chooses the policy of a pod.
const policyLabel = "policy"

const (
	// jobsUnderWay is how many Jobs are kept under way.
	jobsUnderWay = 32
	// jobsOfWave is how many Jobs are created together, and waveSeconds is long enough for all of them to start.
	jobsOfWave  = 20
	waveSeconds = 30
	// slowGrace is the grace period of slowSidecars.
	slowGrace = 12
)

// faultPolicy is what the policy of a Job says.
type faultPolicy struct {
	mode      v1alpha1.Mode
	exitCodes v1alpha1.ExitCodes
}

// Mode CRR is there twice, for it asks Kruise at once only where exit codes count.
var faultPolicies = []faultPolicy{
	{v1alpha1.ModeCRR, v1alpha1.ExitCodesRespect},
	{v1alpha1.ModeCRR, v1alpha1.ExitCodesIgnore},
	{v1alpha1.ModeImage, v1alpha1.ExitCodesIgnore},
	{v1alpha1.ModePodPhase, v1alpha1.ExitCodesIgnore},
	{v1alpha1.ModeAuto, v1alpha1.ExitCodesIgnore},
}

func (p faultPolicy) name() string { return strings.ToLower(fmt.Sprintf("%s-%s", p.mode, p.exitCodes)) }

// needsPoliteSidecar reports whether a sidecar that exits non-zero may fail the pod: its exit code counts, or a kubelet that
// goes after it has stopped the container, and before it starts the swapped image, does not start it later where
// restartPolicy is Never.
func (p faultPolicy) needsPoliteSidecar(kubeletGoes bool) bool {
	return p.exitCodes == v1alpha1.ExitCodesRespect || kubeletGoes && p.mode == v1alpha1.ModeImage
}

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

// The first of faultSidecars and of slowSidecars is polite.
var faultSidecars = []string{harness.ExitsZeroOnTerm, harness.ExitsSevenOnTerm, harness.IgnoresTerm}

// slowSidecars take their time, so that there is some between the request and the end.
var slowSidecars = []string{
	`trap 'sleep 8; exit 0' TERM; sleep 3600 & wait`,
	`trap 'sleep 8; exit 7' TERM; sleep 3600 & wait`,
	harness.IgnoresTerm,
}

// faultJob is a Job with what is expected of it.
type faultJob struct {
	name   string
	policy faultPolicy
	mainKind
}

// faultJobs are Jobs of all policies, restart policies, main containers and sidecars.
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

// newFaultJobs creates the policies.
func newFaultJobs(t *testing.T) *faultJobs {
	t.Helper()
	f := &faultJobs{Test: harness.New(t), runs: t.TempDir()}
	f.WholeAtEnd()
	for _, p := range faultPolicies {
		policy := harness.Policy(p.mode)
		policy.Name = p.name()
		policy.Spec.Image, policy.Spec.ExitCodes = harness.QuickExitImage, p.exitCodes
		policy.Spec.PodSelector.MatchLabels = map[string]string{policyLabel: p.name()}
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
		f.jobs = append(f.jobs, faultJob{jobName(i), faultPolicies[i%len(faultPolicies)], kinds[i/len(faultPolicies)%len(kinds)]})
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
		seconds, sidecars := 1+i%4, faultSidecars
		if f.inWaves {
			seconds, sidecars = waveSeconds, slowSidecars
		}
		sidecar := sidecars[i%len(sidecars)]
		if f.jobs[i].policy.needsPoliteSidecar(f.inWaves) {
			sidecar = sidecars[0]
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
	object.Spec.Template.Labels = map[string]string{policyLabel: job.policy.name()}
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

// runsOf returns how often the main container of the Job has run. One that never ran has left no file.
func (f *faultJobs) runsOf(job faultJob) int {
	content, err := os.ReadFile(filepath.Join(f.runs, job.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Errorf("Count the runs of Job %s: %v", job.name, err)
	}
	return strings.Count(string(content), "\n")
}
