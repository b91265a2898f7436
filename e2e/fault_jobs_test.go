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
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

const (
	// jobsInFlight is how many Jobs run at once.
	jobsInFlight = 32
	// jobsOfWave is how many Jobs are created together. All of them start within waveSeconds.
	jobsOfWave  = 20
	waveSeconds = 30
	// slowGrace is the grace period of slowSidecars.
	slowGrace = 12
)

// faultPolicy holds the settings of a policy.
type faultPolicy struct {
	mode           v1alpha1.Mode
	exitCodePolicy v1alpha1.ExitCodePolicy
}

// Mode CRR is listed twice: only with Respect does it create a CRR at once.
var faultPolicies = []faultPolicy{
	{v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyRespect},
	{v1alpha1.ModeCRR, v1alpha1.ExitCodePolicyIgnore},
	{v1alpha1.ModeImage, v1alpha1.ExitCodePolicyIgnore},
	{v1alpha1.ModePodPhase, v1alpha1.ExitCodePolicyIgnore},
	{v1alpha1.ModeAuto, v1alpha1.ExitCodePolicyIgnore},
}

func (p faultPolicy) name() string {
	return strings.ToLower(fmt.Sprintf("%s-%s", p.mode, p.exitCodePolicy))
}

// needsZeroExit reports whether a sidecar that exits non-zero may fail the pod. That is so if its exit code counts, or if the
// kubelet may restart in the middle of an image swap. Under Never, the kubelet then does not start the new image.
func (p faultPolicy) needsZeroExit(kubeletRestarts bool) bool {
	return p.exitCodePolicy == v1alpha1.ExitCodePolicyRespect || kubeletRestarts && p.mode == v1alpha1.ModeImage
}

// mainKind is a main container and the result of its Job without a sidecar.
type mainKind struct {
	restartPolicy corev1.RestartPolicy
	// end is the end of the script. $runs is the file that counts the runs.
	end          string
	backoffLimit int32
	outcome      batchv1.JobConditionType
	pods         int
	// runs is how often the main container runs, in all pods. 0 means any number, because the Job terminates it between runs.
	runs int
}

// Under OnFailure, backoffLimit allows for restarts of sidecars.
var mainKinds = []mainKind{
	{corev1.RestartPolicyNever, "exit 0", 0, batchv1.JobComplete, 1, 1},
	{corev1.RestartPolicyOnFailure, "exit 0", 6, batchv1.JobComplete, 1, 1},
	{corev1.RestartPolicyNever, "exit 3", 0, batchv1.JobFailed, 1, 1},
	{corev1.RestartPolicyOnFailure, `test "$(wc -l < $runs)" -ge 2`, 6, batchv1.JobComplete, 1, 2},
	{corev1.RestartPolicyNever, "exit 0", 1, batchv1.JobComplete, 1, 1},
	{corev1.RestartPolicyOnFailure, "exit 0", 6, batchv1.JobComplete, 1, 1},
	{corev1.RestartPolicyNever, "exit 3", 1, batchv1.JobFailed, 2, 2},
	{corev1.RestartPolicyOnFailure, "exit 3", 1, batchv1.JobFailed, 1, 0},
}

// The first of faultSidecars and of slowSidecars exits 0.
var faultSidecars = []string{harness.ExitsZeroOnTerm, harness.ExitsSevenOnTerm, harness.IgnoresTerm}

// slowSidecars take seconds to terminate.
var slowSidecars = []string{
	`trap 'sleep 8; exit 0' TERM; sleep 3600 & wait`,
	`trap 'sleep 8; exit 7' TERM; sleep 3600 & wait`,
	harness.IgnoresTerm,
}

// faultJob is a Job with its expected result.
type faultJob struct {
	name   string
	policy faultPolicy
	mainKind
}

