// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"strings"
	"time"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
)

// Source is the kind of place that a setting of a sidecar comes from.
type Source string

// The places, in order of precedence. The entries and specs of several policies alternate.
const (
	SourceEntry       Source = "PolicyEntry"
	SourcePolicy      Source = "Policy"
	SourceEnvironment Source = "Environment"
	// SourceAnnotation declares sidecars. It has no settings.
	SourceAnnotation Source = "Annotation"
	SourceOperator   Source = "OperatorFlag"
	SourceDefault    Source = "Default"
)

// Origin is the place that a setting of a sidecar comes from.
type Origin struct {
	Source Source
	Policy PolicyRef // of SourceEntry and SourcePolicy
}

// Origins say where each setting of a sidecar comes from.
type Origins struct {
	Mode, Image, QuickExitPaths, ExitCodePolicy, Drain, Order, Timeout, Fallback Origin
}

// layer is the settings of one place.
type layer struct {
	source   Source
	policy   PolicyRef
	settings v1alpha1.TerminationSettings
	deadline *int32
	fallback v1alpha1.Fallback
	// covers is what the image of this place covers.
	covers quickexit.Coverage
}

// coveredByAuthor is what an image of an environment variable covers: every command. OpenKruise requires the pod's author
// to choose such an image.
var coveredByAuthor = quickexit.CoverageOf(quickexit.Everything)

// layersOf lists the places of one policy's settings for a sidecar that it declares, highest precedence first. Each place declares
// what its own image covers.
func layersOf(container string, policy Policy) []layer {
	var all []layer
	if entry := policy.entry(container); entry != nil {
		all = append(all, layer{source: SourceEntry, policy: policy.Ref, settings: entry.TerminationSettings, covers: policy.sidecarCovers[entry.Name]})
	}
	return append(all, layer{
		source: SourcePolicy, policy: policy.Ref, settings: policy.Spec.TerminationSettings, covers: policy.covers,
		deadline: policy.Spec.TerminationDeadlineSeconds, fallback: policy.Spec.Fallback,
	})
}

// layers lists the places of a sidecar's settings, highest precedence first. The policies are those that declare it, in that order.
func layers(container string, declaring []Policy, env v1alpha1.TerminationSettings, options Options) []layer {
	var all []layer
	for i := range declaring {
		all = append(all, layersOf(container, declaring[i])...)
	}
	return append(all,
		layer{source: SourceEnvironment, settings: env, covers: coveredByAuthor},
		layer{source: SourceOperator, settings: v1alpha1.TerminationSettings{Image: options.Image, ExitCodePolicy: options.ExitCodePolicy}, covers: options.QuickExitPaths},
		layer{source: SourceDefault, settings: v1alpha1.TerminationSettings{Mode: DefaultMode, ExitCodePolicy: v1alpha1.ExitCodePolicyIgnore}, fallback: DefaultFallback},
	)
}

// The fields that are merged, each by itself.
const (
	mode = iota
	image
	exitCodePolicy
	drainSeconds
	terminationOrder
	terminationDeadlineSeconds
	fallback
	numberOfFields
)

// fields say how each is called in a policy, whether a layer sets it, and whether two layers that set it have the same value.
var fields = [numberOfFields]struct {
	name  string
	isSet func(layer) bool
	equal func(a, b layer) bool
}{
	mode: {"mode", func(l layer) bool { return l.settings.Mode != "" }, func(a, b layer) bool { return a.settings.Mode == b.settings.Mode }},
	// It goes with the quickExitPaths that describe it.
	image: {"image", func(l layer) bool { return l.settings.Image != "" }, func(a, b layer) bool {
		return a.settings.Image == b.settings.Image && a.covers.Equal(b.covers)
	}},
	exitCodePolicy: {"exitCodePolicy", func(l layer) bool { return l.settings.ExitCodePolicy != "" }, func(a, b layer) bool {
		return a.settings.ExitCodePolicy == b.settings.ExitCodePolicy
	}},
	drainSeconds: {"drainSeconds", func(l layer) bool { return l.settings.DrainSeconds != nil }, func(a, b layer) bool {
		return *a.settings.DrainSeconds == *b.settings.DrainSeconds
	}},
	terminationOrder: {"terminationOrder", func(l layer) bool { return l.settings.TerminationOrder != nil }, func(a, b layer) bool {
		return *a.settings.TerminationOrder == *b.settings.TerminationOrder
	}},
	terminationDeadlineSeconds: {"terminationDeadlineSeconds", func(l layer) bool { return l.deadline != nil }, func(a, b layer) bool {
		return *a.deadline == *b.deadline
	}},
	fallback: {"fallback", func(l layer) bool { return l.fallback != "" }, func(a, b layer) bool { return a.fallback == b.fallback }},
}

// firstSetting returns the first layer that sets the field, or that of the default.
func firstSetting(all []layer, field int) layer {
	for i := range all {
		if fields[field].isSet(all[i]) {
			return all[i]
		}
	}
	return layer{source: SourceDefault}
}

// merge takes each setting of a sidecar from the first layer that sets it.
func merge(container string, all []layer) Sidecar {
	var from [numberOfFields]layer
	origins := Origins{}
	for field, origin := range [numberOfFields]*Origin{
		mode: &origins.Mode, image: &origins.Image, exitCodePolicy: &origins.ExitCodePolicy, drainSeconds: &origins.Drain,
		terminationOrder: &origins.Order, terminationDeadlineSeconds: &origins.Timeout, fallback: &origins.Fallback,
	} {
		from[field] = firstSetting(all, field)
		*origin = Origin{from[field].source, from[field].policy}
	}
	s := Sidecar{
		Container: container, Mode: from[mode].settings.Mode, Image: from[image].settings.Image, ExitCodePolicy: from[exitCodePolicy].settings.ExitCodePolicy,
		Timeout: DefaultTerminationTimeout, Fallback: from[fallback].fallback,
	}
	if s.Image != "" {
		s.QuickExitPaths = from[image].covers
	}
	if origins.QuickExitPaths = origins.Image; s.QuickExitPaths.IsZero() {
		origins.QuickExitPaths = Origin{Source: SourceDefault}
	}
	if drain := from[drainSeconds].settings.DrainSeconds; drain != nil {
		s.Drain = time.Duration(*drain) * time.Second
	}
	if order := from[terminationOrder].settings.TerminationOrder; order != nil {
		s.Order = *order
	}
	if deadline := from[terminationDeadlineSeconds].deadline; deadline != nil {
		s.Timeout = time.Duration(*deadline) * time.Second
	}
	s.Origins = origins
	return s
}

// fieldOwners are the layers that set the fields of one sidecar so far. Nil means that none does.
type fieldOwners [numberOfFields]*layer

// add adds a policy that declares the sidecar, after those of higher precedence. It returns the fields that they set otherwise,
// separated by commas, and the policy that sets the first one.
func (o *fieldOwners) add(container string, policy Policy) (lost string, by PolicyRef) {
	own := layersOf(container, policy)
	var names []string
	for field := range fields {
		l := firstSetting(own, field)
		switch {
		case !fields[field].isSet(l):
		case o[field] == nil:
			o[field] = &l
		case !fields[field].equal(*o[field], l):
			if names = append(names, fields[field].name); len(names) == 1 {
				by = o[field].policy
			}
		}
	}
	return strings.Join(names, ", "), by
}
