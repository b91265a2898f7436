// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/native"
	"github.com/sidecar-termination/operator/internal/resolve"
	"github.com/sidecar-termination/operator/internal/settings"
)

// NativeReport says which sidecars of a workload become native ones, and what this changes.
type NativeReport struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// File is the file of a manifest.
	File string `json:"file,omitempty"`
	// Converts is true if a container is converted. Reason and Message explain it for the workload as a whole.
	Converts bool            `json:"converts"`
	Reason   v1alpha1.Reason `json:"reason"`
	Message  string          `json:"message"`
	// Containers has the declared sidecars.
	Containers []NativeContainer `json:"containers"`
	// Findings say what the conversion changes, and what to do.
	Findings []Finding `json:"findings"`
}

// NativeContainer is a declared sidecar, or a native one.
type NativeContainer struct {
	Name     string `json:"name"`
	Converts bool   `json:"converts"`
	// By is the policy that asks for the conversion as KIND/NAME, or Environment.
	By string `json:"by,omitempty"`
	// DryRun is true if this policy has enforcement DryRun and is reported as if it were enforced.
	DryRun  bool            `json:"dryRun,omitempty"`
	Reason  v1alpha1.Reason `json:"reason"`
	Message string          `json:"message,omitempty"`
}

// DescribeConversion reports on the conversion of one pod, as if every DryRun policy were enforced and the cluster could convert.
// The pod counts as not created yet.
func DescribeConversion(pod Pod, operator settings.Decisions, now time.Time) NativeReport {
	x := &explainer{Pod: pod, operator: operator, now: now}
	x.decideConversion(true)
	x.Pod.Pod, x.Template, x.converted = x.atCreation(), true, nil
	x.resolution = resolve.Resolve(x.Pod.Pod, pod.Policies, operator.Resolve)
	x.view = x.resolution.Enforced
	if x.resolution.DryRun != nil {
		x.view = *x.resolution.DryRun
	}
	report := NativeReport{
		Kind: pod.Kind, Namespace: pod.Pod.Namespace, Name: pod.Name,
		Converts: len(x.conversion.Conversions) > 0, Reason: x.conversion.Reason, Message: x.conversion.Message,
		Containers: x.nativeContainers(), Findings: []Finding{},
	}
	for _, exclusion := range x.conversion.Exclusions {
		report.Findings = append(report.Findings, conversionFinding(exclusion.Reason, exclusion.Container, exclusion.Message))
	}
	switch {
	case report.Converts:
		report.Findings = append(report.Findings, x.conversionChanges()...)
		report.Findings = append(report.Findings, x.checkFailurePolicy()...)
	case len(report.Findings) == 0 && slices.ContainsFunc(report.Containers, func(c NativeContainer) bool { return c.Reason == report.Reason }):
		report.Findings = append(report.Findings, conversionFinding(report.Reason, "", report.Message))
	}
	report.Findings = append(report.Findings, x.mayBeInjected()...)
	sortFindings(report.Findings)
	return report
}

// mayBeInjected finds containers that policies ask to convert and that the pod does not have.
func (x *explainer) mayBeInjected() []Finding {
	asking := *x
	asking.Injected = nil // a conversion depends on what webhooks add
	asking.Policies = filter(x.Policies, func(p resolve.Policy) bool { return native.Requests(p.Spec) })
	return asking.checkMissingContainers()
}

// nativeContainers lists the native sidecars and the declared sidecars in the pod's order.
func (x *explainer) nativeContainers() []NativeContainer {
	all := []NativeContainer{}
	for i := range x.Pod.Pod.Spec.InitContainers {
		if container := &x.Pod.Pod.Spec.InitContainers[i]; isNativeSidecar(container) {
			all = append(all, NativeContainer{Name: container.Name, Reason: v1alpha1.ReasonNativeSidecar, Message: "the container is a native sidecar already"})
		}
	}
	for i := range x.Pod.Pod.Spec.Containers {
		if container, ok := x.nativeContainer(&x.Pod.Pod.Spec.Containers[i]); ok {
			all = append(all, container)
		}
	}
	return all
}

// nativeContainer returns false for a main container.
func (x *explainer) nativeContainer(container *corev1.Container) (NativeContainer, bool) {
	name, d := container.Name, x.conversion
	if i := slices.IndexFunc(d.Conversions, func(c native.Conversion) bool { return c.Container == name }); i >= 0 {
		by := d.Conversions[i].By
		return NativeContainer{Name: name, Converts: true, By: by, DryRun: x.isDryRunBy(by), Reason: v1alpha1.ReasonConvertedToNative}, true
	}
	if i := slices.IndexFunc(d.Exclusions, func(e native.Exclusion) bool { return e.Container == name }); i >= 0 {
		e := d.Exclusions[i]
		return NativeContainer{Name: name, By: e.By, DryRun: x.isDryRunBy(e.By), Reason: e.Reason, Message: e.Message}, true
	}
	if x.view.Sidecar(name) == nil {
		return NativeContainer{}, false
	}
	if len(d.Conversions)+len(d.Exclusions) > 0 {
		return NativeContainer{Name: name, Reason: v1alpha1.ReasonConversionNotRequested, Message: fmt.Sprintf("no policy asks for the conversion of container %s", name)}, true
	}
	return NativeContainer{Name: name, Reason: d.Reason, Message: d.Message}, true
}

// isDryRunBy reports whether the policy KIND/NAME has enforcement DryRun.
func (x *explainer) isDryRunBy(by string) bool {
	return slices.ContainsFunc(x.Policies, func(p resolve.Policy) bool { return p.Ref.String() == by && x.isDryRun(p.Ref) })
}

// Sidecars returns the names of the containers to convert, in the pod's order.
func (r *NativeReport) Sidecars() []string {
	var names []string
	for _, container := range r.Containers {
		if container.Converts {
			names = append(names, container.Name)
		}
	}
	return names
}
