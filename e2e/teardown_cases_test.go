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

// teardown is a way in which a sidecar comes to its end.
type teardown struct {
	// name is how documents call it.
	name      string
	mode      v1alpha1.Mode
	exitCodes v1alpha1.ExitCodes
	drain     int32
	// native is a sidecar that Kubernetes ends by itself.
	native bool
	// phaseFirst says that the pod's phase is terminal while the sidecar ends.
	phaseFirst bool
}

// OpenKruise's daemon runs on the node, so that Auto chooses CRR.
var teardowns = []teardown{
	{name: "Auto", mode: v1alpha1.ModeAuto, exitCodes: v1alpha1.ExitCodesIgnore, phaseFirst: true},
	{name: "CRR, `exitCodes: Ignore`", mode: v1alpha1.ModeCRR, exitCodes: v1alpha1.ExitCodesIgnore, phaseFirst: true},
	{name: "PodPhase", mode: v1alpha1.ModePodPhase, exitCodes: v1alpha1.ExitCodesIgnore, phaseFirst: true},
	{name: "CRR, `exitCodes: Respect`", mode: v1alpha1.ModeCRR, exitCodes: v1alpha1.ExitCodesRespect},
	{name: "Image", mode: v1alpha1.ModeImage, exitCodes: v1alpha1.ExitCodesIgnore},
	{name: "native sidecar, without the operator", native: true},
}

// phase is what the pod's phase reads while the sidecar ends.
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

// policy returns the policy that ends the sidecar so, or nil where Kubernetes does.
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

// job returns a Job whose sidecar is ended so.
func (d teardown) job(name string, sidecar, main corev1.Container, volumes ...corev1.Volume) *batchv1.Job {
	job := harness.Job(name, corev1.RestartPolicyNever, main)
	spec := &job.Spec.Template.Spec
	if d.native {
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		spec.InitContainers = []corev1.Container{sidecar}
	} else {
		spec.Containers = append(spec.Containers, sidecar)
	}
	spec.Volumes = volumes
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
