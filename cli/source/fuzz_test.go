// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sidecar-termination/operator/cli/source"
)

// FuzzManifests reads manifests from standard input, corrects them, explains their objects, and asks for their lines.
func FuzzManifests(f *testing.F) {
	f.Add("")
	f.Add("---\n---\n")
	f.Add("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {restartPolicy: Never, containers: [{name: main}, {name: proxy}]}\n")
	f.Add("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: main}]}}}\n")
	f.Add("apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {jobTemplate: {}}\n")
	f.Add("apiVersion: sidecartermination.dev/v1alpha1\nkind: SidecarTerminationPolicy\nmetadata: {name: a}\nspec: {podSelector: {}, sidecars: [{name: proxy}]}\n")
	f.Add("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {containerStatuses: [{}]}}]\n")
	f.Add(`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a":1}}}`)
	f.Add("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: a}\nspec: {templates: [{container: {image: app}, sidecars: [{name: b}]}]}\n")
	f.Add("apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\nspec: {replicatedJobs: [{template: {spec: {}}}]}\n")
	f.Add("apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec: {tfReplicaSpecs: {Worker: {template: {spec: {container: [{env: [{value: yes}]}]}}}}}\n")
	f.Add("apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: a}\nspec: {driver: {sidecars: [{name: b}]}}\n")
	f.Add("apiVersion: example.com/v1\nkind: Other\nmetadata: {name: a}\nspec: {spec: {containers: [{name: a, image: b}]}}\n")
	f.Add("---\n---\nkind: Pod\napiVersion: v1\nmetadata: {name: &a x, labels: {a: *a}}\n---\n# nothing\n---\nnull\n")
	f.Fuzz(func(t *testing.T, text string) {
		files := source.Files{Correct: true}
		files.Filenames = []string{"-"}
		manifests, err := files.Read(t.Context(), strings.NewReader(text), "batch")
		if err != nil {
			return
		}
		s, err := manifests.Source(time.Now, pflag.NewFlagSet("", pflag.ContinueOnError))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(text, "\n") + 1
		for _, manifest := range manifests.Objects {
			if place := manifest.Place; place.Line > lines || place.LineOf("spec.template", "main") > lines {
				t.Errorf("line %d of %d", place.Line, lines)
			}
			before := manifest.Raw.DeepCopy()
			if workload, err := s.Workload(t.Context(), manifest); err == nil {
				for _, template := range workload.Templates {
					s.Explain(template.Pod)
				}
			}
			if diff := cmp.Diff(before, manifest.Raw); diff != "" {
				t.Errorf("the object was modified (-before +after):\n%s", diff)
			}
		}
	})
}
