// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/sidecar-termination/operator/cli/source"
)

const twoJobs = `# a comment
apiVersion: batch/v1
kind: Job
metadata: {generateName: etl-}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
      - image: envoy
        name: proxy
--- # the next one
apiVersion: v1
kind: List
items:
- apiVersion: batch/v1
  kind: Job
  metadata: {generateName: etl-}
  spec: {template: {metadata: {labels: {app.example/team: etl}}, spec: {containers: [{name: main}]}}}
- apiVersion: v1
  kind: Pod
  metadata: {name: pod}
`

const rendered = `---
# Source: etl/templates/job.yaml
apiVersion: v1
kind: Pod
metadata: {name: a}
---
# Source: etl/templates/lost.yaml
apiVersion: v1
kind: Pod
metadata: {name: b}
spec: {containers: [{name: proxy}]}
---
# Source: https://example.com/templates/of-another-kind
apiVersion: v1
kind: Pod
metadata: {name: c}
---
# Source: ../../templates/outside.yaml
apiVersion: v1
kind: Pod
metadata: {name: d}
`

// repositoryWith creates a repository with the files and changes to its directory work.
func repositoryWith(t *testing.T, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, directory := range []string{".git", "work"} {
		if err := os.MkdirAll(filepath.Join(root, directory), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(root, "work"))
}

// placesOf reads the files, and returns the places of their objects.
func placesOf(t *testing.T, files resource.FilenameOptions, stdin string) (places []source.Place) {
	t.Helper()
	manifests, err := (&source.Files{FilenameOptions: files, Correct: true}).Read(t.Context(), strings.NewReader(stdin), "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range manifests.Objects {
		places = append(places, manifest.Place)
	}
	return places
}

func TestPlaces(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
	repositoryWith(t, map[string]string{
		"jobs.yaml": twoJobs, "work/rendered.yaml": rendered, "work/charts/etl/templates/job.yaml": "template", "work/pod.yaml": pod,
		"work/overlay/kustomization.yaml": "resources: [pod.yaml]\n", "work/overlay/pod.yaml": pod,
	})
	for name, tc := range map[string]struct {
		files resource.FilenameOptions
		stdin string
		want  []string
	}{
		"file above the working directory": {files: resource.FilenameOptions{Filenames: []string{"../jobs.yaml"}}, want: []string{
			"../jobs.yaml jobs.yaml:2", "../jobs.yaml jobs.yaml:17", "../jobs.yaml jobs.yaml:21",
		}},
		"file given twice": {files: resource.FilenameOptions{Filenames: []string{"pod.yaml", "pod.yaml"}}, want: []string{
			"pod.yaml work/pod.yaml:1", "pod.yaml work/pod.yaml:1",
		}},
		"rendered by Helm": {files: resource.FilenameOptions{Filenames: []string{"rendered.yaml"}}, want: []string{
			"charts/etl/templates/job.yaml work/charts/etl/templates/job.yaml:1", "etl/templates/lost.yaml work/etl/templates/lost.yaml:1",
			"rendered.yaml work/rendered.yaml:14", "rendered.yaml work/rendered.yaml:19",
		}},
		"standard input of Helm": {files: resource.FilenameOptions{Filenames: []string{"-"}}, stdin: rendered, want: []string{
			"charts/etl/templates/job.yaml work/charts/etl/templates/job.yaml:1", "etl/templates/lost.yaml work/etl/templates/lost.yaml:1",
			"standard input :14", "standard input :19",
		}},
		"kustomization": {files: resource.FilenameOptions{Kustomize: "overlay"}, want: []string{"overlay work/overlay/kustomization.yaml:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, place := range placesOf(t, tc.files, tc.stdin) {
				got = append(got, fmt.Sprintf("%s %s:%d", place.File, place.RepositoryPath, place.Line))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("places (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLineOf(t *testing.T) {
	repositoryWith(t, map[string]string{"work/jobs.yaml": twoJobs, "work/rendered.yaml": rendered})
	jobs := placesOf(t, resource.FilenameOptions{Filenames: []string{"jobs.yaml"}}, "")
	rendered := placesOf(t, resource.FilenameOptions{Filenames: []string{"rendered.yaml"}}, "")
	for name, tc := range map[string]struct {
		place           source.Place
		path, container string
		want            int
	}{
		"object":                     {jobs[0], "", "", 2},
		"container":                  {jobs[0], "", "proxy", 11},
		"container in a part":        {jobs[0], "spec.template", "main", 10},
		"container of another part":  {jobs[0], "metadata", "main", 4},
		"field":                      {jobs[0], "spec.template.spec.restartPolicy", "", 8},
		"item of a list":             {jobs[0], "spec.template.spec.containers[1].name", "", 12},
		"missing field":              {jobs[0], "spec.template.spec.containers[0].image", "", 10},
		"index out of range":         {jobs[0], "spec.template.spec.containers[99999999999999999999].x", "", 9},
		"unclosed bracket":           {jobs[0], "spec[", "", 5},
		"container of a list's item": {jobs[1], "", "main", 20},
		"label with a dot":           {jobs[1], "spec.template.metadata.labels[app.example/team]", "", 20},
		"rendered by Helm":           {rendered[1], "", "proxy", 1},
		"unknown":                    {source.Place{}, "spec", "main", 0},
	} {
		if got := tc.place.LineOf(tc.path, tc.container); got != tc.want {
			t.Errorf("%s: line %d, want %d", name, got, tc.want)
		}
	}
}
