// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sidecar-termination/operator/api/v1alpha1"
	"github.com/sidecar-termination/operator/internal/quickexit"
	"github.com/sidecar-termination/operator/internal/resolve"
)

// TestWhatAnImageCovers goes through the places that an image may come from, with and without a policy that says what it
// covers.
func TestWhatAnImageCovers(t *testing.T) {
	const said, flag = quickexit.Coverage("default,/app/server"), quickexit.Coverage("/opt/proxy")
	own := spec(settings(v1alpha1.TerminationSettings{Image: "own:v1"}))
	entry := spec(entrySettings(v1alpha1.TerminationSettings{Image: "entry:v1"}))
	annotated := func(p resolve.Policy) resolve.Policy {
		p.QuickExitPaths = said
		return p
	}
	for name, test := range map[string]struct {
		policies []resolve.Policy
		env      []string
		options  resolve.Options
		want     quickexit.Coverage
		from     resolve.Source
	}{
		"the policy's image is the shipped one or like it": {
			policies: []resolve.Policy{namespaced(t, "p", 1, own)}, options: resolve.Options{QuickExitPaths: flag}, from: resolve.SourceDefault,
		},
		"the policy says what its image covers": {policies: []resolve.Policy{annotated(namespaced(t, "p", 1, own))}, want: said, from: resolve.SourcePolicy},
		"it says so for its entries": {
			policies: []resolve.Policy{annotated(cluster(t, "p", 1, entry))}, want: said, from: resolve.SourcePolicy,
		},
		"it says so for the image of a variable": {
			policies: []resolve.Policy{annotated(namespaced(t, "p", 1, spec()))}, env: []string{withImage, quickExit}, want: said, from: resolve.SourcePolicy,
		},
		"it says so for the operator's image": {
			policies: []resolve.Policy{annotated(namespaced(t, "p", 1, spec()))}, options: resolve.Options{Image: quickExit, QuickExitPaths: flag},
			want: said, from: resolve.SourcePolicy,
		},
		"whoever wrote the pod vouches for the image of its variable": {
			env: []string{withImage, quickExit}, want: quickexit.Everything, from: resolve.SourceEnvironment,
		},
		"also beside a policy that says nothing": {
			policies: []resolve.Policy{namespaced(t, "p", 1, spec())}, env: []string{withImage, quickExit},
			options: resolve.Options{Image: "default:v1", QuickExitPaths: flag}, want: quickexit.Everything, from: resolve.SourceEnvironment,
		},
		"the operator's flag counts for its own image": {
			policies: []resolve.Policy{namespaced(t, "p", 1, spec())}, options: resolve.Options{Image: quickExit, QuickExitPaths: flag},
			want: flag, from: resolve.SourceOperator,
		},
		"without the flag the operator's image is the shipped one": {
			policies: []resolve.Policy{namespaced(t, "p", 1, spec())}, options: resolve.Options{Image: quickExit}, from: resolve.SourceDefault,
		},
		"no image covers nothing": {
			policies: []resolve.Policy{annotated(namespaced(t, "p", 1, spec()))}, from: resolve.SourceDefault,
		},
		"a policy that lost says nothing": {
			policies: []resolve.Policy{namespaced(t, "winner", 2, own), annotated(namespaced(t, "loser", 1, own))}, from: resolve.SourceDefault,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := withEnv(newPod("main", "proxy"), test.env...)
			target := resolve.Resolve(pod, test.policies, test.options).Enforced.Targets[0]
			if target.QuickExitPaths != test.want {
				t.Errorf("the image covers %q, want %q", target.QuickExitPaths, test.want)
			}
			if from := resolve.SourcesOf(pod, test.policies, test.options, target).QuickExitPaths; from != test.from {
				t.Errorf("that comes from %s, want %s", from, test.from)
			}
		})
	}
}

func TestTheAnnotationOfAPolicyIsRead(t *testing.T) {
	for annotation, test := range map[string]struct {
		want quickexit.Coverage
		flaw string
	}{
		" default,/app/server\n": {"default,/app/server", ""},
		"app/server":             {"app/server", `annotation sidecartermination.dev/quick-exit-paths: entry "app/server" does not count`},
		" ":                      {"", ""},
	} {
		meta := metav1.ObjectMeta{Name: "p", Annotations: map[string]string{v1alpha1.AnnotationQuickExitPaths: annotation}}
		namespaced, err := resolve.FromNamespaced(&v1alpha1.SidecarTerminationPolicy{ObjectMeta: meta})
		if err != nil {
			t.Fatal(err)
		}
		cluster, err := resolve.FromCluster(&v1alpha1.ClusterSidecarTerminationPolicy{ObjectMeta: meta})
		if err != nil {
			t.Fatal(err)
		}
		for _, policy := range []resolve.Policy{namespaced, cluster} {
			if policy.QuickExitPaths != test.want {
				t.Errorf("annotation %q of a %s is read as %q", annotation, policy.Ref.Kind, policy.QuickExitPaths)
			}
			if flaw := policy.Flaw(); (flaw == nil) != (test.flaw == "") || flaw != nil && !strings.Contains(flaw.Error(), test.flaw) {
				t.Errorf("flaw of annotation %q is %v, want %q", annotation, flaw, test.flaw)
			}
		}
	}
}
