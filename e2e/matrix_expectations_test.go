//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	corev1 "k8s.io/api/core/v1"
)

// outcome is what becomes of a cell.
type outcome struct {
	// job is Complete or Failed.
	job string
	// pod is the last phase of the pod, or Deleted.
	pod string
	// runs is how often the main container ran.
	runs int32
}

// Outcomes that the main container alone makes.
var (
	complete = outcome{job: "Complete", pod: string(corev1.PodSucceeded), runs: 1}
	failed   = outcome{job: "Failed", pod: string(corev1.PodFailed), runs: 1}
)

// exception is an outcome that Kubernetes makes before the operator can act.
type exception struct {
	note    string
	outcome outcome
	// anyRuns is true where chance decides how often the main container runs.
	anyRuns bool
}

// words returns the note, or nothing.
func (e *exception) words() string {
	if e == nil {
		return ""
	}
	return e.note
}

// expect returns the outcome of the cell, and the exception that it is one of, or nil.
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
		note: "The kubelet runs a main container that fails again, so it is never done, and the operator leaves the pod alone. " +
			"The Job controller fails the Job and deletes the pod when the restarts of its containers reach backoffLimit (1).",
		outcome: outcome{job: "Failed", pod: "Deleted"},
		anyRuns: true,
	}
	failedBySidecar = &exception{
		note: "The kubelet writes the phase Failed in the same status that says that the main container has ended, before anybody can act: " +
			"every container has terminated and one of them with a non-zero exit code.",
		outcome: failed,
	}
)
