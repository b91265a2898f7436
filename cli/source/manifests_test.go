// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/internal/settings"
)

// read returns the manifests in the text, with the default namespace batch, and their source.
func read(t *testing.T, text string) (source.Manifests, *source.Source) {
	t.Helper()
	files := source.Files{}
	files.Filenames = []string{"-"}
	return readFiles(t, &files, text)
}

// readFiles is read for files with the text as standard input.
func readFiles(t *testing.T, files *source.Files, text string, arguments ...string) (source.Manifests, *source.Source) {
	t.Helper()
	manifests, err := files.Read(t.Context(), strings.NewReader(text), "batch")
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.BindDecisions(flags)
	if err := flags.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	s, err := manifests.Source(func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }, flags)
	if err != nil {
		t.Fatal(err)
	}
	return manifests, s
}

func TestGenerateName(t *testing.T) {
	const spec = "spec: {restartPolicy: Never, containers: [{name: main, image: app}]}"
	for name, tc := range map[string]struct {
		manifest, want string
	}{
		"Pod":     {"apiVersion: v1\nkind: Pod\nmetadata: {generateName: load-}\n" + spec, "Pod batch/load-*"},
		"Job":     {"apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: load-}\nspec: {template: {" + spec + "}}", "Job batch/load-*"},
		"CronJob": {"apiVersion: batch/v1\nkind: CronJob\nmetadata: {generateName: load-}\nspec: {jobTemplate: {spec: {template: {" + spec + "}}}}", "CronJob batch/load-*"},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, s := read(t, tc.manifest)
			workload, err := s.Workload(t.Context(), manifests.Objects[0])
			if err != nil || len(workload.Templates) != 1 {
				t.Fatalf("gather: %v, %v", workload, err)
			}
			pod := workload.Templates[0].Pod
			report := s.Explain(pod)
			if got := report.Kind + " " + report.Namespace + "/" + report.Name; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if len(pod.Pod.Labels) > 0 {
				t.Errorf("labels contain an unknown name: %v", pod.Pod.Labels)
			}
		})
	}
}

func TestDeadlineOfStartedJob(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: load-1, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: load, uid: u, controller: true}]}\n" +
		"spec: {restartPolicy: Never, containers: [{name: main, image: app}]}\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: load, uid: u}\n"
	const spec = "template: {spec: {restartPolicy: Never, containers: [{name: main, image: app}]}}"
	const started = "\nstatus: {startTime: '2026-03-01T11:59:00Z'}"
	for name, tc := range map[string]struct {
		job  string
		want time.Time
	}{
		"started":     {"spec: {activeDeadlineSeconds: 90, " + spec + "}" + started, time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)},
		"not started": {"spec: {activeDeadlineSeconds: 90, " + spec + "}", time.Time{}},
		"no deadline": {"spec: {" + spec + "}" + started, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, s := read(t, pod+tc.job)
			got, err := s.Pod(t.Context(), manifests.Objects[0].Object.(*corev1.Pod))
			if err != nil || got.Job != "load" || !got.JobDeadline.Equal(tc.want) {
				t.Errorf("Job %q, deadline %v: %v; want %v", got.Job, got.JobDeadline, err, tc.want)
			}
		})
	}
}

func TestNamespaceNotInManifests(t *testing.T) {
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
		"all namespaces":              {job + policy("{}"), true, false},
		"by namespace name":           {job + policy("{matchLabels: {kubernetes.io/metadata.name: batch}}"), true, false},
		"by another name":             {job + policy("{matchLabels: {kubernetes.io/metadata.name: other}}"), false, false},
		"by unknown label":            {job + policy("{matchLabels: {tenant: \"yes\"}}"), false, true},
		"by absence of unknown label": {job + policy("{matchExpressions: [{key: tenant, operator: DoesNotExist}]}"), true, true},
		"by label of given namespace": {job + policy("{matchLabels: {tenant: \"yes\"}}") + namespace, true, false},
		"by name of given namespace":  {job + policy("{matchLabels: {kubernetes.io/metadata.name: batch}}") + namespace, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, s := read(t, strings.TrimPrefix(tc.manifests, "\n---\n"))
			workload, err := s.Workload(t.Context(), manifests.Objects[0])
			if err != nil {
				t.Fatal(err)
			}
			if selected := len(workload.Templates[0].Policies) == 1; selected != tc.selected {
				t.Errorf("the policy selects the Job's pods: %v, want %v", selected, tc.selected)
			}
			if noted := len(s.Notes()) == 1; noted != tc.noted {
				t.Errorf("notes are %q", s.Notes())
			}
		})
	}
}
