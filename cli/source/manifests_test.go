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

// read returns the manifests in the text, with the default namespace batch, and their source with the flags of the operator.
func read(t *testing.T, text string, arguments ...string) (source.Manifests, *source.Source) {
	t.Helper()
	files := source.Files{}
	files.Filenames = []string{"-"}
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

func TestJobsForbiddenByStatusOfPolicy(t *testing.T) {
	const policy = "apiVersion: sidecartermination.dev/v1alpha1\nkind: SidecarTerminationPolicy\nmetadata: {name: mesh}\n"
	degraded := func(reason string) string {
		return "\nstatus: {conditions: [{type: Degraded, status: 'True', reason: " + reason + ", message: '', lastTransitionTime: '2026-03-01T11:59:00Z'}]}"
	}
	for name, tc := range map[string]struct {
		policy string
		want   bool
	}{
		"Jobs forbidden":       {policy + "spec: {includeInjected: true}" + degraded("JobsForbidden"), true},
		"stuck":                {policy + "spec: {includeInjected: true}" + degraded("Stuck"), false},
		"not degraded":         {policy + "spec: {includeInjected: true}", false},
		"status of older spec": {policy + "spec: {sidecars: [{name: proxy}]}" + degraded("JobsForbidden"), false},
		"other pods":           {policy + "spec: {podSelector: {matchLabels: {team: web}}, includeInjected: true}" + degraded("JobsForbidden"), false},
	} {
		manifests, s := read(t, job+"---\n"+tc.policy)
		workload, err := s.Workload(t.Context(), manifests.Objects[0])
		if err != nil || len(manifests.Rejected) > 0 || workload.Templates[0].JobsForbidden != tc.want {
			t.Errorf("%s: got %+v, rejected %v, %v", name, workload, manifests.Rejected, err)
		}
	}
}
