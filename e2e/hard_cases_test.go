//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// hardCase is a Job that OpenKruise's SidecarTerminator was measured with. It completes three of the eight.
type hardCase struct {
	name          string
	restartPolicy corev1.RestartPolicy
	script        string
	env           []string
	unpullable    bool
}

var hardCases = []hardCase{
	{"Never, exits 0", corev1.RestartPolicyNever, harness.ExitsZeroOnTerm, []string{v1alpha1.EnvTerminate, "true"}, false},
	{"Never, exits 7", corev1.RestartPolicyNever, harness.ExitsSevenOnTerm, []string{v1alpha1.EnvTerminate, "true"}, false},
	{
		"Never, exits 7, ignored", corev1.RestartPolicyNever, harness.ExitsSevenOnTerm,
		[]string{v1alpha1.EnvTerminate, "true", v1alpha1.EnvIgnoreExitCode, "true"}, false,
	},
	{"OnFailure, exits 7", corev1.RestartPolicyOnFailure, harness.ExitsSevenOnTerm, []string{v1alpha1.EnvTerminate, "true"}, false},
	{
		"OnFailure, exits 7, ignored", corev1.RestartPolicyOnFailure, harness.ExitsSevenOnTerm,
		[]string{v1alpha1.EnvTerminate, "true", v1alpha1.EnvIgnoreExitCode, "true"}, false,
	},
	{"Never, image cannot be pulled", corev1.RestartPolicyNever, harness.ExitsZeroOnTerm, []string{v1alpha1.EnvTerminate, "true"}, true},
	{
		"Never, only WITH_IMAGE", corev1.RestartPolicyNever, harness.ExitsZeroOnTerm,
		[]string{v1alpha1.EnvTerminateWithImage, harness.QuickExitImage}, false,
	},
	{"Never, ignores TERM", corev1.RestartPolicyNever, harness.IgnoresTerm, []string{v1alpha1.EnvTerminate, "true"}, false},
}

func (c hardCase) job(env []string) *batchv1.Job {
	sidecar := harness.WithEnv(harness.Sidecar(c.script), env...)
	if c.unpullable {
		sidecar.Image, sidecar.ImagePullPolicy = missingImage, corev1.PullNever
	}
	job := harness.Job("job", c.restartPolicy, sidecar, harness.Main(3))
	job.Spec.BackoffLimit = ptr.To[int32](1)
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](5)
	return job
}

func TestHardCases(t *testing.T) {
	harness.Shared(t)
	for _, c := range hardCases {
		t.Run(c.name+"/policy", func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			test.Create(harness.Policy(v1alpha1.ModeAuto), c.job(nil))
			test.RequireCompleted("job")
		})
		t.Run(c.name+"/env", func(t *testing.T) {
			t.Parallel()
			test := harness.New(t)
			test.Create(c.job(c.env))
			test.RequireCompleted("job")
		})
	}
}
