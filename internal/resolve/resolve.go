// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
)

// The operator's defaults for settings that no policy and no environment variable has.
const (
	DefaultMode                = v1alpha1.ModeAuto
	DefaultTerminationDeadline = 30 * time.Second
	DefaultFallback            = v1alpha1.FallbackEnabled
)

// Options are the operator's settings that bear on resolution.
type Options struct {
	// IgnoreEnv turns the environment variables off.
	IgnoreEnv bool
	// ExitCodes is the default of exitCodes. Empty means Ignore.
	ExitCodes v1alpha1.ExitCodes
	// Image is the default quick-exit image. It may be empty.
	Image string
	// QuickExitPaths is what Image covers.
	QuickExitPaths quickexit.Coverage
}

// Target is a sidecar with its effective settings.
type Target struct {
	Container string
	Mode      v1alpha1.Mode
	Image     string // empty when no level has one
	// QuickExitPaths is what Image covers, as the place that gives the image says.
	QuickExitPaths quickexit.Coverage
	// ImageSource is the place that Image comes from; empty when no level has one.
	ImageSource Source
	ExitCodes   v1alpha1.ExitCodes
	Drain       time.Duration
	Deadline    time.Duration
	Fallback    v1alpha1.Fallback
	// Policy is the policy that governs the container, or nil when only its environment variables do.
	Policy *PolicyRef
}

// View is a pod's regular containers, told apart.
type View struct {
	Targets []Target // sorted by container
	Mains   []string // in the pod's order
}

// Target returns what is to be done with the container, or nil when it is no sidecar.
func (v View) Target(container string) *Target {
	i := slices.IndexFunc(v.Targets, func(t Target) bool { return t.Container == container })
	if i < 0 {
		return nil
	}
	return &v.Targets[i]
}

// Loss says that Loser names a container over which Winner decides. There is one for each such policy, however many
// containers it names, so that their number does not grow with policies times containers.
type Loss struct {
	// Container is the first of them in the pod's order, and Others how many more there are.
	Container     string
	Others        int
	Loser, Winner PolicyRef
}

// Warning is a declaration that has no effect and that its author should know of.
type Warning struct {
	Container string
	Reason    v1alpha1.Reason
	Message   string
	Policy    *PolicyRef // the first that is meant; nil when it is the pod's own declaration
}

// Resolution is what the declarations mean for one pod.
type Resolution struct {
	// Enforced is what counts for acting on the pod.
	Enforced View
	// DryRun is what would count if every DryRun policy were enforced; nil when none of them would decide over a
	// container of the pod.
	DryRun *View
	// Losses are the policies that name containers over which others decide.
	Losses []Loss
	// Warnings are in the pod's container order, regular containers first. However many policies are meant, there is one
	// for a container and reason.
	Warnings []Warning
}

// Resolve tells a pod's main containers from its sidecars. Policies must all select the pod; their order is of no
// account. Only the pod's labels, namespace and spec are read.
func Resolve(pod *corev1.Pod, selecting []Policy, options Options) Resolution {
	ordered := slices.Clone(selecting)
	slices.SortFunc(ordered, byPrecedence)
	enforced := slices.DeleteFunc(slices.Clone(ordered), Policy.dryRun)

	env := make([]envDeclaration, len(pod.Spec.Containers))
	var r Resolution
	for i := range pod.Spec.Containers {
		if !options.IgnoreEnv {
			env[i] = readEnv(&pod.Spec.Containers[i])
			r.Warnings = append(r.Warnings, env[i].warnings...)
		}
	}
	r.Warnings = append(r.Warnings, nativeSidecarWarnings(pod, ordered)...)
	r.Enforced = view(pod, enforced, env, options)
	r.Losses = losses(pod, enforced, false)
	if len(enforced) < len(ordered) {
		r.Losses = append(r.Losses, losses(pod, ordered, true)...)
		if dryRun := view(pod, ordered, env, options); anyDryRun(dryRun.Targets, ordered) {
			r.DryRun = &dryRun
		}
	}
	return r
}

