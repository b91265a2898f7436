//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// outcome is the result of a cell.
type outcome struct {
	// job is Complete, Failed or neverStarts.
	job string
	// pod is the last phase of the pod, or Deleted.
	pod string
	// runs is how often the main container ran.
	runs int32
}

// Outcomes that depend only on the main container.
var (
	complete = outcome{job: "Complete", pod: string(corev1.PodSucceeded), runs: 1}
	failed   = outcome{job: "Failed", pod: string(corev1.PodFailed), runs: 1}
)

// neverStarts is the state of a Job whose main container waits for ever.
const neverStarts = "never starts"

// exception is an outcome that Kubernetes decides before the operator can act.
type exception struct {
	note    string
	outcome outcome
	// anyRuns is true if the number of runs varies.
	anyRuns bool
}

// words returns the note, or "".
func (e *exception) words() string {
	if e == nil {
		return ""
	}
	return e.note
}

// expect returns the cell's outcome, and its exception or nil.
func (c cell) expect() (outcome, *exception) {
	native := c.column == columnNative
	switch {
	case native && c.sidecar == unpullable:
		return blockedBySidecar.outcome, blockedBySidecar
	case native && c.restartPolicy == corev1.RestartPolicyOnFailure && c.limit != nil && c.restartsEarly():
		return failedByRestarts.outcome, failedByRestarts
	case native && c.main == mainSucceeds:
		return complete, nil
	case c.restartPolicy == corev1.RestartPolicyOnFailure && c.main == mainFails:
		return restartedUntilFailed.outcome, restartedUntilFailed
	case c.restartPolicy == corev1.RestartPolicyNever && c.main == mainSucceeds && c.sidecar == exitedSeven:
		return failedBySidecar.outcome, failedBySidecar
	case c.main == mainFails:
		return failed, nil
	default:
		return complete, nil
	}
}

// restartsEarly reports whether the sidecar, if native, restarts while the main container runs.
func (c cell) restartsEarly() bool {
	return slices.Contains([]sidecarEnd{exitedZero, exitedSeven, crashLoops}, c.sidecar)
}

var (
	restartedUntilFailed = &exception{
		note: "The kubelet restarts a failed main container, so the main container is never done and the operator does not act. " +
			"The Job controller fails the Job and deletes the pod when its container restarts reach backoffLimit (1).",
		outcome: outcome{job: "Failed", pod: "Deleted"},
		anyRuns: true,
	}
	failedBySidecar = &exception{
		note: "Every container has terminated, one of them with a non-zero exit code. When the kubelet reports the main container as " +
			"terminated, it has decided to fail the pod.",
		outcome: failed,
	}
	blockedBySidecar = &exception{
		note:    "The main container waits until its native sidecars have started. The Job neither completes nor fails.",
		outcome: outcome{job: neverStarts, pod: string(corev1.PodPending)},
	}
	failedByRestarts = &exception{
		note:    "Under OnFailure, the restarts of a native sidecar count towards backoffLimit, also those after exit code 0.",
		outcome: outcome{job: "Failed", pod: "Deleted"},
		anyRuns: true,
	}
)
