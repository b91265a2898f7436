//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	corev1 "k8s.io/api/core/v1"
)

// outcome is the result of a cell.
type outcome struct {
	// job is Complete or Failed.
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
	switch {
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

var (
	restartedUntilFailed = &exception{
		note: "The kubelet restarts a failed main container, so the main container is never done and the operator does not act. " +
			"The Job controller fails the Job and deletes the pod when its container restarts reach backoffLimit (1).",
		outcome: outcome{job: "Failed", pod: "Deleted"},
		anyRuns: true,
	}
	failedBySidecar = &exception{
		note: "Every container has terminated, one of them with a non-zero exit code. The kubelet therefore writes phase Failed in the " +
			"same status update that reports the main container as terminated.",
		outcome: failed,
	}
)
