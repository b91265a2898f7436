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

// The places, in order of precedence.
const (
	SourceEntry       Source = "PolicyEntry"
	SourcePolicy      Source = "Policy"
	SourceEnvironment Source = "Environment"
	SourceOperator    Source = "OperatorFlag"
	SourceDefault     Source = "Default"
)

// Sources say where each setting of a sidecar comes from.
type Sources struct {
	Mode, Image, QuickExitPaths, ExitCodes, Drain, Timeout, Fallback Source
}

// SourcesOf returns where each setting of the sidecar comes from. The other arguments must be those of the call of Resolve
// that returned the sidecar.
func SourcesOf(pod *corev1.Pod, selecting []Policy, options Options, sidecar Sidecar) Sources {
	var env v1alpha1.TerminationSettings
	for i := range pod.Spec.Containers {
		if container := &pod.Spec.Containers[i]; container.Name == sidecar.Container && !options.IgnoreEnv {
			env = readEnv(container).settings
		}
	}
	var policy *Policy
	if i := slices.IndexFunc(selecting, func(p Policy) bool { return sidecar.Policy != nil && p.Ref == *sidecar.Policy }); i >= 0 {
		policy = &selecting[i]
	}
	all := layers(sidecar.Container, policy, env, options)
	first := func(set func(v1alpha1.TerminationSettings) bool) Source {
		if i := slices.IndexFunc(all, func(l layer) bool { return set(l.settings) }); i >= 0 {
			return all[i].source
		}
		return SourceDefault
	}
	image := first(func(s v1alpha1.TerminationSettings) bool { return s.Image != "" })
	paths := image
	if sidecar.QuickExitPaths.IsZero() {
		paths = SourceDefault
	}
	ofPolicy := func(set bool) Source {
		if set {
			return SourcePolicy
		}
		return SourceDefault
	}
	return Sources{
		Mode:  first(func(s v1alpha1.TerminationSettings) bool { return s.Mode != "" }),
		Image: image, QuickExitPaths: paths,
		ExitCodes: first(func(s v1alpha1.TerminationSettings) bool { return s.ExitCodes != "" }),
		Drain:     first(func(s v1alpha1.TerminationSettings) bool { return s.DrainSeconds != nil }),
		Timeout:   ofPolicy(policy != nil && policy.Spec.TerminationDeadlineSeconds != nil),
		Fallback:  ofPolicy(policy != nil && policy.Spec.Fallback != ""),
	}
}

// layer is the settings of one place.
type layer struct {
	source   Source
	settings v1alpha1.TerminationSettings
	// covers is what the image of this place covers.
	covers quickexit.Coverage
}

// maxLayers is the number of places.
const maxLayers = 5

// coveredByAuthor is what an image of an environment variable covers: every command. OpenKruise requires the pod's author
// to choose such an image.
var coveredByAuthor = quickexit.CoverageOf(quickexit.Everything)

// layers lists the places of a sidecar's settings, highest precedence first. Each place declares what its own image
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
		layer{source: SourceDefault, settings: v1alpha1.TerminationSettings{Mode: DefaultMode, ExitCodes: v1alpha1.ExitCodesIgnore}},
	)
}
