//go:build e2e

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/e2e/harness"
)

// teardown is a way to terminate a sidecar.
type teardown struct {
	// name is its name in documents.
	name      string
	mode      v1alpha1.Mode
	exitCodes v1alpha1.ExitCodes
	drain     int32
	// native says that Kubernetes terminates the sidecar, without the operator.
	native bool
	// phaseFirst says that the pod's phase is terminal while the sidecar terminates.
	phaseFirst bool
}

// OpenKruise's daemon runs on the node, so Auto means CRR.
var teardowns = []teardown{
	{name: "Auto", mode: v1alpha1.ModeAuto, exitCodes: v1alpha1.ExitCodesIgnore, phaseFirst: true},
	{name: "CRR, `exitCodes: Ignore`", mode: v1alpha1.ModeCRR, exitCodes: v1alpha1.ExitCodesIgnore, phaseFirst: true},
	{name: "PodPhase", mode: v1alpha1.ModePodPhase, exitCodes: v1alpha1.ExitCodesIgnore, phaseFirst: true},
	{name: "CRR, `exitCodes: Respect`", mode: v1alpha1.ModeCRR, exitCodes: v1alpha1.ExitCodesRespect},
	{name: "Image", mode: v1alpha1.ModeImage, exitCodes: v1alpha1.ExitCodesIgnore},
	{name: "native sidecar, without the operator", native: true},
}

// phase describes the pod's phase while the sidecar terminates.
func (d teardown) phase() string {
	if d.phaseFirst {
		return "terminal"
	}
	return "Running"
}

// label is the value of policyLabel on the pods.
func (d teardown) label() string {
	return strings.Trim(strings.NewReplacer(", ", "-", ":", "", " ", "-", "`", "", "=", "-").Replace(strings.ReplaceAll(strings.ToLower(d.name), "--", "")), "-")
}

// policy returns the policy, or nil for a native sidecar.
func (d teardown) policy() *v1alpha1.SidecarTerminationPolicy {
	if d.native {
		return nil
	}
	policy := harness.Policy(d.mode)
	policy.Name = d.label()
	policy.Spec.Image, policy.Spec.ExitCodes, policy.Spec.DrainSeconds = harness.QuickExitImage, d.exitCodes, ptr.To(d.drain)
	policy.Spec.PodSelector.MatchLabels = map[string]string{policyLabel: d.label()}
	return policy
}

// job returns a Job whose sidecar is terminated this way.
func (d teardown) job(name string, sidecar, main corev1.Container) *batchv1.Job {
	job := harness.Job(name, corev1.RestartPolicyNever, main)
	spec := &job.Spec.Template.Spec
	if d.native {
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		spec.InitContainers = []corev1.Container{sidecar}
	} else {
		spec.Containers = append(spec.Containers, sidecar)
	}
	job.Spec.Template.Labels = map[string]string{policyLabel: d.label()}
	return job
}

// createTeardownPolicies creates the policies of the teardowns.
func createTeardownPolicies(test *harness.Test, all []teardown) {
	test.Helper()
	for _, d := range all {
		if policy := d.policy(); policy != nil {
			test.Create(policy)
		}
	}
}
