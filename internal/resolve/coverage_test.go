// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"fmt"
	"testing"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// TestQuickExitPaths goes through the places that an image may come from, with and without a word on what it covers.
func TestQuickExitPaths(t *testing.T) {
	type paths = []v1alpha1.QuickExitPath
	own := v1alpha1.TerminationSettings{Image: "own:v1", QuickExitPaths: paths{"default", "/app/server"}}
	entry := v1alpha1.TerminationSettings{Image: "entry:v1", QuickExitPaths: paths{"/opt/entry"}}
	silent := func(s v1alpha1.TerminationSettings) v1alpha1.TerminationSettings {
		s.QuickExitPaths = nil
		return s
	}
	flags := resolve.Options{Image: quickExit, QuickExitPaths: quickexit.CoverageOf("/opt/proxy")}
	one := func(changes ...func(*v1alpha1.PolicySpec)) []resolve.Policy {
		return []resolve.Policy{namespaced(t, "p", 1, spec(changes...))}
	}
	listed := quickexit.CoverageOf("default", "/app/server")
	for name, test := range map[string]struct {
		policies []resolve.Policy
		env      []string
		options  resolve.Options
		want     quickexit.Coverage
		from     resolve.Source
	}{
		"no quickExitPaths: the default coverage": {policies: one(settings(silent(own))), options: flags, from: resolve.SourceDefault},
		"empty quickExitPaths: the default coverage": {
			policies: one(settings(v1alpha1.TerminationSettings{Image: "own:v1", QuickExitPaths: paths{}})), from: resolve.SourceDefault,
		},
		"quickExitPaths of a namespaced policy": {policies: one(settings(own)), options: flags, want: listed, from: resolve.SourcePolicy},
		"quickExitPaths of a cluster policy": {
			policies: []resolve.Policy{cluster(t, "p", 1, spec(settings(own)))}, want: listed, from: resolve.SourcePolicy,
		},
		"quickExitPaths of a sidecar entry": {policies: one(settings(own), entrySettings(entry)), want: quickexit.CoverageOf("/opt/entry"), from: resolve.SourceEntry},
		"a second entry says what its image covers": {
			policies: one(sidecars("proxy", "other"), entrySettings(entry), reversed), want: quickexit.CoverageOf("/opt/entry"), from: resolve.SourceEntry,
		},
		"the spec's paths do not apply to an entry's image": {policies: one(settings(own), entrySettings(silent(entry))), from: resolve.SourceDefault},
		"an entry's paths do not apply to the spec's image": {
			policies: one(sidecars("other", "proxy"), entrySettings(entry), settings(silent(own))), from: resolve.SourceDefault,
		},
		"an image from a variable covers everything": {
			env: []string{withImage, quickExit}, options: flags, want: quickexit.CoverageOf("*"), from: resolve.SourceEnvironment,
		},
		"an image from a variable next to a policy without one": {
			policies: one(), env: []string{withImage, quickExit}, options: flags, want: quickexit.CoverageOf("*"), from: resolve.SourceEnvironment,
		},
		"the operator's flag applies to its own image":           {policies: one(), options: flags, want: flags.QuickExitPaths, from: resolve.SourceOperator},
		"no flag: the operator's image has the default coverage": {policies: one(), options: resolve.Options{Image: quickExit}, from: resolve.SourceDefault},
		"no image covers nothing":                                {policies: one(), from: resolve.SourceDefault},
		"the paths of an overridden policy do not count": {
			policies: []resolve.Policy{namespaced(t, "first", 2, spec(settings(silent(own)))), namespaced(t, "overridden", 1, spec(settings(own)))},
			from:     resolve.SourceDefault,
		},
		"the policy with precedence is found after another": {
			policies: []resolve.Policy{namespaced(t, "overridden", 1, spec(settings(silent(own)))), namespaced(t, "first", 2, spec(settings(own)))},
			want:     listed, from: resolve.SourcePolicy,
		},
		"a policy that names no container is no source": {
			policies: one(sidecars("other"), settings(own)), env: []string{withImage, quickExit}, want: quickexit.CoverageOf("*"), from: resolve.SourceEnvironment,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := withEnv(newPod("main", "proxy"), test.env...)
			target := resolve.Resolve(pod, test.policies, test.options).Enforced.Sidecars[0]
			if !target.QuickExitPaths.Equal(test.want) {
				t.Errorf("the image covers %q, want %q", target.QuickExitPaths, test.want)
			}
			if from := target.Origins.QuickExitPaths.Source; from != test.from {
				t.Errorf("the paths come from %s, want %s", from, test.from)
			}
		})
	}
}

// TestPathsAreParsedOncePerPolicy resolves a pod repeatedly. The cost must not grow with the paths that a policy lists.
func TestPathsAreParsedOncePerPolicy(t *testing.T) {
	pod := newPod("main", "proxy")
	allocations := func(count int) float64 {
		var paths []v1alpha1.QuickExitPath
		for i := range count {
			paths = append(paths, v1alpha1.QuickExitPath(fmt.Sprintf("/opt/%d", i)))
		}
		own := v1alpha1.TerminationSettings{Image: "own:v1", QuickExitPaths: paths}
		policies := []resolve.Policy{namespaced(t, "p", 1, spec(settings(own), entrySettings(own)))}
		return testing.AllocsPerRun(100, func() { _ = resolve.Resolve(pod, policies, resolve.Options{}) })
	}
	if none, most := allocations(0), allocations(64); most != none {
		t.Errorf("%.0f allocations with 64 paths, %.0f without any", most, none)
	}
}
