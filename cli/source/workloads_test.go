// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/cli/source"
)

// workload returns what ReadWorkload finds in the only object of the text, as PATH RESTARTPOLICY CONTAINERS.
func workload(t *testing.T, text string) (templates []string, read source.Workload) {
	t.Helper()
	manifests, err := readAs(t, text, false)
	if err != nil || len(manifests.Others) != 1 {
		t.Fatalf("read %d objects: %v", len(manifests.Others), err)
	}
	read = source.ReadWorkload(manifests.Others[0].Raw)
	for _, template := range read.Templates {
		var names []string
		for _, container := range template.Pod.Pod.Spec.Containers {
			names = append(names, container.Name)
		}
		policy := template.Pod.Pod.Spec.RestartPolicy
		if template.NoRestartPolicy {
			policy = ""
		}
		templates = append(templates, fmt.Sprintf("%s %s %s", template.Path, policy, strings.Join(names, ",")))
	}
	return templates, read
}

func TestPodTemplatesAreFound(t *testing.T) {
	const containers = "containers: [{name: main, image: app}, {name: proxy, image: app}]"
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"old CronJob": {
			"apiVersion: batch/v1beta1\nkind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {restartPolicy: Never, " + containers + "}}}}}",
			[]string{"spec.jobTemplate.spec.template Never main,proxy"},
		},
		"pod specification in a list": {
			"apiVersion: example.com/v1\nkind: Runner\nspec: {pods: [{}, {" + containers + "}]}", []string{"spec.pods[1]  main,proxy"},
		},
		"pod specification as spec": {"apiVersion: example.com/v1\nkind: Runner\nspec: {" + containers + "}", []string{"spec  main,proxy"}},
		"no image":                  {"apiVersion: example.com/v1\nkind: Runner\nspec: {containers: [{name: main, image: app}, {name: proxy}]}", nil},
		"names only":                {"apiVersion: example.com/v1\nkind: Runner\nspec: {containers: [main, proxy]}", nil},
		"status":                    {"apiVersion: example.com/v1\nkind: Runner\nstatus: {" + containers + "}", nil},
		"within a pod specification": {
			"apiVersion: example.com/v1\nkind: Runner\nspec: {" + containers + ", inner: {" + containers + "}}", []string{"spec  main,proxy"},
		},
		"JobSet without a template": {
			"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec: {replicatedJobs: [{name: a}]}",
			[]string{"spec.replicatedJobs[0].template.spec.template OnFailure "},
		},
		"workflow of steps": {"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec: {templates: [{steps: [[{name: a, template: b}]]}, {suspend: {}}]}", nil},
		"replica that restarts": {
			"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {pytorchReplicaSpecs: {Worker: {restartPolicy: Always, template: {spec: {restartPolicy: Never, " + containers + "}}}}}",
			[]string{"spec.pytorchReplicaSpecs.Worker.template Always main,proxy"},
		},
		"driver with a template": {
			"apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nspec: {driver: {sidecars: [{name: a}], template: {spec: {containers: [{name: spark-kubernetes-driver}, {name: b}]}}}}",
			[]string{"spec.driver Never spark-kubernetes-driver,b,a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := workload(t, tc.text)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pod templates differ (-want +got):\n%s", diff)
			}
		})
	}
}

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
			_, read := workload(t, "apiVersion: ray.io/v1\n"+tc.text)
			if got := read.Templates[0].BackoffLimit; got == nil || *got != tc.want {
				t.Errorf("backoffLimit is %v, want %d", got, tc.want)
			}
		})
	}
}