// faultJobs are Jobs with all combinations of policies, restart policies, main containers and sidecars.
type faultJobs struct {
	*harness.Test
	jobs []faultJob
	// created is how many of them exist, and planned the number of the first plan.
	created, planned int
	// inWaves creates the Jobs in waves: main containers of a wave end after all of them have started. A container may fail if
	// the kubelet or containerd restarts while it starts.
	inWaves bool
	// untilFinished injects faults until all Jobs have finished. Otherwise more Jobs are created until all faults are injected.
	untilFinished bool
	// change changes each Job before it is created, if it is not nil.
	change func(*batchv1.Job)
	// runs is a host directory in which each main container counts its runs, in a file with the name of its Job. The counts do
	// not depend on any status.
	runs string
}

// newFaultJobs creates the policies.
func newFaultJobs(t *testing.T) *faultJobs {
	t.Helper()
	f := &faultJobs{Test: harness.New(t), runs: t.TempDir()}
	f.WholeAtEnd()
	for _, p := range faultPolicies {
		policy := named(harness.Policy(p.mode), p.name())
		policy.Spec.Image, policy.Spec.ExitCodePolicy = harness.QuickExitImage, p.exitCodePolicy
		f.Create(policy)
	}
	return f
}

// plan adds the number of Jobs, which feed creates.
func (f *faultJobs) plan(number int) {
	kinds := mainKinds
	if f.inWaves {
		kinds = slices.DeleteFunc(slices.Clone(mainKinds), func(kind mainKind) bool { return kind.runs != 1 })
	}
	if f.planned == 0 {
		f.planned = number
	}
	for range number {
		i := len(f.jobs)
		f.jobs = append(f.jobs, faultJob{fmt.Sprintf("job-%03d", i), faultPolicies[i%len(faultPolicies)], kinds[i/len(faultPolicies)%len(kinds)]})
	}
}

