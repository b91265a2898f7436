// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
)

// Source is the place that a setting of a sidecar comes from.
type Source string

// The places, in the order in which they are asked.
const (
	SourceEntry       Source = "PolicyEntry"
	SourcePolicy      Source = "Policy"
	SourceEnvironment Source = "Environment"
	SourceOperator    Source = "OperatorFlag"
	SourceDefault     Source = "Default"
)

// Sources say where each setting of a sidecar comes from.
type Sources struct {
	Mode, Image, QuickExitPaths, ExitCodes, Drain, Deadline, Fallback Source
}

// SourcesOf returns where the settings of the target come from, given what Resolve was given when it made the target.
func SourcesOf(pod *corev1.Pod, selecting []Policy, options Options, target Target) Sources {
	var env v1alpha1.TerminationSettings
	for i := range pod.Spec.Containers {
		if container := &pod.Spec.Containers[i]; container.Name == target.Container && !options.IgnoreEnv {
			env = readEnv(container).settings
		}
	}
	var policy *Policy
	if i := slices.IndexFunc(selecting, func(p Policy) bool { return target.Policy != nil && p.Ref == *target.Policy }); i >= 0 {
		policy = &selecting[i]
	}
	all := layers(target.Container, policy, env, options)
	first := func(set func(v1alpha1.TerminationSettings) bool) Source {
		if i := slices.IndexFunc(all, func(l layer) bool { return set(l.settings) }); i >= 0 {
			return all[i].source
		}
		return SourceDefault
	}
	image := first(func(s v1alpha1.TerminationSettings) bool { return s.Image != "" })
	paths := image
	if target.QuickExitPaths.IsZero() {
		paths = SourceDefault
	}
	return Sources{
		Mode:  first(func(s v1alpha1.TerminationSettings) bool { return s.Mode != "" }),
		Image: image, QuickExitPaths: paths,
		ExitCodes: first(func(s v1alpha1.TerminationSettings) bool { return s.ExitCodes != "" }),
		Drain:     first(func(s v1alpha1.TerminationSettings) bool { return s.DrainSeconds != nil }),
		Deadline:  first(func(s v1alpha1.TerminationSettings) bool { return s.TerminationDeadlineSeconds != nil }),
		Fallback:  first(func(s v1alpha1.TerminationSettings) bool { return s.Fallback != "" }),
	}
}

// layer is what one place says.
type layer struct {
	source   Source
	settings v1alpha1.TerminationSettings
	// covers is what an image of this place covers.
	covers quickexit.Coverage
}

// maxLayers is how many places there are.
const maxLayers = 5

// coveredByAuthor is what an image of an environment variable covers. The author of the pod vouches for it: OpenKruise
// asks for one that covers the command.
var coveredByAuthor = quickexit.CoverageOf(quickexit.Everything)

// layers lists the places that have a say in a sidecar's settings, first place first. Each place says what its own image
// covers.
func layers(container string, policy *Policy, env v1alpha1.TerminationSettings, options Options) []layer {
	all := make([]layer, 0, maxLayers)
	if policy != nil {
		if entry := policy.entry(container); entry != nil {
			all = append(all, layer{SourceEntry, entry.TerminationSettings, policy.sidecarCovers[container]})
		}
		all = append(all, layer{SourcePolicy, policy.Spec.TerminationSettings, policy.covers})
	}
	return append(all,
		layer{SourceEnvironment, env, coveredByAuthor},
		layer{SourceOperator, v1alpha1.TerminationSettings{Image: options.Image, ExitCodes: options.ExitCodes}, options.QuickExitPaths},
		layer{source: SourceDefault, settings: v1alpha1.TerminationSettings{
			Mode: DefaultMode, ExitCodes: v1alpha1.ExitCodesIgnore, Fallback: DefaultFallback,
		}},
	)
}
