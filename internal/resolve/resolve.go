// SPDX-License-Identifier: Apache-2.0

// Package resolve decides which containers of a pod are sidecars, with which settings, and which policies are overridden.
//
// The first that classifies a regular container decides its role: policies in order of precedence, then the pod's annotation, then
// OpenKruise's environment variables on the container. Every container that none of them classifies is a main container. Among the
// policies that select the pod, a namespaced one takes precedence over a cluster policy, then the higher priority, then the older
// policy, then the first name. Each setting of a sidecar comes from the first place that sets it: the entry and then the spec of each
// policy that declares the sidecar, the container's environment variables, the operator's default.
//
// The package is pure: it imports no client, logger or clock, and the same input gives the same output, in the same
// order. Package plan decides what to do with the result.
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

// Options are the operator's settings that resolution depends on, and what is known about the pod besides the pod itself.
type Options struct {
	// IgnoreEnv turns the environment variables off.
	IgnoreEnv bool
	// ExitCodePolicy is the default of exitCodePolicy. Empty means Ignore.
	ExitCodePolicy v1alpha1.ExitCodePolicy
	// Image is the default quick-exit image. It may be empty.
	Image string
	// QuickExitPaths is what Image covers.
	QuickExitPaths quickexit.Coverage
	// Sidecars are containers that a user of the command line declares as sidecars. The operator has none.
	Sidecars []string
	// Injected are the containers of the pod that the pod template of its Job lacks: see Injected.
	Injected []string
	// NamespaceLabels are the labels of the pod's namespace.
	NamespaceLabels map[string]string
	// NoOptOut makes the label v1alpha1.LabelIgnore have no effect.
	NoOptOut bool
}

// Sidecar is a container declared as a sidecar, with its effective settings.
type Sidecar struct {
	Container string
	Mode      v1alpha1.Mode
	Image     string // empty when no level has one
	// QuickExitPaths is what Image covers, according to the place that sets the image.
	QuickExitPaths quickexit.Coverage
	ExitCodePolicy v1alpha1.ExitCodePolicy
	Drain          time.Duration
	// Order is terminationOrder.
	Order    int32
	Timeout  time.Duration
	Fallback v1alpha1.Fallback
	// Origins say where each setting comes from.
	Origins Origins
	// DeclaredBy is what declares the container a sidecar: SourcePolicy, SourceEnvironment or SourceAnnotation.
	DeclaredBy Source
	// Policy is the first policy that declares the container a sidecar, or nil when only the pod itself or Options.Sidecars does.
	Policy *PolicyRef
}

// View divides a pod's regular containers into sidecars and main containers.
type View struct {
	Sidecars []Sidecar // sorted by container
	Mains    []string  // in the pod's order
	// MainPolicies are the policies that declare main containers, by container. Nil if none does.
	MainPolicies map[string]PolicyRef
	// Policies are those that declare one of the sidecars, in their order.
	Policies []PolicyRef
}

// Sidecar returns the sidecar with this container name, or nil.
func (v View) Sidecar(container string) *Sidecar {
	i := slices.IndexFunc(v.Sidecars, func(s Sidecar) bool { return s.Container == container })
	if i < 0 {
		return nil
	}
	return &v.Sidecars[i]
}

// Override means that Policy declares something about a container that By declares otherwise. There is one Override per overridden
// policy, not per container, so their number does not grow with policies times containers.
type Override struct {
	// Container is the first such container in the pod's order, and Others counts further ones.
	Container  string
	Others     int
	Policy, By PolicyRef
	// Lost is what Policy declares in vain for Container: LostRole, or the names of fields, separated by commas.
	Lost string
}

// LostRole is the value of Override.Lost for the role of a container.
const LostRole = "the role"

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
	// DryRun is the view as if every DryRun policy were enforced; nil when none of them would declare a sidecar.
	DryRun *View
	// Overrides are the policies that declare something that other policies declare otherwise.
	Overrides []Override
	// Warnings are in the pod's container order, regular containers first: at most one per container and reason. The last one
	// may be about the pod's annotation.
	Warnings []Warning
}

// podDeclarations is what a pod itself declares.
type podDeclarations struct {
	env      []envDeclaration // one for each regular container
	sidecars []string         // in the annotation
}

// OptedOut reports whether a label of the pod or its namespace keeps the operator away.
func OptedOut(pod *corev1.Pod, options Options) bool {
	return !options.NoOptOut && (pod.Labels[v1alpha1.LabelIgnore] == "true" || options.NamespaceLabels[v1alpha1.LabelIgnore] == "true")
}

