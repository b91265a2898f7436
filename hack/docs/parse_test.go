// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/e2e/docs"
)

const example = "# A `title`, and more\n" + `
See [that](other.md#part).

<!-- not run: needs a registry -->
` + "```sh\ndocker push image\n```" + `

<!-- given:
kubectl create namespace batch
kubectl create namespace more
-->
` + "```console\n$ kubectl get \\\n    pods\nNAME\n$ echo $?\n0\n```" + `

` + "```yaml\n# job.yaml\nkind: Job\n```\n" + `
    make test
`

func TestParseMatchesRendering(t *testing.T) {
	got := parse("docs/a.md", []byte(example))
	want := docs.Document{
		Path:     "docs/a.md",
		Headings: []docs.Heading{{Level: 1, Text: "A title, and more", Anchor: "a-title-and-more"}},
		Links:    []string{"other.md#part"},
		Blocks: []docs.Block{
			{
				Line: 7, Language: "sh", Text: "docker push image\n", NotRun: "needs a registry",
				Kind: docs.Unknown, Commands: [][]string{{"docker", "push", "image"}},
			},
			{
				Line: 15, Language: "console", Text: "$ kubectl get \\\n    pods\nNAME\n$ echo $?\n0\n",
				Given: "kubectl create namespace batch\nkubectl create namespace more",
				Kind:  docs.Cluster,
				Commands: [][]string{
					{"kubectl", "create", "namespace", "batch"}, {"kubectl", "create", "namespace", "more"}, {"kubectl", "get", "pods"}, {"echo", "$?"},
				},
			},
			{Line: 23, Language: "yaml", Text: "# job.yaml\nkind: Job\n"},
			{Line: 27, Text: "make test\n"},
		},
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
	if script := got.Blocks[1].Script(); script != "kubectl get \\\n    pods\necho $?\n" {
		t.Errorf("the console block has script %q", script)
	}
	if name := got.Blocks[2].File(); name != "job.yaml" {
		t.Errorf("the file is %q", name)
	}
}

func TestCommandKind(t *testing.T) {
	for script, want := range map[string]docs.Kind{
		"make help": docs.Offline,
		"make test": docs.Unknown,
		"kubectl sidecar-termination lint -f job.yaml": docs.Offline,
		"kubectl sidecar-termination explain job/x":    docs.Cluster,
		"kubectl apply -f job.yaml | grep created":     docs.Cluster,
		"kubectl apply -k 'https://example/x'":         docs.Unknown,
		"kubectl apply -k https://example/x":           docs.Unknown,
		"if true; then helm install x; fi":             docs.Unknown,
		"if":                                           docs.Unknown,
		"echo $(docker ps)":                            docs.Unknown,
	} {
		block := docs.Block{Language: "sh", Text: script}
		if classify(&block); block.Kind != want {
			t.Errorf("%s: got %s, want %s", script, block.Kind, want)
		}
	}
}
