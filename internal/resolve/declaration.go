// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
)

// Limits of the annotation that mainContainersFrom names. The admission policies of the component native have the same.
const (
	// MaxListedContainers is how many names it may have.
	MaxListedContainers = 32
	// MaxListBytes is its length in bytes: 32 names of the longest kind with a comma and some spaces each.
	MaxListBytes = 2560
)

// declaration is what a policy declares about the containers of one pod.
type declaration struct {
	Policy
	// listed are the main containers in the pod's annotation. alone means that the policy leaves the pod alone.
	listed []string
	alone  bool
}

func (p Policy) declare(pod *corev1.Pod) declaration {
	listed, reason, _ := p.listed(pod)
	return declaration{Policy: p, listed: listed, alone: reason != ""}
}

// names reports whether the policy makes the container a sidecar.
func (d declaration) names(container string) bool {
	if d.listsMains() {
		return !d.alone && !d.isMain(container)
	}
	return d.entry(container) != nil
}

func (d declaration) isMain(container string) bool {
	return !d.alone && (slices.Contains(d.Spec.MainContainers, v1alpha1.ContainerName(container)) || slices.Contains(d.listed, container))
}

// listsMains reports whether the policy names main containers instead of sidecars.
func (p Policy) listsMains() bool {
	return len(p.Spec.MainContainers) > 0 || p.Spec.MainContainersFrom != nil
}

// Names reports whether the policy makes the container a sidecar of the pod, which it must select.
func (p Policy) Names(pod *corev1.Pod, container string) bool {
	return p.declare(pod).names(container)
}

// NamesAny reports whether the policy makes any regular container a sidecar of the pod, which it must select.
func (p Policy) NamesAny(pod *corev1.Pod) bool {
	d := p.declare(pod)
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return d.names(c.Name) })
}

// NamesMain reports whether the policy, or the annotation that it names, lists the container as a main container of the pod.
func (p Policy) NamesMain(pod *corev1.Pod, container string) bool {
	return p.declare(pod).isMain(container)
}

// LeavesAlone returns why mainContainersFrom makes the policy leave the pod alone, or "" if it does not: the annotation is
// missing (ReasonMainContainersNotListed) or invalid (ReasonInvalidMainContainers). The message follows the policy's name.
//
// Only the second one is a Warning of a Resolution. A policy often selects pods that list no containers, and an event for each
// of them would say nothing new.
func (p Policy) LeavesAlone(pod *corev1.Pod) (reason v1alpha1.Reason, message string) {
	_, reason, message = p.listed(pod)
	if reason == v1alpha1.ReasonMainContainersNotListed {
		message = fmt.Sprintf("the pod has no annotation %s, or an empty one", p.Spec.MainContainersFrom.PodAnnotation)
	}
	return reason, message
}

// ListedMains returns the main containers that the pod lists for the policy, and whether its list is valid. It is valid for a
// policy without mainContainersFrom.
func (p Policy) ListedMains(pod *corev1.Pod) (names []string, valid bool) {
	names, reason, _ := p.listed(pod)
	return names, reason == ""
}

// listed returns the main containers in the annotation that the policy names, or why the policy leaves the pod alone. A native
// sidecar may be in the list: conversion makes one of a regular container. A message would be wasted on each pod without a list.
func (p Policy) listed(pod *corev1.Pod) (names []string, reason v1alpha1.Reason, message string) {
	if p.Spec.MainContainersFrom == nil {
		return nil, "", ""
	}
	key := p.Spec.MainContainersFrom.PodAnnotation
	value := pod.Annotations[key]
	switch {
	case len(value) > MaxListBytes:
		return nil, v1alpha1.ReasonInvalidMainContainers, fmt.Sprintf("annotation %s has more than %d bytes", key, MaxListBytes)
	case strings.TrimSpace(value) == "":
		return nil, v1alpha1.ReasonMainContainersNotListed, ""
	case strings.Count(value, ",") >= MaxListedContainers:
		return nil, v1alpha1.ReasonInvalidMainContainers, fmt.Sprintf("annotation %s lists more than %d containers", key, MaxListedContainers)
	}
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if !hasContainer(pod, name) {
			return nil, v1alpha1.ReasonInvalidMainContainers, fmt.Sprintf("annotation %s lists %.80q, which is no container of the pod", key, name)
		}
		names = append(names, name)
	}
	return names, "", ""
}

// hasContainer reports whether the pod has a regular container or native sidecar of this name.
func hasContainer(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }) ||
		slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name && isNativeSidecar(&c) })
}

func isNativeSidecar(container *corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// invalidListWarnings returns one warning about invalid lists of main containers, however many policies read them.
func invalidListWarnings(pod *corev1.Pod, policies []declaration) []Warning {
	var first *declaration
	message, others := "", 0
	for i := range policies {
		if !policies[i].alone {
			continue
		}
		switch reason, cause := policies[i].LeavesAlone(pod); {
		case reason != v1alpha1.ReasonInvalidMainContainers:
		case first == nil:
			first, message = &policies[i], cause
		default:
			others++
		}
	}
	if first == nil {
		return nil
	}
	return []Warning{{
		Reason:  v1alpha1.ReasonInvalidMainContainers,
		Message: fmt.Sprintf("%s the pod alone: %s", phrase(first.Ref, others, "leaves", "leave"), message),
		Policy:  &first.Ref,
	}}
}
