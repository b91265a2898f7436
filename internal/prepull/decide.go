// SPDX-License-Identifier: Apache-2.0

// Package prepull decides which ImagePullJobs download a policy's quick-exit images to nodes in advance, and reports
// their progress. It is pure: the same input gives the same bytes. Packages pulljob and controllers read and write the
// jobs.
//
// A job is never changed. OpenKruise does not pass a change of pull secrets on to nodes that it has asked before (syncNodeImages in
// imagepulljob_controller.go skips a node that knows the job). So a job's name is a hash of its content, and other content is
// another job.
package prepull

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/plan"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Situation is what a decision depends on.
type Situation struct {
	Policy v1alpha1.Policy
	// Namespace is where the jobs of cluster policies live; empty when the operator does not know its own.
	Namespace string
	// DefaultImage is the operator's quick-exit image, for policies without one, or empty.
	DefaultImage string
	// Capabilities are the operator's. Its own image is always permitted. Without PrePull, and where it watches single namespaces, the
	// operator does not know the existing jobs.
	Capabilities plan.Capabilities
	// Served is true while the cluster serves jobs.
	Served bool
	// Existing are the policy's jobs.
	Existing []Existing
	// Denial is why the last job of the policy could not be created, or empty.
	Denial string
}

// Decision is the jobs of a policy to create and delete, and the report. Lists are sorted.
type Decision struct {
	Create []Job
	Delete []Existing
	// Report is nil while the policy has no prePull.
	Report *Report
}

// Report is the content of the condition PrePulled.
type Report struct {
	Holds   bool
	Reason  v1alpha1.Reason
	Message string
}

// Decide returns the jobs to create and to delete. With a blocker it deletes every job.
func Decide(s Situation) Decision {
	if !s.Capabilities.PrePull || !s.Served {
		return Decision{Report: s.unavailable()}
	}
	var decision Decision
	var wanted []Job
	if s.wantsPrePull() {
		images := Images(s.spec(), s.DefaultImage)
		if decision.Report = s.blocker(images); decision.Report == nil {
			wanted = jobs(s.Policy, s.namespace(), images)
			decision.Report = report(wanted, s.Existing, s.Denial)
		}
	}
	decision.Create = missing(wanted, s.Existing)
	decision.Delete = unwanted(wanted, s.Existing)
	return decision
}

func (s Situation) spec() *v1alpha1.PolicySpec {
	spec, _ := s.Policy.Parts()
	return spec
}

func (s Situation) wantsPrePull() bool {
	return s.spec().PrePull != nil && s.Policy.GetDeletionTimestamp() == nil
}

// unavailable is the report where jobs cannot be read.
func (s Situation) unavailable() *Report {
	switch {
	case !s.wantsPrePull():
		return nil
	case !s.Capabilities.PrePull:
		return &Report{Reason: v1alpha1.ReasonPrePullUnavailable, Message: "the operator runs with --pre-pull=Disabled; nodes pull images when they need them"}
	case s.Capabilities.NamespacesOnly:
		return &Report{Reason: v1alpha1.ReasonPrePullUnavailable,
			Message: "the operator runs with --watch-namespaces and does not use OpenKruise; nodes pull images when they need them"}
	default:
		return &Report{Reason: v1alpha1.ReasonPrePullUnavailable,
			Message: "OpenKruise does not serve ImagePullJobs in this cluster; install it, or remove prePull. Nodes pull images when they need them"}
	}
}

// blocker returns the first reason to pull nothing, or nil.
func (s Situation) blocker(images []string) *Report {
	spec := s.spec()
	switch {
	case !spec.Enforcement.Acts():
		return &Report{Reason: v1alpha1.ReasonDryRun, Message: "nothing is pulled; set enforcement to Enforce to act"}
	case !s.Capabilities.Image:
		return &Report{Reason: v1alpha1.ReasonModeDisabled, Message: "no image is needed, because the operator runs with --image-swap=Disabled; remove prePull"}
	case len(imageSettings(spec)) == 0:
		return &Report{Reason: v1alpha1.ReasonPrePullUnavailable,
			Message: "no image is needed, because every sidecar declares another mode than Image with fallback Disabled; remove prePull"}
	case len(images) == 0:
		return &Report{Reason: v1alpha1.ReasonNoQuickExitImage,
			Message: "no quick-exit image is set; set image in the policy, or the operator's --quick-exit-image. Images of environment variables are not pulled"}
	}
	for _, settings := range imageSettings(spec) {
		if settings.Image == "" {
			continue
		}
		if err := s.Capabilities.Images.Check(settings.Image); err != nil {
			return &Report{Reason: v1alpha1.ReasonImageNotAllowed, Message: fmt.Sprintf("nothing is pulled, because quick-exit image %s is not allowed: %v; use one that "+
				"--allowed-quick-exit-image of the operator permits", settings.Image, err)}
		}
	}
	if s.namespace() == "" {
		return &Report{Reason: v1alpha1.ReasonPrePullUnavailable,
			Message: "the operator does not know its namespace, where the ImagePullJobs of cluster policies live; run it in the cluster, or set its --leader-election-namespace"}
	}
	if selector := spec.PrePull.NodeLabelSelector; selector != nil {
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			return &Report{Reason: v1alpha1.ReasonInvalidSelector, Message: fmt.Sprintf("parse spec.prePull.nodeLabelSelector: %s", err)}
		}
	}
	return nil
}

// namespace is where the policy's jobs and their pull secrets live.
func (s Situation) namespace() string {
	return cmp.Or(s.Policy.GetNamespace(), s.Namespace)
}

// Images returns the distinct quick-exit images that the policy may use, sorted.
func Images(spec *v1alpha1.PolicySpec, defaultImage string) []string {
	var images []string
	for _, settings := range imageSettings(spec) {
		if image := cmp.Or(settings.Image, defaultImage); image != "" {
			images = append(images, image)
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// imageSettings returns the settings of the policy that may use mode Image.
func imageSettings(spec *v1alpha1.PolicySpec) []resolve.Settings {
	return slices.DeleteFunc(resolve.SettingsOf(spec), func(s resolve.Settings) bool { return !s.MayUse(v1alpha1.ModeImage) })
}

// missing returns the wanted jobs that do not exist. A job that is being deleted still exists.
func missing(wanted []Job, existing []Existing) []Job {
	var create []Job
	for _, job := range wanted {
		if find(existing, job) == nil {
			create = append(create, job)
		}
	}
	return create
}

// unwanted returns the existing jobs that are not wanted.
func unwanted(wanted []Job, existing []Existing) []Existing {
	var remove []Existing
	for _, e := range existing {
		if !e.Deleted && !slices.ContainsFunc(wanted, e.is) {
			remove = append(remove, e)
		}
	}
	slices.SortFunc(remove, func(a, b Existing) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return remove
}

func find(existing []Existing, job Job) *Existing {
	for i := range existing {
		if existing[i].is(job) {
			return &existing[i]
		}
	}
	return nil
}

func (e Existing) is(job Job) bool {
	return e.Namespace == job.Namespace && e.Name == job.Name
}
