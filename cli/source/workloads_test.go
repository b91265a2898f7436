// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/cli/source"
)

func TestSubmitterHasItsBackoffLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want int32
	}{
		"default of KubeRay":      {"kind: RayJob\nspec: {backoffLimit: 5}", 2},
		"of the submitter's Job":  {"kind: RayJob\nspec: {submitterConfig: {backoffLimit: 0}}", 0},
		"of a scheduled RayJob":   {"kind: RayCronJob\nspec: {jobTemplate: {submitterConfig: {backoffLimit: 1}}}", 1},
		"of no template in a job": {"kind: RayCronJob\nspec: {}", 2},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, _ := read(t, "apiVersion: ray.io/v1\n"+tc.text)
			if got := source.ReadWorkload(manifests.Objects[0]).Templates[0].BackoffLimit; got == nil || *got != tc.want {
				t.Errorf("backoffLimit is %v, want %d", got, tc.want)
			}
		})
	}
}

func TestLabelsWithNameOfJob(t *testing.T) {
	const template = "template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}"
	for name, tc := range map[string]struct{ text, want string }{
		"Job":          {"batch/v1\nkind: Job\nmetadata: {name: load}\nspec: {" + template + "}", "load"},
		"generateName": {"batch/v1\nkind: Job\nmetadata: {generateName: load-}\nspec: {" + template + "}", "load-*"},
		"CronJob":      {"batch/v1\nkind: CronJob\nmetadata: {name: load}\nspec: {jobTemplate: {spec: {" + template + "}}}", "load-*"},
		"JobSet":       {"jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: load}\nspec: {replicatedJobs: [{name: a, template: {spec: {" + template + "}}}]}", "load-*"},
		"ScaledJob":    {"keda.sh/v1alpha1\nkind: ScaledJob\nmetadata: {name: load}\nspec: {jobTargetRef: {" + template + "}}", "load-*"},
		"RayJob":       {"ray.io/v1\nkind: RayJob\nmetadata: {name: load}\nspec: {}", "load"},
		"RayCronJob":   {"ray.io/v1\nkind: RayCronJob\nmetadata: {name: load}\nspec: {jobTemplate: {}}", "load-*"},
		"no Job":       {"kubeflow.org/v1\nkind: TFJob\nmetadata: {name: load}\nspec: {tfReplicaSpecs: {Worker: {" + template + "}}}", ""},
	} {
		manifests, _ := read(t, "apiVersion: "+tc.text)
		got := source.ReadWorkload(manifests.Objects[0]).Templates[0].Pod.Pod.Labels
		if got["batch.kubernetes.io/job-name"] != tc.want || got["job-name"] != tc.want {
			t.Errorf("%s: got labels %v, want %q", name, got, tc.want)
		}
	}
}

// The search must end soon in any object, and say that it has not seen everything.
func TestSearchIsBounded(t *testing.T) {
	podSpec := map[string]any{"containers": []any{map[string]any{"name": "a", "image": "b"}}}
	var deep any = podSpec
	for range 60 {
		deep = map[string]any{"in": deep}
	}
	for name, spec := range map[string]any{
		"deep":               deep,
		"large":              slices.Repeat([]any{"text"}, 200_000),
		"too many templates": slices.Repeat([]any{podSpec}, 1000),
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Runner", "spec": spec}}
			read := source.ReadWorkload(source.Manifest{Raw: object})
			if len(read.Remarks) == 0 || len(read.Templates) > 500 {
				t.Errorf("found %d templates with remarks %v", len(read.Templates), read.Remarks)
			}
		})
	}
}
