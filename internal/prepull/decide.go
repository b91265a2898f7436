// SPDX-License-Identifier: Apache-2.0

package prepull

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/imagelist"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Policy is the policy that the images are pulled for.
type Policy struct {
	Ref  resolve.PolicyRef
	UID  types.UID
	Spec *v1alpha1.PolicySpec
	// Deleted is true while the policy is being deleted.
	Deleted bool
}

// Situation is what a decision depends on.
type Situation struct {
	Policy Policy
	// Namespace is where the jobs of cluster policies live; empty when the operator does not know its own.
	Namespace string
	// DefaultImage is the quick-exit image where the policy has none, or empty.
	DefaultImage string
	// Images are the images that policies may name. That of the operator is permitted by the flag that names it.
	Images imagelist.List
	// ImageDisabled is true when the operator never swaps images, so that none is needed.
	ImageDisabled bool
	// Disabled is true when the operator may make no jobs and does not know of any.
	Disabled bool
	// Served is true while the cluster serves jobs.
	Served bool
	// Existing are the policy's jobs.
	Existing []Existing
	// Refusal is why OpenKruise did not take a job of the policy, or empty.
	Refusal string
	// Now is the time.
	Now time.Time
}

// changedAge is how old a job that somebody has changed must be to be made anew. Whoever changes every job would otherwise
// have images pulled to every node without end.
const changedAge = 10 * time.Minute

// Decision is what is to be done about a policy's jobs, and what there is to say. Lists are sorted.
type Decision struct {
	Create []Job
	Delete []Existing
	// RequeueAfter is when to look again even if nothing changes; zero means that a change will bring the policy back.
	RequeueAfter time.Duration
	// Report is nil while the policy has no prePull.
	Report *Report
}

// Report is the condition PrePulled without its type.
type Report struct {
	Holds   bool
	Reason  v1alpha1.Reason
	Message string
}

// obstacle is a reason for which nothing is pulled; the zero value means that there is none.
type obstacle struct {
	reason  v1alpha1.Reason
	message string
}

// Decide says which jobs are missing and which are too many. With an obstacle every job is too many.
func Decide(s Situation) Decision {
	if s.Disabled || !s.Served {
		return Decision{Report: s.unavailable()}
	}
	var decision Decision
	var wanted []Job
	if s.Policy.Spec.PrePull != nil && !s.Policy.Deleted {
		images := Images(s.Policy.Spec, s.DefaultImage)
		obstacle := s.obstacle(images)
		if obstacle.reason == "" {
			wanted = jobs(s.Policy, s.namespace(), images)
			decision.Report = report(wanted, s.Existing, s.Refusal)
		} else {
			decision.Report = &Report{Reason: obstacle.reason, Message: obstacle.message}
		}
	}
	decision.Create = missing(wanted, s.Existing)
	decision.Delete = s.superfluous(wanted)
	decision.RequeueAfter = s.untilAnew(wanted)
	return decision
}

// unavailable is all there is to say where no job can be seen.
func (s Situation) unavailable() *Report {
	switch {
	case s.Policy.Spec.PrePull == nil || s.Policy.Deleted:
		return nil
	case s.Disabled:
		return &Report{Reason: v1alpha1.ReasonPrePullUnavailable, Message: "the operator runs with --pre-pull=Disabled; images are pulled when they are needed"}
	default:
		return &Report{Reason: v1alpha1.ReasonPrePullUnavailable,
			Message: "OpenKruise does not serve ImagePullJobs in this cluster; install it, or remove prePull. Images are pulled when they are needed"}
	}
}

// obstacle is the first thing that stands in the way of pulling the images.
func (s Situation) obstacle(images []string) obstacle {
	for _, find := range []func(images []string) obstacle{
		s.dryRun, s.imagesNeverSwapped, s.noImageMode, s.noImage, s.forbiddenImage, s.noNamespace, s.invalidNodeSelector,
	} {
		if found := find(images); found.reason != "" {
			return found
		}
	}
	return obstacle{}
}

func (s Situation) dryRun([]string) obstacle {
	if s.Policy.Spec.Enforcement.Acts() {
		return obstacle{}
	}
	return obstacle{v1alpha1.ReasonDryRun, "nothing is pulled; set enforcement to Enforce to act"}
}

func (s Situation) imagesNeverSwapped([]string) obstacle {
	if !s.ImageDisabled {
		return obstacle{}
	}
	return obstacle{v1alpha1.ReasonImageDisabled, "no image is needed, for the operator runs with --image-swap=Disabled; remove prePull"}
}

func (s Situation) noImageMode([]string) obstacle {
	if slices.ContainsFunc(entries(s.Policy.Spec), mayUseImage) {
		return obstacle{}
	}
	return obstacle{v1alpha1.ReasonPrePullUnavailable,
		"no image is needed, for every sidecar declares another mode than Image with fallback Disabled; remove prePull"}
}

