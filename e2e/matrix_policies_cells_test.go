//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/e2e/harness"
)

// failsOnce is a main container whose first run fails and whose second run succeeds.
const failsOnce mainEnd = "fails once"

// Sidecars whose exit code a podFailurePolicy can match.
const (
	exits143 sidecarEnd = "exits 143 on TERM"
	isKilled sidecarEnd = "is killed (137)"
)

// stateMount is the mount path of a directory that the pods of all Jobs share.
const stateMount = "/state"

// jobPolicy is a Job's rule for failures of its pods.
type jobPolicy string

// The four actions of a podFailurePolicy, and other rules of Indexed Jobs.
const (
	ruleIgnore       jobPolicy = "Ignore"
	ruleFailJob      jobPolicy = "FailJob"
	ruleCount        jobPolicy = "Count"
	ruleFailIndex    jobPolicy = "FailIndex"
	successPolicy    jobPolicy = "successPolicy"
	maxFailedIndexes jobPolicy = "maxFailedIndexes"
)

var podFailureRules = []jobPolicy{ruleIgnore, ruleFailJob, ruleCount, ruleFailIndex}

// policyRow is one row of the outcome matrix of Job policies: the same Job in every column and without its sidecar.
type policyRow struct {
	policy jobPolicy
	// namesMain is true if the rule names the main container, and matches no other.
	namesMain bool
	main      mainEnd
	sidecar   sidecarEnd
}

// policyRows returns every row, in the order of the table.
func policyRows() []policyRow {
	var rows []policyRow
	for _, policy := range []jobPolicy{ruleIgnore, ruleFailJob, ruleCount, ruleFailIndex, successPolicy, maxFailedIndexes} {
		for _, namesMain := range []bool{false, true} {
			if namesMain && !slices.Contains(podFailureRules, policy) {
				continue
			}
			for _, main := range []mainEnd{mainFails, failsOnce, mainSucceeds} {
				for _, sidecar := range []sidecarEnd{exits143, isKilled} {
					rows = append(rows, policyRow{policy, namesMain, main, sidecar})
				}
			}
		}
	}
	return rows
}

// isBasic reports whether each test run includes the row.
func (r policyRow) isBasic() bool {
	return slices.Contains([]policyRow{
		{ruleIgnore, false, mainFails, exits143},
		{ruleFailJob, false, failsOnce, exits143},
		{ruleFailJob, false, mainSucceeds, isKilled},
		{ruleFailIndex, false, mainSucceeds, exits143},
	}, r)
}

func (r policyRow) String() string {
	return fmt.Sprintf("%s, rule names %s, main %s, sidecar %s", r.policy, r.ruleNames(), r.main, r.sidecar)
}

func (r policyRow) ruleNames() string {
	switch {
	case !slices.Contains(podFailureRules, r.policy):
		return "-"
	case r.namesMain:
		return "main"
	default:
		return "no container"
	}
}

// alone returns the row without a sidecar.
func (r policyRow) alone() policyRow {
	r.sidecar = ""
	return r
}

// job returns the row's Job for the column.
func (r policyRow) job(name string, column matrixColumn, state string) *batchv1.Job {
	main := harness.Container(harness.MainName, r.mainScript(name))
	containers := []corev1.Container{main}
	switch r.sidecar {
	case exits143:
		containers = []corev1.Container{harness.Sidecar(`trap 'exit 143' TERM; sleep 3600 & wait`), main}
	case isKilled:
		containers = []corev1.Container{harness.Sidecar(harness.IgnoresTerm), main}
	}
	job := harness.Job(name, corev1.RestartPolicyNever, containers...)
	job.Spec.BackoffLimit = ptr.To[int32](1)
	job.Spec.Template.Labels = map[string]string{labelColumn: string(column)}
	if column == columnNative {
		makeNative(job)
	}
	template := &job.Spec.Template.Spec
	template.TerminationGracePeriodSeconds = ptr.To[int64](2)
	harness.MountHostDirectory(template, harness.MainName, state, stateMount)
	r.setPolicy(&job.Spec)
	return job
}

// mainScript returns the script of the main container. In an Indexed Job only index 0 ends as the row says.
func (r policyRow) mainScript(name string) string {
	others := "exit 0"
	if r.policy == successPolicy {
		others = "exec sleep 3600"
	}
	end := "exit 0"
	switch r.main {
	case mainFails:
		end = "exit 1"
	case failsOnce:
		end = fmt.Sprintf("[ -e %[1]s ] && exit 0; : > %[1]s; exit 1", stateMount+"/"+name)
	}
	return fmt.Sprintf(`sleep 1; [ "${JOB_COMPLETION_INDEX:-0}" = 0 ] || %s; %s`, others, end)
}

func (r policyRow) setPolicy(spec *batchv1.JobSpec) {
	if !slices.Contains([]jobPolicy{ruleIgnore, ruleFailJob, ruleCount}, r.policy) {
		spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
		spec.Completions, spec.Parallelism = ptr.To[int32](2), ptr.To[int32](2)
	}
	if r.policy == ruleFailIndex || r.policy == maxFailedIndexes {
		spec.BackoffLimit, spec.BackoffLimitPerIndex = nil, ptr.To[int32](1)
	}
	switch r.policy {
	case successPolicy:
		spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("0")}}}
	case maxFailedIndexes:
		spec.MaxFailedIndexes = ptr.To[int32](0)
	default:
		spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
			r.rule(batchv1.PodFailurePolicyAction(r.policy), 137, 143),
		}}
	}
	if r.policy == ruleCount {
		// Count differs from the default only if a later rule also matches.
		spec.PodFailurePolicy.Rules = append(spec.PodFailurePolicy.Rules, r.rule(batchv1.PodFailurePolicyActionFailJob, 1))
	}
}

func (r policyRow) rule(action batchv1.PodFailurePolicyAction, exitCodes ...int32) batchv1.PodFailurePolicyRule {
	requirement := &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: exitCodes}
	if r.namesMain {
		requirement.ContainerName = ptr.To(harness.MainName)
	}
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: requirement}
}

// mostPods is the number of pods of the Job if every failure counts.
func (r policyRow) mostPods() int {
	switch r.policy {
	case ruleFailIndex, maxFailedIndexes:
		return 4
	case successPolicy:
		return 3
	default:
		return 2
	}
}
