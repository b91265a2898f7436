// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/sidecar-termination/operator/internal/cli/source"
	"github.com/sidecar-termination/operator/internal/explain"
)

// read returns the manifests of the text, whose objects without a namespace are in batch, and a look at them.
func read(t *testing.T, text string) (source.Manifests, *source.Source) {
	t.Helper()
	files := source.Files{}
	files.Filenames = []string{"-"}
	manifests, err := files.Read(t.Context(), strings.NewReader(text), "batch")
	if err != nil {
		t.Fatal(err)
	}
	look, err := manifests.Source(source.Operator{
		Bind:    func(*pflag.FlagSet) {},
		Parse:   func([]string) (explain.OperatorSettings, error) { return explain.OperatorSettings{}, nil },
		Now:     func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) },
		Program: "program",
	}, pflag.NewFlagSet("", pflag.ContinueOnError))
	if err != nil {
		t.Fatal(err)
	}
	return manifests, look
}

func TestKindsThatArePassedOver(t *testing.T) {
	for name, tc := range map[string]struct {
		manifest string
		want     []string
	}{
		"a kind that is looked at": {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: main, image: app}]}}}", nil},
		"another version of it": {"apiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: a}\nspec: {jobTemplate: {spec: {template: {spec: {containers: [{name: main, image: app}]}}}}}",
			[]string{"batch/v1beta1, Kind=CronJob"}},
		"a kind with one container": {"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: a}\nspec: {templates: [{container: {image: app}}]}",
			[]string{"argoproj.io/v1alpha1, Kind=Workflow"}},
		"a kind whose pods are restarted for ever": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: main, image: app}]}}}", nil},
		"a kind without pods":                      {"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}", nil},
		"text that looks like a container":         {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {container: \"{image: app}\"}", nil},
		"a definition of a kind with containers": {"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}\n" +
			"spec: {versions: [{schema: {openAPIV3Schema: {properties: {container: {type: object, properties: {image: {type: string}}}, containers: {type: array, items: {type: object}}}}}}]}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, look := read(t, tc.manifest)
			var got []string
			for _, kind := range manifests.PassedOver {
				got = append(got, kind.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("kinds that were passed over differ (-want +got):\n%s", diff)
			}
			if noted := len(look.Notes()) == 1; noted != (len(tc.want) > 0) {
				t.Errorf("notes are %q", look.Notes())
			}
		})
	}
}

func TestObjectsWithoutANameYet(t *testing.T) {
	const spec = "spec: {restartPolicy: Never, containers: [{name: main, image: app}]}"
	for name, tc := range map[string]struct {
		manifest, want string
	}{
		"a Pod":     {"apiVersion: v1\nkind: Pod\nmetadata: {generateName: load-}\n" + spec, "Pod batch/load-*"},
		"a Job":     {"apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: load-}\nspec: {template: {" + spec + "}}", "Job batch/load-*"},
		"a CronJob": {"apiVersion: batch/v1\nkind: CronJob\nmetadata: {generateName: load-}\nspec: {jobTemplate: {spec: {template: {" + spec + "}}}}", "CronJob batch/load-*"},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, look := read(t, tc.manifest)
			pod, found, err := look.Manifest(t.Context(), manifests.Objects[0])
			if err != nil || !found {
				t.Fatalf("gather: %v, %v", found, err)
			}
			report := look.Explain(pod)
			if got := report.Kind + " " + report.Namespace + "/" + report.Name; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if len(pod.Pod.Labels) > 0 {
				t.Errorf("labels are made of a name that is not known: %v", pod.Pod.Labels)
			}
		})
	}
}

func TestNamespacesThatAreNotInTheManifests(t *testing.T) {
	const job = "\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: app}, {name: proxy, image: app}]}}}"
	policy := func(namespaceSelector string) string {
		return "\n---\napiVersion: sidecartermination.dev/v1alpha1\nkind: ClusterSidecarTerminationPolicy\nmetadata: {name: p}\n" +
			"spec: {podSelector: {}, sidecars: [{name: proxy}], namespaceSelector: " + namespaceSelector + "}"
	}
	const namespace = "\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: batch, labels: {tenant: \"yes\"}}"
	for name, tc := range map[string]struct {
		manifests       string
		selected, noted bool
	}{
		"a policy for all namespaces":                 {job + policy("{}"), true, false},
		"a policy by the name of the namespace":       {job + policy("{matchLabels: {kubernetes.io/metadata.name: batch}}"), true, false},
		"a policy by the name of another":             {job + policy("{matchLabels: {kubernetes.io/metadata.name: other}}"), false, false},
		"a policy by a label that is not known":       {job + policy("{matchLabels: {tenant: \"yes\"}}"), false, true},
		"a policy by the absence of an unknown label": {job + policy("{matchExpressions: [{key: tenant, operator: DoesNotExist}]}"), true, true},
		"a policy by a label that is given":           {job + policy("{matchLabels: {tenant: \"yes\"}}") + namespace, true, false},
		"a policy by the name of a given namespace":   {job + policy("{matchLabels: {kubernetes.io/metadata.name: batch}}") + namespace, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, look := read(t, strings.TrimPrefix(tc.manifests, "\n---\n"))
			pod, _, err := look.Manifest(t.Context(), manifests.Objects[0])
			if err != nil {
				t.Fatal(err)
			}
			if selected := len(pod.Policies) == 1; selected != tc.selected {
				t.Errorf("the policy selects the Job's pods: %v, want %v", selected, tc.selected)
			}
			if noted := len(look.Notes()) == 1; noted != tc.noted {
				t.Errorf("notes are %q", look.Notes())
			}
		})
	}
}

func TestHintsNameTheProgram(t *testing.T) {
	manifests, look := read(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: app}, "+
		"{name: proxy, image: app, env: [{name: KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT, value: \"true\"}]}]}}}")
	pod, _, err := look.Manifest(t.Context(), manifests.Objects[0])
	if err != nil {
		t.Fatal(err)
	}
	found := look.Explain(pod).Findings
	if len(found) == 0 || !strings.HasSuffix(found[0].Hint, "; run: program check") {
		t.Errorf("no command is named in %+v", found)
	}
}
