//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// mainEnd is how the main container of a cell ends.
type mainEnd string

const (
	mainSucceeds mainEnd = "succeeds"
	mainFails    mainEnd = "fails"
)

// sidecarEnd is how the sidecar of a cell behaves.
type sidecarEnd string

const (
	exitsZero   sidecarEnd = "exits 0 on TERM"
	exitsSeven  sidecarEnd = "exits 7 on TERM"
	ignoresTerm sidecarEnd = "ignores TERM"
	exitedZero  sidecarEnd = "has exited 0"
	exitedSeven sidecarEnd = "has exited 7"
	crashLoops  sidecarEnd = "crash-loops"
	unpullable  sidecarEnd = "image cannot be pulled"
)

var (
	mainEnds    = []mainEnd{mainSucceeds, mainFails}
	sidecarEnds = []sidecarEnd{exitsZero, exitsSeven, ignoresTerm, exitedZero, exitedSeven, crashLoops, unpullable}
	modes       = []v1alpha1.Mode{v1alpha1.ModeCRR, v1alpha1.ModeImage, v1alpha1.ModePodPhase, v1alpha1.ModeAuto}
)

// cell is one combination of the outcome matrix.
type cell struct {
	restartPolicy corev1.RestartPolicy
	main          mainEnd
	sidecar       sidecarEnd
	native        bool
	mode          v1alpha1.Mode
}

// cells returns every combination, in the order of the table.
func cells() []cell {
	var all []cell
	for _, restartPolicy := range jobRestartPolicies {
		for _, main := range mainEnds {
			for _, sidecar := range sidecarEnds {
				for _, native := range []bool{false, true} {
					for _, mode := range modes {
						all = append(all, cell{restartPolicy, main, sidecar, native, mode})
					}
				}
			}
		}
	}
	return all
}

func (c cell) String() string {
	name := fmt.Sprintf("%s, main %s, sidecar %s, mode %s", c.restartPolicy, c.main, c.sidecar, c.mode)
	if c.native {
		name += ", native sidecar"
	}
	return name
}

// job returns the cell's Job. The policy of its mode selects it.
func (c cell) job(name string) *batchv1.Job {
	mainScript := "sleep 3"
	if c.main == mainFails {
		mainScript = "sleep 3; exit 1"
	}
	job := harness.Job(name, c.restartPolicy, c.sidecarContainer(), harness.Container(harness.MainName, mainScript))
	job.Spec.BackoffLimit = ptr.To(c.backoffLimit())
	job.Spec.Template.Labels = map[string]string{"mode": string(c.mode)}
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](2)
	if c.native {
		native := harness.Container("native", harness.ExitsZeroOnTerm)
		native.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		job.Spec.Template.Spec.InitContainers = []corev1.Container{native}
	}
	return job
}

// backoffLimit lets a failed pod fail its Job under Never, a failing main container run twice, and a sidecar crash.
func (c cell) backoffLimit() int32 {
	switch {
	case c.restartPolicy == corev1.RestartPolicyNever:
		return 0
	case c.main == mainFails:
		return 1
	default:
		return 20
	}
}

func (c cell) sidecarContainer() corev1.Container {
	switch c.sidecar {
	case exitsZero:
		return harness.Sidecar(harness.ExitsZeroOnTerm)
	case exitsSeven:
		return harness.Sidecar(harness.ExitsSevenOnTerm)
	case ignoresTerm:
		return harness.Sidecar(harness.IgnoresTerm)
	case exitedZero:
		return harness.Sidecar("exit 0")
	case exitedSeven:
		return harness.Sidecar("exit 7")
	case crashLoops:
		container := harness.Sidecar("exit 1")
		if c.needsOwnRestartPolicy() {
			container.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyOnFailure)
		}
		return container
	default:
		container := harness.Sidecar(harness.ExitsZeroOnTerm)
		container.Image, container.ImagePullPolicy = missingImage, corev1.PullNever
		return container
	}
}

// needsOwnRestartPolicy reports whether the sidecar crashes repeatedly only with its own restartPolicy.
func (c cell) needsOwnRestartPolicy() bool {
	return c.sidecar == crashLoops && c.restartPolicy == corev1.RestartPolicyNever
}
