// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
)

// Feature is a part of the operator that a flag turns off. It needs permissions of its own, which an admission policy also asks of the
// authors of policies.
type Feature struct {
	// Name is what users read.
	Name string
	// Mode is empty for prePull, which is no mode.
	Mode v1alpha1.Mode
	// Flag turns the feature off, without its dashes, and ChartValue is the chart's value for the flag.
	Flag, ChartValue string
	// Role has the permissions that only this feature needs, and is empty if there are none. AdmissionPolicy checks the authors of policies.
	// Both are names in config/default without the prefix sidecar-termination-.
	Role, AdmissionPolicy string
	// Unchecked is what authors can do without the admission policy.
	Unchecked string
	// OfCluster means that an operator for single namespaces does not have the feature.
	OfCluster bool
}

// Enabled reports whether the flags turn the feature on.
func (f Feature) Enabled(modes plan.EnabledModes) bool {
	if f.Mode == "" {
		return modes.PrePull
	}
	return modes.Enabled(f.Mode)
}

// Features returns all features: a mode is known to flags, roles, admission policies and the plugin's check by its entry here.
func Features() []Feature {
	return []Feature{
		{
			Name: "mode CRR", Mode: v1alpha1.ModeCRR, Flag: "crr", ChartValue: "modes.crr",
			Role: "manager-crr-role", AdmissionPolicy: "mode-crr", Unchecked: "stop containers", OfCluster: true,
		},
		{
			Name: "mode Image", Mode: v1alpha1.ModeImage, Flag: "image-swap", ChartValue: "modes.image",
			Role: "manager-image-role", AdmissionPolicy: "mode-image", Unchecked: "change images of pods",
		},
		{
			// Every marked pod needs manager-outcome-role.
			Name: "mode PodPhase", Mode: v1alpha1.ModePodPhase, Flag: "pod-phase", ChartValue: "modes.podPhase",
			AdmissionPolicy: "mode-pod-phase", Unchecked: "end pods",
		},
		{
			Name: "prePull of policies", Flag: "pre-pull", ChartValue: "prePull",
			Role: "manager-pre-pull-role", AdmissionPolicy: "mode-pre-pull", Unchecked: "pull images to nodes", OfCluster: true,
		},
	}
}
