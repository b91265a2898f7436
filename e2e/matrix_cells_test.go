//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"

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

// matrixColumn is a column of a matrix: a mode, or native sidecars.
type matrixColumn string

// columnNative is a manifest with native sidecars, without a policy.
const columnNative matrixColumn = "Native"

// columns are the columns of the tables.
var columns = append(columnsOf(modes), columnNative)

func columnsOf(modes []v1alpha1.Mode) []matrixColumn {
	var columns []matrixColumn
	for _, mode := range modes {
		columns = append(columns, matrixColumn(mode))
	}
	return columns
}

// labelColumn is the label in the podSelector of the columns' policies.
const labelColumn = "column"

// columnPolicy returns a policy for the pods of a mode's column.
func columnPolicy(column matrixColumn) *v1alpha1.SidecarTerminationPolicy {
	policy := harness.Policy(v1alpha1.Mode(column))
	policy.Name = "column-" + strings.ToLower(string(column))
	policy.Spec.PodSelector.MatchLabels = map[string]string{labelColumn: string(column)}
	return policy
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

// cell is one combination of the outcome matrix.
type cell struct {
	restartPolicy corev1.RestartPolicy
	main          mainEnd
	sidecar       sidecarEnd
	native        bool
	column        matrixColumn
	// limit is the Job's backoffLimit, or nil for one that sidecars do not reach.
	limit *int32
}

// cells returns every combination, in the order of the table.
func cells() []cell {
	var all []cell
	for _, restartPolicy := range jobRestartPolicies {
		for _, main := range mainEnds {
			for _, sidecar := range sidecarEnds {
				for _, native := range []bool{false, true} {
					for _, column := range columns {
						all = append(all, cell{restartPolicy: restartPolicy, main: main, sidecar: sidecar, native: native, column: column})
					}
				}
			}
		}
	}
	return all
}

// cellsWithBackoffLimit returns the cells of successful main containers and native sidecars with backoffLimit 1.
func cellsWithBackoffLimit() []cell {
	var all []cell
	for _, restartPolicy := range jobRestartPolicies {
		for _, sidecar := range sidecarEnds {
			all = append(all, cell{restartPolicy: restartPolicy, main: mainSucceeds, sidecar: sidecar, column: columnNative, limit: ptr.To[int32](1)})
		}
	}
	return all
}

func (c cell) String() string {
	name := fmt.Sprintf("%s, main %s, sidecar %s, %s", c.restartPolicy, c.main, c.sidecar, c.column)
	if c.native {
		name += ", native sidecar"
	}
	if c.limit != nil {
		name += fmt.Sprintf(", backoffLimit %d", *c.limit)
	}
	return name
}

// job returns the cell's Job. The policy of its column selects it.
func (c cell) job(name string) *batchv1.Job {
	mainScript := "sleep 3"
	if c.main == mainFails {
		mainScript = "sleep 3; exit 1"
	}
	if c.limit != nil && c.restartsEarly() && c.restartPolicy == corev1.RestartPolicyOnFailure {
		mainScript = "sleep 60" // the kubelet of a busy node may restart the sidecar late
	}
	job := harness.Job(name, c.restartPolicy, c.sidecarContainer(), harness.Container(harness.MainName, mainScript))
	job.Spec.BackoffLimit = ptr.To(c.backoffLimit())
	job.Spec.Template.Labels = map[string]string{labelColumn: string(c.column)}
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](2)
	harness.ReportStart(&job.Spec.Template.Spec)
	if c.native {
		native := harness.Container("native", harness.ExitsZeroOnTerm)
		native.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		job.Spec.Template.Spec.InitContainers = []corev1.Container{native}
	}
	if c.column == columnNative {
		makeNative(job)
	}
	return job
}

// backoffLimit lets a failed pod fail its Job under Never, a failing main container run twice, and a sidecar crash.
func (c cell) backoffLimit() int32 {
	switch {
	case c.limit != nil:
		return *c.limit
	case c.restartPolicy == corev1.RestartPolicyNever:
		return 0
	case c.main == mainFails:
		return 1
	default:
		return 20
	}
}

// sidecarContainer returns the sidecar.
func (c cell) sidecarContainer() corev1.Container {
	switch c.sidecar {
	case exitsZero:
		return harness.Sidecar(harness.ExitsZeroOnTerm)
	case exitsSeven:
		return harness.Sidecar(harness.ExitsSevenOnTerm)
	case ignoresTerm:
		return harness.Sidecar(harness.IgnoresTerm)
	case exitedZero:
		return harness.Sidecar(harness.ExitsDuringMain(0))
	case exitedSeven:
		return harness.Sidecar(harness.ExitsDuringMain(7))
	case crashLoops:
		container := harness.Sidecar(harness.CrashLoops())
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

// needsOwnRestartPolicy reports whether the sidecar crashes repeatedly only with its own restartPolicy. A native one has it.
func (c cell) needsOwnRestartPolicy() bool {
	return c.column != columnNative && c.sidecar == crashLoops && c.restartPolicy == corev1.RestartPolicyNever
}
