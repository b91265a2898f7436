// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sidecar-termination/operator/cli/source"
)

const pod = `{apiVersion: v1, kind: Pod, metadata: {name: job-1, namespace: batch},
  spec: {restartPolicy: Never, containers: [{name: main, image: app}, {name: proxy, image: app}]}}`

// policyText is a policy of the namespace that names container proxy.
func policyText(namespace, name, created string) string {
	return `{apiVersion: sidecartermination.dev/v1alpha1, kind: SidecarTerminationPolicy, metadata: {namespace: ` + namespace + `, name: ` + name +
		`, creationTimestamp: ` + created + `}, spec: {podSelector: {}, sidecars: [{name: proxy}]}}`
}

func readManifests(t *testing.T, texts ...string) source.Manifests {
	t.Helper()
	manifests, err := source.ReadTexts(t.Context(), []source.Text{{Name: "test", Data: []byte(strings.Join(texts, "\n---\n"))}}, "batch")
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

func TestWithPolicies(t *testing.T) {
	const january, february = `"2026-01-01T00:00:00Z"`, `"2026-02-01T00:00:00Z"`
	program := source.Program{Name: "test", Now: func() time.Time { return time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC) }}
	for name, tc := range map[string]struct {
		current, applied []string
		policies         []string // those that select the pod
		declaredBy       string
	}{
		"new policy":               {applied: []string{policyText("batch", "new", "null")}, policies: []string{"new"}, declaredBy: "new"},
		"new policy is youngest":   {current: []string{policyText("batch", "old", february)}, applied: []string{policyText("batch", "new", january)}, policies: []string{"new", "old"}, declaredBy: "old"},
		"new policies, by name":    {applied: []string{policyText("batch", "b", "null"), policyText("batch", "a", "null")}, policies: []string{"a", "b"}, declaredBy: "a"},
		"changed policy keeps age": {current: []string{policyText("batch", "a", february), policyText("batch", "b", january)}, applied: []string{policyText("batch", "b", "null")}, policies: []string{"a", "b"}, declaredBy: "b"},
		"other namespace":          {current: []string{policyText("batch", "old", january)}, applied: []string{policyText("web", "old", "null")}, policies: []string{"old"}, declaredBy: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			manifests := readManifests(t, append(tc.current, pod)...)
			current, err := manifests.Source(program, pflag.NewFlagSet("test", pflag.ContinueOnError))
			if err != nil {
				t.Fatal(err)
			}
			var applied []client.Object
			for _, manifest := range readManifests(t, tc.applied...).Objects {
				applied = append(applied, manifest.Object)
			}
			of := manifests.Objects[len(manifests.Objects)-1]
			input, _, err := current.WithPolicies(applied).Manifest(t.Context(), of)
			if err != nil {
				t.Fatal(err)
			}
			var selecting []string
			for _, policy := range input.Policies {
				selecting = append(selecting, policy.Ref.Name)
			}
			report := current.Explain(input)
			if got := report.Containers[1].DeclaredBy; !slices.Equal(selecting, tc.policies) || got != "SidecarTerminationPolicy/"+tc.declaredBy {
				t.Errorf("policies %q select the pod and %s declares the sidecar, want %q and %s", selecting, got, tc.policies, tc.declaredBy)
			}
			if before, _, err := current.Manifest(t.Context(), of); err != nil || len(before.Policies) != len(tc.current) {
				t.Errorf("without the applied policies, %d select the pod, want %d: %v", len(before.Policies), len(tc.current), err)
			}
		})
	}
}