func (s Situation) noImage(images []string) obstacle {
	if len(images) > 0 {
		return obstacle{}
	}
	return obstacle{v1alpha1.ReasonNoQuickExitImage,
		"no quick-exit image is set; set image in the policy, or the operator's --quick-exit-image. Images of environment variables are not pulled"}
}

func (s Situation) forbiddenImage([]string) obstacle {
	for _, settings := range entries(s.Policy.Spec) {
		if settings.Image == "" || !mayUseImage(settings) {
			continue
		}
		if err := s.Images.Check(settings.Image); err != nil {
			return obstacle{v1alpha1.ReasonImageNotAllowed, fmt.Sprintf("nothing is pulled, for quick-exit image %s is not allowed: %v; use one that "+
				"--allowed-quick-exit-image and --quick-exit-image-digests of the operator permit", settings.Image, err)}
		}
	}
	return obstacle{}
}

func (s Situation) noNamespace([]string) obstacle {
	if s.namespace() != "" {
		return obstacle{}
	}
	return obstacle{v1alpha1.ReasonPrePullUnavailable,
		"the operator does not know its namespace, where the ImagePullJobs of cluster policies live; set --pre-pull-namespace"}
}

func (s Situation) invalidNodeSelector([]string) obstacle {
	selector := s.Policy.Spec.PrePull.NodeSelector
	if selector == nil {
		return obstacle{}
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return obstacle{v1alpha1.ReasonInvalidSelector, fmt.Sprintf("parse spec.prePull.nodeSelector: %s", err)}
	}
	return obstacle{}
}

// namespace is where the policy's jobs live, where their pull secrets are.
func (s Situation) namespace() string {
	return cmp.Or(s.Policy.Ref.Namespace, s.Namespace)
}

// Images returns the distinct quick-exit images, sorted, that the policy can lead to.
func Images(spec *v1alpha1.PolicySpec, defaultImage string) []string {
	var images []string
	for _, settings := range entries(spec) {
		if image := cmp.Or(settings.Image, defaultImage); image != "" && mayUseImage(settings) {
			images = append(images, image)
		}
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// entries returns the policy's settings for each of its sidecars; with mainContainers they are those of the policy.
func entries(spec *v1alpha1.PolicySpec) []v1alpha1.TerminationSettings {
	if len(spec.Sidecars) == 0 {
		return []v1alpha1.TerminationSettings{spec.TerminationSettings}
	}
	var all []v1alpha1.TerminationSettings
	for _, sidecar := range spec.Sidecars {
		all = append(all, v1alpha1.TerminationSettings{
			Mode:     cmp.Or(sidecar.Mode, spec.Mode),
			Image:    cmp.Or(sidecar.Image, spec.Image),
			Fallback: cmp.Or(sidecar.Fallback, spec.Fallback),
		})
	}
	return all
}

// mayUseImage reports whether mode Image is declared or may take another's place. Where the policy declares no mode, an
// environment variable may. A mode that this version does not know is none of Image, and a fallback none of Enabled.
func mayUseImage(settings v1alpha1.TerminationSettings) bool {
	switch settings.Mode {
	case "", v1alpha1.ModeAuto, v1alpha1.ModeImage:
		return true
	}
	return cmp.Or(settings.Fallback, v1alpha1.FallbackEnabled) == v1alpha1.FallbackEnabled
}

// missing returns the wanted jobs of which none exists. One that is being deleted keeps its name until it has gone.
func missing(wanted []Job, existing []Existing) []Job {
	var create []Job
	for _, job := range wanted {
		if find(existing, job) == nil {
			create = append(create, job)
		}
	}
	return create
}

// superfluous returns the jobs that are not wanted, and those that somebody has changed a while after they were made, which
// are made anew.
func (s Situation) superfluous(wanted []Job) []Existing {
	var remove []Existing
	for _, e := range s.Existing {
		isWanted := slices.ContainsFunc(wanted, e.is)
		if !e.Deleted && (!isWanted || e.Changed && s.untilOld(e) <= 0) {
			remove = append(remove, e)
		}
	}
	slices.SortFunc(remove, func(a, b Existing) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return remove
}

// untilAnew returns the time until the next wanted job that somebody has changed is made anew, or zero where there is none.
func (s Situation) untilAnew(wanted []Job) time.Duration {
	var next time.Duration
	for _, e := range s.Existing {
		wait := s.untilOld(e)
		if e.Changed && !e.Deleted && wait > 0 && slices.ContainsFunc(wanted, e.is) && (next == 0 || wait < next) {
			next = wait
		}
	}
	return next
}

func (s Situation) untilOld(e Existing) time.Duration {
	return e.Created.Add(changedAge).Sub(s.Now)
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
