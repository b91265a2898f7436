// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Role is what a container is to the operator.
type Role string

// The roles. Regular containers are main containers or sidecars, and no policy changes the role of the others.
const (
	RoleMain          Role = "Main"
	RoleSidecar       Role = "Sidecar"
	RoleInit          Role = "Init"
	RoleNativeSidecar Role = "NativeSidecar"
)

// Role returns the role that the policy gives a regular container of the pod, which it must select, or "" if it says nothing about
// the container.
//
// A policy with sidecars makes a sidecar of each container that it names, and of injected ones if it includes them. A policy with
// mainContainers gives a role to every container, but says nothing about a pod that has none of its main containers.
func (p Policy) Role(pod *corev1.Pod, container string, options Options) Role {
	return p.rolesIn(pod, options).of(container)
}

// GivesRoles reports whether the policy gives any regular container of the pod a role.
func (p Policy) GivesRoles(pod *corev1.Pod, options Options) bool {
	roles := p.rolesIn(pod, options)
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return roles.of(c.Name) != "" })
}

// roles are those that a policy gives the containers of one pod.
type roles struct {
	Policy
	applies  bool
	injected []string // the containers that the policy includes without a name
}

func (p Policy) rolesIn(pod *corev1.Pod, options Options) roles {
	r := roles{Policy: p, applies: true}
	switch {
	case len(p.Spec.MainContainers) > 0:
		r.applies = slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return p.namesMain(c.Name) })
	case p.Spec.IncludeInjected:
		r.injected = options.Injected
	}
	return r
}

func (r roles) of(container string) Role {
	switch {
	case !r.applies:
		return ""
	case r.namesMain(container):
		return RoleMain
	case len(r.Spec.MainContainers) > 0, r.entry(container) != nil, slices.Contains(r.injected, container):
		return RoleSidecar
	}
	return ""
}

// Injected returns the regular containers of the pod that its Job's template lacks: Options.Injected. It returns none without a template,
// and none for a pod that lacks a container of the template. A webhook may have renamed it, and then it is no injected one.
func Injected(pod *corev1.Pod, template []string) []string {
	var injected []string
	for i := range pod.Spec.Containers {
		if name := pod.Spec.Containers[i].Name; !slices.Contains(template, name) {
			injected = append(injected, name)
		}
	}
	if len(template) == 0 || len(injected)+len(template) != len(pod.Spec.Containers) {
		return nil
	}
	return injected
}

func (p Policy) namesMain(container string) bool {
	return slices.Contains(p.Spec.MainContainers, v1alpha1.ContainerName(container))
}

// entry returns the policy's entry for the container, or nil. The container's own name comes first, then the longest pattern, then
// the first by name, so that the order of entries does not matter.
func (p Policy) entry(container string) *v1alpha1.Sidecar {
	var found *v1alpha1.Sidecar
	for i := range p.Spec.Sidecars {
		entry := &p.Spec.Sidecars[i]
		if entry.Name == container {
			return entry
		}
		if Matches(entry.Name, container) && (found == nil || precedes(entry.Name, found.Name)) {
			found = entry
		}
	}
	return found
}

// precedes orders patterns: the longer one comes first, then the first by name.
func precedes(a, b string) bool {
	return len(a) > len(b) || len(a) == len(b) && a < b
}

// Matches reports whether the name of an entry, in which each * stands for any characters, matches the name of a container. It takes
// time linear in both for each star.
func Matches(pattern, container string) bool {
	prefix, rest, starred := strings.Cut(pattern, "*")
	if !starred {
		return pattern == container
	}
	container, matches := strings.CutPrefix(container, prefix)
	for matches {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(container, part)
		}
		_, container, matches = strings.Cut(container, part)
		rest = next
	}
	return false
}

// Limits of the annotation v1alpha1.AnnotationSidecars.
const (
	// maxListed is how many names it may have.
	maxListed = 32
	// MaxListBytes is its length in bytes: 32 names of the longest kind with a comma and some spaces each.
	MaxListBytes = 2560
)

// readAnnotation returns the containers that the pod's annotation declares as sidecars. As in a policy, a name that the pod does not have
// is ignored. An annotation beyond the limits declares none.
func readAnnotation(pod *corev1.Pod) (names []string, warnings []Warning) {
	value := pod.Annotations[v1alpha1.AnnotationSidecars]
	var invalid string
	switch {
	case strings.TrimSpace(value) == "":
		return nil, nil
	case len(value) > MaxListBytes:
		invalid = fmt.Sprintf("it has more than %d bytes", MaxListBytes)
	case strings.Count(value, ",") >= maxListed:
		invalid = fmt.Sprintf("it lists more than %d containers", maxListed)
	default:
		for name := range strings.SplitSeq(value, ",") {
			names = append(names, strings.TrimSpace(name))
		}
		return names, nil
	}
	return nil, []Warning{{Reason: v1alpha1.ReasonInvalidSidecars, Message: "annotation " + v1alpha1.AnnotationSidecars + " declares no sidecar: " + invalid}}
}

// Listed returns the names in the pod's annotation. An annotation beyond the limits has none.
func Listed(pod *corev1.Pod) []string {
	names, _ := readAnnotation(pod)
	return names
}

// IsNativeSidecar reports whether the init container is a native sidecar: Kubernetes ends it after the regular containers.
func IsNativeSidecar(container *corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
