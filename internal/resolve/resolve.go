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
	DefaultMode               = v1alpha1.ModeAuto
	DefaultTerminationTimeout = 30 * time.Second
	DefaultFallback           = v1alpha1.FallbackEnabled
)

// Options are the operator's settings that resolution depends on.
type Options struct {
	// IgnoreEnv turns the environment variables off.
	IgnoreEnv bool
	// ExitCodes is the default of exitCodes. Empty means Ignore.
	ExitCodes v1alpha1.ExitCodes
	// Image is the default quick-exit image. It may be empty.
	Image string
	// QuickExitPaths is what Image covers.
	QuickExitPaths quickexit.Coverage
	// Sidecars are containers that a user of the command line declares as sidecars. The operator has none.
	Sidecars []string
}

// Sidecar is a container declared as a sidecar, with its effective settings.
type Sidecar struct {
	Container string
	Mode      v1alpha1.Mode
	Image     string // empty when no level has one
	// QuickExitPaths is what Image covers, according to the place that sets the image.
	QuickExitPaths quickexit.Coverage
	// ImageSource is the place that sets Image; empty when none does.
	ImageSource Source
	ExitCodes   v1alpha1.ExitCodes
	Drain       time.Duration
	Timeout     time.Duration
	Fallback    v1alpha1.Fallback
	// Policy is the policy that applies to the container, or nil when only its environment variables or Options.Sidecars do.
	Policy *PolicyRef
}

// View divides a pod's regular containers into sidecars and main containers.
type View struct {
	Sidecars []Sidecar // sorted by container
	Mains    []string  // in the pod's order
}

// Sidecar returns the sidecar with this container name, or nil.
func (v View) Sidecar(container string) *Sidecar {
	i := slices.IndexFunc(v.Sidecars, func(s Sidecar) bool { return s.Container == container })
	if i < 0 {
		return nil
	}
	return &v.Sidecars[i]
}

// Override means that Policy names a container that By applies to. There is one Override per overridden policy, not per
// container, so their number does not grow with policies times containers.
type Override struct {
	// Container is the first such container in the pod's order, and Others counts further ones.
	Container  string
	Others     int
	Policy, By PolicyRef
}

// Warning is about a declaration that has no effect.
type Warning struct {
	Container string
	Reason    v1alpha1.Reason
	Message   string
	Policy    *PolicyRef // the first policy that declares it; nil when the pod itself does
}

// Resolution is what the declarations mean for one pod.
type Resolution struct {
	// Enforced is the view that the operator acts on.
	Enforced View
	// DryRun is the view as if every DryRun policy were enforced; nil when none of them would apply to a container.
	DryRun *View
	// Overrides are the policies that name containers that other policies apply to.
	Overrides []Override
	// Warnings are in the pod's container order, regular containers first: at most one per container and reason. The last one
	// may be about an annotation that policies name.
	Warnings []Warning
}

// Resolve divides a pod's containers into main containers and sidecars. All policies must select the pod; their order
// does not matter. Resolve reads only the pod's namespace, labels, spec, and the annotations that policies name.
func Resolve(pod *corev1.Pod, selecting []Policy, options Options) Resolution {
	ordered := make([]declaration, 0, len(selecting))
	for i := range selecting {
		ordered = append(ordered, selecting[i].declare(pod))
	}
	slices.SortFunc(ordered, byPrecedence)
	enforced := slices.DeleteFunc(slices.Clone(ordered), func(d declaration) bool { return d.dryRun() })

	env := make([]envDeclaration, len(pod.Spec.Containers))
	var r Resolution
	for i := range pod.Spec.Containers {
		if !options.IgnoreEnv {
			env[i] = readEnv(&pod.Spec.Containers[i])
			r.Warnings = append(r.Warnings, env[i].warnings...)
		}
	}
	r.Warnings = append(r.Warnings, nativeSidecarWarnings(pod, ordered)...)
	r.Warnings = append(r.Warnings, invalidListWarnings(pod, ordered)...)
	r.Enforced = view(pod, enforced, env, options)
	r.Overrides = overrides(pod, enforced, false)
	if len(enforced) != len(ordered) {
		r.Overrides = append(r.Overrides, overrides(pod, ordered, true)...)
		if dryRun := view(pod, ordered, env, options); anyDryRun(dryRun.Sidecars, ordered) {
			r.DryRun = &dryRun
		}
	}
	return r
}