func TestMistakesHaveTheirPath(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"workflow": {
			"apiVersion: argoproj.io/v1alpha1\nkind: CronWorkflow\nspec: {workflowSpec: {podMetadata: {labels: {a: true}}, templates: [{metadata: {annotations: {b: 1}}, " +
				"container: {image: app, env: [{name: c, value: 1.5}]}, sidecars: [{name: d, env: [{name: e}, {name: f, value: {}}]}]}]}}",
			[]string{
				"spec.workflowSpec.templates[0].container.env[0].value: must be a string, but is the number 1.5: put it in quotes",
				"spec.workflowSpec.templates[0].metadata.annotations[b]: must be a string, but is the number 1: put it in quotes",
				"spec.workflowSpec.templates[0].sidecars[0].env[1].value: must be a string",
				"spec.workflowSpec.podMetadata.labels[a]: must be a string, but is the Boolean true: put it in quotes",
			},
		},
		"driver": {
			"apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nspec: {driver: {labels: {a: 1}, sidecars: [{name: b, env: [{name: c, value: no}]}]}}",
			[]string{
				"spec.driver.labels[a]: must be a string, but is the number 1: put it in quotes",
				"spec.driver.sidecars[0].env[0].value: must be a string, but is the Boolean false: put it in quotes",
			},
		},
		"pod specification": {
			"apiVersion: example.com/v1\nkind: Runner\nspec: {runner: {containers: [{name: a, image: b, env: [{name: c, value: true}]}]}}",
			[]string{"spec.runner.containers[0].env[0].value: must be a string, but is the Boolean true: put it in quotes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, read := workload(t, tc.text)
			if len(read.Templates) != 1 {
				t.Fatalf("found %d templates", len(read.Templates))
			}
			if diff := cmp.Diff(tc.want, read.Templates[0].Mistakes); diff != "" {
				t.Errorf("mistakes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestObjectIsNotModified(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
		"spec": map[string]any{"templates": []any{map[string]any{
			"metadata":  map[string]any{"labels": map[string]any{"a": true}},
			"container": map[string]any{"image": "app", "env": []any{map[string]any{"name": "b", "value": int64(1)}}},
		}}},
	}}
	copied := object.DeepCopy()
	if read := source.ReadWorkload(object); len(read.Templates) != 1 || len(read.Templates[0].Mistakes) != 2 {
		t.Errorf("read %+v", read)
	}
	if diff := cmp.Diff(copied.Object, object.Object); diff != "" {
		t.Errorf("the object was modified (-before +after):\n%s", diff)
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
			read := source.ReadWorkload(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Runner", "spec": spec}})
			if len(read.Remarks) == 0 || len(read.Templates) > 500 {
				t.Errorf("found %d templates with remarks %v", len(read.Templates), read.Remarks)
			}
		})
	}
}

func TestPolicySelectsLabelsOfTheController(t *testing.T) {
	const jobSet = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: training}\n" +
		"spec: {replicatedJobs: [{name: workers, template: {spec: {template: {spec: {containers: [{name: main, image: app}, {name: proxy, image: app}]}}}}}]}\n"
	const policy = "apiVersion: sidecartermination.dev/v1alpha1\nkind: SidecarTerminationPolicy\nmetadata: {name: p}\n" +
		"spec: {podSelector: {matchLabels: {jobset.sigs.k8s.io/jobset-name: training}}, sidecars: [{name: proxy}]}\n"
	manifests, s := read(t, jobSet+"---\n"+policy)
	template := source.ReadWorkload(manifests.Others[0].Raw).Templates[0]
	pod, err := s.Template(t.Context(), template.Pod)
	if err != nil || len(pod.Policies) != 1 || pod.Pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		t.Errorf("policies %v, restartPolicy %s: %v", pod.Policies, pod.Pod.Spec.RestartPolicy, err)
	}
}

// readAs reads the text with or without corrections.
func readAs(t *testing.T, text string, correct bool) (source.Manifests, error) {
	t.Helper()
	files := source.Files{Correct: correct}
	files.Filenames = []string{"-"}
	return files.Read(t.Context(), strings.NewReader(text), "batch")
}

func TestCorrectReadsOn(t *testing.T) {
	const text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: batch, labels: {istio-injection: enabled}}\n" +
		"---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {containers: text}}}\n" +
		"---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: b}\nspec: {template: {spec: {containers: [{name: main, image: app}]}}}\n"
	if read, err := readAs(t, text, false); err == nil && read.Err == nil {
		t.Error("an object that cannot be decoded is no error")
	}
	corrected, err := readAs(t, text, true)
	if err != nil {
		t.Fatal(err)
	}
	var names, texts []string
	for _, manifest := range corrected.Objects {
		if manifest.Object != nil {
			names = append(names, manifest.Object.GetNamespace()+"/"+manifest.Object.GetName())
		}
		texts = append(texts, manifest.Mistakes...)
	}
	if diff := cmp.Diff([]string{"/batch", "batch/b"}, names); diff != "" {
		t.Errorf("objects differ (-want +got):\n%s", diff)
	}
	want := []string{
		"spec.template.spec.restartPolicy: is missing: the default is Always, but a Job needs Never or OnFailure (line 8)",
		"spec.template.spec.containers: a string is not allowed here (line 8)",
		"spec.template.spec.restartPolicy: is missing: the default is Always, but a Job needs Never or OnFailure (line 13)",
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("mistakes differ (-want +got):\n%s", diff)
	}
}
