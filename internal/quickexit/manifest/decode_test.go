// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/internal/quickexit/manifest"
)

func TestReadFindsContainersOfEveryKind(t *testing.T) {
	file, err := os.Open("testdata/kinds.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	containers, err := manifest.Read("kinds.yaml", file)
	if err != nil {
		t.Fatal(err)
	}
	var commands, sources []string
	for _, container := range containers {
		if container.Command != nil {
			commands = append(commands, container.Command[0])
			sources = append(sources, container.Source)
		}
	}
	want := []string{"/pod", "/job", "/cronjob", "/deployment", "/broadcastjob", "/jobset", "/sidecarset", "/podtemplate", "/list"}
	if !slices.Equal(commands, want) {
		t.Errorf("commands are %v, want %v", commands, want)
	}
	for _, source := range []string{
		"kinds.yaml: Pod pod: spec.containers[0]",
		"kinds.yaml: Job job: spec.template.spec.containers[1]",
		"kinds.yaml: CronJob cronjob: spec.jobTemplate.spec.template.spec.containers[0]",
		"kinds.yaml: JobSet jobset: spec.replicatedJobs[0].template.spec.template.spec.containers[0]",
		"kinds.yaml: PodTemplate podtemplate: template.spec.containers[0]",
		"kinds.yaml: Job listed: spec.template.spec.containers[0]",
	} {
		if !slices.Contains(sources, source) {
			t.Errorf("no container is at %q, only at %q", source, sources)
		}
	}
}

func TestReadAcceptsJSON(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","command":["/x"]}]}}`
	containers, err := manifest.Read("pods.json", strings.NewReader(pod+"\n"+pod))
	if err != nil || len(containers) != 2 || containers[1].Command[0] != "/x" {
		t.Errorf("read %v, %v; want two containers", containers, err)
	}
}

func TestReadNamesFileAndField(t *testing.T) {
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {containers: "
	for name, test := range map[string]struct {
		content string
		want    []string
	}{
		"empty":             {"", []string{"f.yaml: it contains no Pod and no pod template"}},
		"only others":       {"apiVersion: v1\nkind: Service\n", []string{"f.yaml: it contains no Pod and no pod template"}},
		"not YAML":          {"a: [", []string{"f.yaml: document 1: "}},
		"not an object":     {"- a\n", []string{"f.yaml: document 1: expected a Kubernetes object, found a list"}},
		"text":              {"hello\n", []string{"f.yaml: document 1: expected a Kubernetes object, found a text"}},
		"no kind":           {"---\nspec: {}\n", []string{"f.yaml: document 1: apiVersion or kind is missing"}},
		"second document":   {"apiVersion: v1\nkind: Service\n---\n1\n", []string{"f.yaml: document 2: expected a Kubernetes object"}},
		"item":              {"apiVersion: v1\nkind: List\nitems: [1]\n", []string{"f.yaml: document 1: items[0]: expected"}},
		"command is a text": {job + "[{name: c, command: sh}]}}}", []string{"f.yaml: document 1: Job j: spec.template.spec.containers[0]: command cannot be a string"}},
		"number in command": {job + "[{name: c, command: [sh, 1]}]}}}", []string{"containers[0]: command", "cannot be a number"}},
		"container is null": {job + "[null]}}}", []string{"f.yaml: document 1: Job j: spec.template.spec.containers[0]: container has no name"}},
		"no name":           {job + "[{image: x}]}}}", []string{"spec.template.spec.containers[0]: container has no name"}},
	} {
		t.Run(name, func(t *testing.T) {
			containers, err := manifest.Read("f.yaml", strings.NewReader(test.content))
			if err == nil {
				t.Fatalf("read %v, want an error", containers)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, want one with %q", err, want)
				}
			}
		})
	}
}