// view applies policies, winner first, and environment variables to every regular container.
func view(pod *corev1.Pod, ordered []Policy, env []envDeclaration, options Options) View {
	var v View
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		winner := slices.IndexFunc(ordered, func(p Policy) bool { return p.Names(name) })
		switch {
		case winner >= 0:
			v.Targets = append(v.Targets, target(name, &ordered[winner], env[i].settings, options))
		case env[i].sidecar:
			v.Targets = append(v.Targets, target(name, nil, env[i].settings, options))
		default:
			v.Mains = append(v.Mains, name)
		}
	}
	slices.SortFunc(v.Targets, func(a, b Target) int { return cmp.Compare(a.Container, b.Container) })
	return v
}

// target merges the settings of one sidecar, first place first.
func target(container string, policy *Policy, env v1alpha1.TerminationSettings, options Options) Target {
	t := Target{Container: container, Deadline: DefaultTerminationDeadline}
	if policy != nil {
		t.Policy = &policy.Ref
	}
	var drain, deadline *int32
	for _, layer := range layers(container, policy, env, options) {
		t.Mode = cmp.Or(t.Mode, layer.settings.Mode)
		if t.Image == "" && layer.settings.Image != "" {
			t.Image, t.QuickExitPaths, t.ImageSource = layer.settings.Image, layer.covers, layer.source
		}
		t.ExitCodes = cmp.Or(t.ExitCodes, layer.settings.ExitCodes)
		t.Fallback = cmp.Or(t.Fallback, layer.settings.Fallback)
		drain = cmp.Or(drain, layer.settings.DrainSeconds)
		deadline = cmp.Or(deadline, layer.settings.TerminationDeadlineSeconds)
	}
	if drain != nil {
		t.Drain = time.Duration(*drain) * time.Second
	}
	if deadline != nil {
		t.Deadline = time.Duration(*deadline) * time.Second
	}
	return t
}

// losses lists the policies that name containers without winning them, in their order. With onlyDryRun it lists the losses of
// DryRun policies only: an enforced policy loses nothing to one that is not enforced.
func losses(pod *corev1.Pod, ordered []Policy, onlyDryRun bool) []Loss {
	ofPolicies := make([]Loss, len(ordered))
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		var winner *Policy
		for j := range ordered {
			loss := &ofPolicies[j]
			switch {
			case !ordered[j].Names(name):
			case winner == nil:
				winner = &ordered[j]
			case onlyDryRun && !ordered[j].dryRun():
			case loss.Container == "":
				*loss = Loss{Container: name, Loser: ordered[j].Ref, Winner: winner.Ref}
			default:
				loss.Others++
			}
		}
	}
	lost := slices.DeleteFunc(ofPolicies, func(loss Loss) bool { return loss.Container == "" })
	if len(lost) == 0 {
		return nil
	}
	return lost
}

// anyDryRun reports whether a DryRun policy governs one of the targets.
func anyDryRun(targets []Target, policies []Policy) bool {
	return slices.ContainsFunc(policies, func(p Policy) bool {
		return p.dryRun() && slices.ContainsFunc(targets, func(t Target) bool { return t.Policy != nil && *t.Policy == p.Ref })
	})
}

// nativeSidecarWarnings finds init containers with restartPolicy Always that policies name by hand.
func nativeSidecarWarnings(pod *corev1.Pod, policies []Policy) []Warning {
	var warnings []Warning
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if container.RestartPolicy == nil || *container.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue
		}
		var first *PolicyRef
		others := 0
		for j := range policies {
			switch {
			case policies[j].entry(container.Name) == nil:
			case first == nil:
				first = &policies[j].Ref
			default:
				others++
			}
		}
		if first != nil {
			warnings = append(warnings, Warning{
				Container: container.Name,
				Reason:    v1alpha1.ReasonNativeSidecar,
				Message: fmt.Sprintf("%s container %s, which is a native sidecar (an init container with restartPolicy Always): Kubernetes ends it itself",
					whoNames(*first, others), container.Name),
				Policy: first,
			})
		}
	}
	return warnings
}

// whoNames says that a policy names something, and how many more do.
func whoNames(first PolicyRef, others int) string {
	switch others {
	case 0:
		return fmt.Sprintf("%s names", first)
	case 1:
		return fmt.Sprintf("%s and 1 more policy name", first)
	}
	return fmt.Sprintf("%s and %d more policies name", first, others)
}