// view applies the policies, highest precedence first, and the environment variables to every regular container.
func view(pod *corev1.Pod, ordered []declaration, env []envDeclaration, options Options) View {
	var v View
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		applied := slices.IndexFunc(ordered, func(d declaration) bool { return d.names(name) })
		switch {
		case applied >= 0:
			v.Sidecars = append(v.Sidecars, mergeSettings(name, &ordered[applied].Policy, env[i].settings, options))
		case env[i].sidecar, slices.Contains(options.Sidecars, name):
			v.Sidecars = append(v.Sidecars, mergeSettings(name, nil, env[i].settings, options))
		default:
			v.Mains = append(v.Mains, name)
		}
	}
	slices.SortFunc(v.Sidecars, func(a, b Sidecar) int { return cmp.Compare(a.Container, b.Container) })
	return v
}

// mergeSettings merges the settings of one sidecar: the first layer that sets a field counts. Only a policy sets the deadline and
// the fallback, for all its sidecars.
func mergeSettings(container string, policy *Policy, env v1alpha1.TerminationSettings, options Options) Sidecar {
	s := Sidecar{Container: container, Timeout: DefaultTerminationTimeout, Fallback: DefaultFallback}
	if policy != nil {
		s.Policy, s.Fallback = &policy.Ref, cmp.Or(policy.Spec.Fallback, DefaultFallback)
		if deadline := policy.Spec.TerminationDeadlineSeconds; deadline != nil {
			s.Timeout = time.Duration(*deadline) * time.Second
		}
	}
	var drain *int32
	for _, layer := range layers(container, policy, env, options) {
		s.Mode = cmp.Or(s.Mode, layer.settings.Mode)
		if s.Image == "" && layer.settings.Image != "" {
			s.Image, s.QuickExitPaths, s.ImageSource = layer.settings.Image, layer.covers, layer.source
		}
		s.ExitCodes = cmp.Or(s.ExitCodes, layer.settings.ExitCodes)
		drain = cmp.Or(drain, layer.settings.DrainSeconds)
	}
	if drain != nil {
		s.Drain = time.Duration(*drain) * time.Second
	}
	return s
}

// overrides lists the overridden policies, in their order. With onlyDryRun it lists DryRun policies only, because a DryRun
// policy does not override an enforced one.
func overrides(pod *corev1.Pod, ordered []declaration, onlyDryRun bool) []Override {
	byPolicy := make([]Override, len(ordered))
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		var applied *declaration
		for j := range ordered {
			override := &byPolicy[j]
			switch {
			case !ordered[j].names(name):
			case applied == nil:
				applied = &ordered[j]
			case onlyDryRun && !ordered[j].dryRun():
			case override.Container == "":
				*override = Override{Container: name, Policy: ordered[j].Ref, By: applied.Ref}
			default:
				override.Others++
			}
		}
	}
	overridden := slices.DeleteFunc(byPolicy, func(o Override) bool { return o.Container == "" })
	if len(overridden) == 0 {
		return nil
	}
	return overridden
}

// anyDryRun reports whether a DryRun policy applies to one of the sidecars.
func anyDryRun(sidecars []Sidecar, policies []declaration) bool {
	return slices.ContainsFunc(policies, func(p declaration) bool {
		return p.dryRun() && slices.ContainsFunc(sidecars, func(s Sidecar) bool { return s.Policy != nil && *s.Policy == p.Ref })
	})
}

// nativeSidecarWarnings warns about init containers with restartPolicy Always that policies list under sidecars.
func nativeSidecarWarnings(pod *corev1.Pod, policies []declaration) []Warning {
	var warnings []Warning
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if !isNativeSidecar(container) {
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
					phrase(*first, others, "names", "name"), container.Name),
				Policy: first,
			})
		}
	}
	return warnings
}

// phrase returns a phrase such as "KIND/NAME and 2 more policies name".
func phrase(first PolicyRef, others int, singular, plural string) string {
	switch others {
	case 0:
		return fmt.Sprintf("%s %s", first, singular)
	case 1:
		return fmt.Sprintf("%s and 1 more policy %s", first, plural)
	}
	return fmt.Sprintf("%s and %d more policies %s", first, others, plural)
}