// feed creates planned Jobs up to the limit of Jobs in flight. It retries, because components may be down.
func (f *faultJobs) feed() {
	f.Helper()
	var inFlight int
	f.Recorder.Look(func(seen harness.Seen) { inFlight = len(f.unfinished(seen)) - (len(f.jobs) - f.created) })
	most := jobsInFlight
	if f.inWaves {
		most = jobsOfWave
		if inFlight > 0 {
			return
		}
	}
	for ; f.created < len(f.jobs) && inFlight < most; inFlight++ {
		i := f.created
		seconds, sidecars := 1+i%4, faultSidecars
		if f.inWaves {
			seconds, sidecars = waveSeconds, slowSidecars
		}
		sidecar := sidecars[i%len(sidecars)]
		if f.jobs[i].policy.needsZeroExit(f.inWaves) {
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
	object := harness.Job(job.name, job.restartPolicy, harness.Sidecar(sidecar), main)
	object.Spec.BackoffLimit = ptr.To(job.backoffLimit)
	object.Spec.Template.Labels = map[string]string{policyLabel: job.policy.name()}
	harness.MountHostDirectory(&object.Spec.Template.Spec, harness.MainName, f.runs, "/runs")
	if f.change != nil {
		f.change(object)
	}
	return object
}

// unfinished returns the Jobs that have not finished or have running containers.
func (f *faultJobs) unfinished(seen harness.Seen) []faultJob {
	var unfinished []faultJob
	for _, job := range f.jobs {
		object := seen.Job(job.name)
		_, complete := harness.JobCondition(object, batchv1.JobComplete)
		_, failed := harness.JobCondition(object, batchv1.JobFailed)
		if !complete && !failed || slices.ContainsFunc(seen.Pods(job.name), func(record *harness.PodRecord) bool {
			return !record.Deleted && (len(record.Running()) > 0 || !record.Finished())
		}) {
			unfinished = append(unfinished, job)
		}
	}
	return unfinished
}

func (f *faultJobs) allFinished(seen harness.Seen) error {
	if left := len(f.unfinished(seen)); left > 0 {
		return fmt.Errorf("%d of %d Jobs have not finished", left, len(f.jobs))
	}
	return nil
}

// runsOf returns how often the Job's main container has run.
func (f *faultJobs) runsOf(job faultJob) int {
	content, err := os.ReadFile(filepath.Join(f.runs, job.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Errorf("Count the runs of Job %s: %v", job.name, err)
	}
	return strings.Count(string(content), "\n")
}

// defaultDeadline is the default of terminationDeadlineSeconds.
const defaultDeadline = 30 * time.Second

// requireAsAlone requires of each Job what would have come of it without its sidecar, by its status and by the runs that its main
// container counted. No pod may have left a terminal phase or had a CRR before the deadline of the previous one.
func (f *faultJobs) requireAsAlone() {
	f.Helper()
	f.Recorder.Look(func(seen harness.Seen) {
		for _, job := range f.unfinished(seen) {
			f.Errorf("Job %s (policy %s) is stuck: %s", job.name, job.policy.name(), seen.Describe(job.name))
		}
		for _, job := range f.jobs {
			f.requireResult(seen, job)
		}
		for _, record := range seen.AllPods() {
			f.RequireNoReversal(record)
			crrs := seen.CRRs(record.Pod.Name)
			for i := 1; i < len(crrs); i++ {
				if apart := crrs[i].Created.Sub(crrs[i-1].Created); apart < defaultDeadline {
					f.Errorf("Pod %s got two CRRs within %s: %s", record.Pod.Name, apart, seen.Describe(record.Pod.Name))
				}
			}
		}
	})
}

// hasNoFixedResult reports whether a pod of the Job may have failed although its main container has succeeded: its sidecar's exit code counts and
// is lost, because containerd reports 255 for a container that ended while it was away (internal/cri/server/restart.go), or the operator has said
// that it decided too late, as it may where no admission policy decides (docs/support.md).
func (f *faultJobs) hasNoFixedResult(seen harness.Seen, job faultJob) bool {
	f.Helper()
	tooLate := func(event corev1.Event) bool { return event.Reason == string(v1alpha1.ReasonDecidedTooLate) }
	return slices.ContainsFunc(seen.Pods(job.name), func(record *harness.PodRecord) bool {
		sidecar := record.Container(harness.SidecarName)
		switch {
		case record.Pod.Status.Phase != corev1.PodFailed, sidecar == nil, sidecar.State.Terminated == nil:
			return false
		case job.policy.exitCodePolicy == v1alpha1.ExitCodePolicyRespect:
			return sidecar.State.Terminated.ExitCode == 255
		}
		return !f.ServesOutcomePolicy() && slices.ContainsFunc(f.EventsOn(record.Pod), tooLate)
	})
}

func (f *faultJobs) requireResult(seen harness.Seen, job faultJob) {
	f.Helper()
	if f.hasNoFixedResult(seen, job) {
		f.Logf("Job %s has no fixed result: %s", job.name, seen.Describe(job.name))
		return
	}
	runs, pods, restarts := f.runsOf(job), seen.Pods(job.name), 0
	for _, record := range pods {
		if main := record.Container(harness.MainName); main != nil {
			restarts += int(main.RestartCount)
		}
	}
	if len(pods) > job.pods || job.runs > 0 && (runs > job.runs || len(pods)+restarts > job.runs) {
		f.Errorf("Job %s (policy %s) had %d pods and %d runs of its main container, want %d and %d, with %d restarts: %s",
			job.name, job.policy.name(), len(pods), runs, job.pods, job.runs, restarts, seen.Describe(job.name))
	}
	opposite := batchv1.JobFailed
	if job.outcome == batchv1.JobFailed {
		opposite = batchv1.JobComplete
	}
	if reason, is := harness.JobCondition(seen.Job(job.name), opposite); is || runs < max(job.runs, 1) {
		f.Errorf("Job %s (policy %s, %d runs of %d) is %s: %s, want %s: %s",
			job.name, job.policy.name(), runs, job.runs, opposite, reason, job.outcome, seen.Describe(job.name))
	}
}
