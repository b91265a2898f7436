// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// Environment is the requester of containers that environment variables declare.
const Environment = "Environment"

// Options are the settings of the admission policies.
type Options struct {
	// Environment converts containers that environment variables declare in the pod's namespace.
	Environment bool
	// IgnoreEnv is true where the operator reads no environment variables. It rules out Environment.
	IgnoreEnv bool
	// ExitCodes is the default of exitCodes. Empty means Ignore.
	ExitCodes v1alpha1.ExitCodes
	// AsEnforced treats a DryRun policy like an enforced one, to report what it would do.
	AsEnforced bool
	// VirtualNodes recognizes pods for virtual nodes.
	VirtualNodes VirtualNodeMarks
}

// Conversion is a container to convert.
type Conversion struct {
	Container string
	// By is the policy that asks for it as KIND/NAME, or Environment; the first in alphabetical order if several ask.
	By string
}

// Exclusion is a container that stays a regular one although somebody asks for its conversion.
type Exclusion struct {
	Container string
	By        string
	Reason    v1alpha1.Reason
	Message   string
}

// Decision says what happens to the containers of a pod when it is created.
type Decision struct {
	// Conversions are the containers to convert, in the pod's order.
	Conversions []Conversion
	// Exclusions are in the pod's order. They are empty if Reason applies to the whole pod.
	Exclusions []Exclusion
	// Reason is ReasonConvertedToNative if there are conversions; otherwise it says why there are none. Message puts it
	// into words.
	Reason  v1alpha1.Reason
	Message string
}

// Converts reports whether the container is converted.
func (d Decision) Converts(container string) bool {
	return slices.ContainsFunc(d.Conversions, func(c Conversion) bool { return c.Container == container })
}

// Decide says which containers of a pod become native sidecars when it is created. All policies must select the pod;
// their order does not matter. Decide reads the pod's metadata and spec as they are before conversion. Policies have no
// precedence here: a container is converted if one of them asks for it.
func Decide(pod *corev1.Pod, namespaceLabels map[string]string, selecting []resolve.Policy, options Options) Decision {
	requests := requestsFor(pod, selecting, options)
	if len(requests) == 0 {
		return Decision{Reason: v1alpha1.ReasonConversionNotRequested, Message: "no policy asks for conversion to native sidecars"}
	}
	for _, gate := range gates {
		if reason, message := gate(pod, namespaceLabels, options); reason != "" {
			return Decision{Reason: reason, Message: message}
		}
	}
	var d Decision
	hasMain := false
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		wants, excluded, declared := ask(requests, container, options)
		hasMain = hasMain || !declared
		switch {
		case wants == nil && excluded != nil:
			d.Exclusions = append(d.Exclusions, *excluded)
		case wants != nil && hasRestartRules(container):
			d.Exclusions = append(d.Exclusions, Exclusion{
				Container: container.Name, By: wants.By, Reason: v1alpha1.ReasonRestartRules,
				Message: fmt.Sprintf("container %s has a restartPolicy or restartPolicyRules of its own", container.Name),
			})
		case wants != nil:
			d.Conversions = append(d.Conversions, *wants)
		}
	}
	return d.conclude(pod, hasMain)
}

// conclude adds the reason, and drops the conversions of a pod without a main container.
func (d Decision) conclude(pod *corev1.Pod, hasMain bool) Decision {
	switch {
	case len(d.Conversions) == 0 && len(d.Exclusions) > 0:
		d.Reason, d.Message = d.Exclusions[0].Reason, d.Exclusions[0].Message
	case len(d.Conversions) == 0:
		d.Reason = v1alpha1.ReasonConversionNotRequested
		d.Message = "the policies that ask for conversion to native sidecars name no container of the pod"
	case !hasMain:
		return Decision{Reason: v1alpha1.ReasonNoMainContainer, Message: fmt.Sprintf(
			"every container (%s) is declared a sidecar, so nothing is converted; leave at least one container undeclared",
			strings.Join(names(pod), ", "))}
	default:
		d.Reason = v1alpha1.ReasonConvertedToNative
		d.Message = fmt.Sprintf("converted to native sidecars: %s", strings.Join(d.converted(), ", "))
	}
	return d
}

func (d Decision) converted() []string {
	var texts []string
	for _, c := range d.Conversions {
		texts = append(texts, fmt.Sprintf("%s by %s", c.Container, c.By))
	}
	return texts
}

// ask returns the conversion of the container that the requests lead to, why it is excluded, and whether a request
// declares it a sidecar. Of several requests the first by name counts.
func ask(requests []request, container *corev1.Container, options Options) (wants *Conversion, excluded *Exclusion, declared bool) {
	for _, r := range requests {
		answer := r.answerFor(container, options)
		declared = declared || answer.declared
		switch {
		case answer.wanted && wants == nil:
			wants = &Conversion{Container: container.Name, By: r.by}
		case answer.reason != "" && excluded == nil:
			excluded = &Exclusion{Container: container.Name, By: r.by, Reason: answer.reason, Message: answer.message}
		}
	}
	return wants, excluded, declared
}

func names(pod *corev1.Pod) []string {
	var all []string
	for i := range pod.Spec.Containers {
		all = append(all, pod.Spec.Containers[i].Name)
	}
	return all
}

func hasRestartRules(container *corev1.Container) bool {
	return container.RestartPolicy != nil || len(container.RestartPolicyRules) > 0
}