// Resolve divides a pod's containers into main containers and sidecars. All policies must select the pod; their order
// does not matter. Resolve reads only the pod's namespace, labels, spec and the annotation v1alpha1.AnnotationSidecars.
func Resolve(pod *corev1.Pod, selecting []Policy, options Options) Resolution {
	if OptedOut(pod, options) {
		return Resolution{Enforced: view(pod, nil, podDeclarations{env: make([]envDeclaration, len(pod.Spec.Containers))}, Options{})}
	}
	ordered := make([]roles, 0, len(selecting))
	for i := range selecting {
		ordered = append(ordered, selecting[i].rolesIn(pod, options))
	}
	slices.SortFunc(ordered, byPrecedence)
	enforced := slices.DeleteFunc(slices.Clone(ordered), func(r roles) bool { return r.dryRun() })

	var r Resolution
	declared := podDeclarations{env: make([]envDeclaration, len(pod.Spec.Containers))}
	for i := range pod.Spec.Containers {
		if !options.IgnoreEnv {
			declared.env[i] = readEnv(&pod.Spec.Containers[i])
			r.Warnings = append(r.Warnings, declared.env[i].warnings...)
		}
	}
	r.Warnings = append(r.Warnings, nativeSidecarWarnings(pod, ordered)...)
	var ofAnnotation []Warning
	declared.sidecars, ofAnnotation = readAnnotation(pod)
	r.Warnings = append(r.Warnings, ofAnnotation...)
	r.Enforced = view(pod, enforced, declared, options)
	r.Overrides = append(r.Overrides, overrides(pod, enforced, false)...)
	if len(enforced) != len(ordered) {
		r.Overrides = append(r.Overrides, overrides(pod, ordered, true)...)
		dryRun := view(pod, ordered, declared, options)
		if slices.ContainsFunc(ordered, func(r roles) bool { return r.dryRun() && slices.Contains(dryRun.Policies, r.Ref) }) {
			r.DryRun = &dryRun
		}
	}
	return r
}

// view gives every regular container its role, and every sidecar its settings. The policies come highest precedence first.
func view(pod *corev1.Pod, ordered []roles, declared podDeclarations, options Options) View {
	var v View
	declares := make([]bool, len(ordered))
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		role, first, declaring := roleOf(name, ordered, declares)
		byPod := declared.env[i].sidecar || slices.Contains(declared.sidecars, name) || slices.Contains(options.Sidecars, name)
		if role == RoleSidecar || role == "" && byPod {
			sidecar := merge(name, layers(name, declaring, declared.env[i].settings, options))
			switch sidecar.Policy = first; {
			case first != nil:
				sidecar.DeclaredBy = SourcePolicy
			case declared.env[i].sidecar:
				sidecar.DeclaredBy = SourceEnvironment
			default:
				sidecar.DeclaredBy = SourceAnnotation
			}
			v.Sidecars = append(v.Sidecars, sidecar)
			continue
		}
		v.Mains = append(v.Mains, name)
		if first != nil {
			if v.MainPolicies == nil {
				v.MainPolicies = map[string]PolicyRef{}
			}
			v.MainPolicies[name] = *first
		}
	}
	slices.SortFunc(v.Sidecars, func(a, b Sidecar) int { return cmp.Compare(a.Container, b.Container) })
	for j := range ordered {
		if declares[j] {
			v.Policies = append(v.Policies, ordered[j].Ref)
		}
	}
	return v
}

// roleOf returns the role of the container by the policies, which come highest precedence first, the first one that says it, and those that
// declare a sidecar. It notes the latter in declares, by their place.
func roleOf(container string, ordered []roles, declares []bool) (role Role, first *PolicyRef, declaring []Policy) {
	for j := range ordered {
		of := ordered[j].of(container)
		if role == "" && of != "" {
			role, first = of, &ordered[j].Ref
		}
		if role == RoleSidecar && of == RoleSidecar {
			declares[j], declaring = true, append(declaring, ordered[j].Policy)
		}
	}
	return role, first, declaring
}

// overrides lists the overridden policies, in their order. With onlyDryRun it lists DryRun policies only, because a DryRun
// policy does not override an enforced one.
func overrides(pod *corev1.Pod, ordered []roles, onlyDryRun bool) []Override {
	byPolicy := make([]Override, len(ordered))
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		var role Role
		var first PolicyRef
		var effective fieldOwners
		for j := range ordered {
			policy := &ordered[j]
			of, lost, by := policy.of(name), "", first
			switch {
			case of == "":
				continue
			case role == "":
				role, first = of, policy.Ref
			case of != role:
				lost = LostRole
			}
			if of == RoleSidecar && of == role {
				lost, by = effective.add(name, policy.Policy)
			}
			override := &byPolicy[j]
			switch {
			case lost == "", onlyDryRun && !policy.dryRun():
			case override.Container == "":
				*override = Override{Container: name, Policy: policy.Ref, By: by, Lost: lost}
			default:
				override.Others++
			}
		}
	}
	return slices.DeleteFunc(byPolicy, func(o Override) bool { return o.Container == "" })
}

// nativeSidecarWarnings warns about init containers with restartPolicy Always that policies list under sidecars.
func nativeSidecarWarnings(pod *corev1.Pod, policies []roles) []Warning {
	var warnings []Warning
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if !IsNativeSidecar(container) {
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
					naming(*first, others), container.Name),
				Policy: first,
			})
		}
	}
	return warnings
}

// naming returns a phrase such as "KIND/NAME and 2 more policies name".
func naming(first PolicyRef, others int) string {
	switch others {
	case 0:
		return fmt.Sprintf("%s names", first)
	case 1:
		return fmt.Sprintf("%s and 1 more policy name", first)
	}
	return fmt.Sprintf("%s and %d more policies name", first, others)
}
