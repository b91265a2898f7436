// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sidecar-termination/operator/cli/source"
	"github.com/sidecar-termination/operator/hack/testenv"
	"github.com/sidecar-termination/operator/internal/settings"
)

func TestOperatorArguments(t *testing.T) {
	deployment := &appsv1.Deployment{}
	if _, ok := source.OperatorArguments(deployment); ok {
		t.Error("a Deployment without the operator's container has arguments")
	}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "metrics-proxy", Args: []string{"--other"}}, {
		Name:    settings.ContainerName,
		Command: []string{"/sidecar-termination-operator", "--crr=Disabled"},
		Args:    []string{"--quick-exit-image=$(IMAGE)", "--a=$$(IMAGE)", "--b=$(UNKNOWN)", "--c=$(SECRET)", "--d=$5"},
		Env: []corev1.EnvVar{
			{Name: "REGISTRY", Value: "registry.example"},
			{Name: "IMAGE", Value: "$(REGISTRY)/quick-exit:v1"},
			{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{}},
		},
	}}
	got, ok := source.OperatorArguments(deployment)
	want := []string{"--crr=Disabled", "--quick-exit-image=registry.example/quick-exit:v1", "--a=$(IMAGE)", "--b=$(UNKNOWN)", "--c=$(SECRET)", "--d=$5"}
	if !ok || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, ok, want)
	}
}

func TestInstalledArgumentsAreThoseOfTheDefaultInstallation(t *testing.T) {
	for _, object := range testenv.Render(t, "../../config/default") {
		if object.GetKind() != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
			t.Fatal(err)
		}
		if got, ok := source.OperatorArguments(deployment); !ok || !slices.Equal(got, settings.InstalledArguments()) {
			t.Errorf("config/default has the arguments %q, want %q", got, settings.InstalledArguments())
		}
		return
	}
	t.Error("config/default has no Deployment")
}

const (
	job        = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: app}]}}}\n"
	deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s, labels: {app.kubernetes.io/name: %s}}\n" +
		"spec: {template: {spec: {containers: [{name: %s, image: app, args: [--quick-exit-image=%s]}]}}}\n"
)

// installed returns a Deployment of the operator with the quick-exit image.
func installed(name, image string) string {
	return fmt.Sprintf(deployment, name, settings.Name, settings.ContainerName, image)
}

func TestFlagsOfTheOperatorInManifests(t *testing.T) {
	shipped, err := settings.Parse(settings.InstalledArguments())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		manifests string
		flags     []string
		want      string
		note      string
	}{
		"no Deployment":             {manifests: job, want: shipped.Resolve.Image},
		"Deployment":                {manifests: installed("one", "own:v1"), want: "own:v1"},
		"Deployment without image":  {manifests: installed("one", ""), want: ""},
		"two Deployments":           {manifests: installed("one", "own:v1") + "---\n" + installed("two", "own:v2"), want: "own:v1", note: "found 2 Deployments of the operator: the flags of batch/one are used"},
		"Deployment of another app": {manifests: fmt.Sprintf(deployment, "web", "web", settings.ContainerName, "own:v1"), want: shipped.Resolve.Image},
		"other container":           {manifests: fmt.Sprintf(deployment, "web", settings.Name, "web", "own:v1"), want: shipped.Resolve.Image},
		"flag":                      {manifests: installed("one", "own:v1"), flags: []string{"--quick-exit-image=flag:v1"}, want: "flag:v1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := read(t, tc.manifests, tc.flags...)
			if got := s.Settings.Resolve.Image; got != tc.want {
				t.Errorf("quick-exit image is %q, want %q", got, tc.want)
			}
			if notes := strings.Join(s.Notes(), "\n"); !strings.Contains(notes, tc.note) || tc.note == "" && notes != "" {
				t.Errorf("notes are %q, want %q", notes, tc.note)
			}
		})
	}
}

func TestInvalidFlagsOfTheOperatorInManifests(t *testing.T) {
	files := source.Files{}
	files.Filenames = []string{"-"}
	const want = "read the flags of Deployment batch/one: --quick-exit-image"
	if _, err := files.Read(t.Context(), strings.NewReader(installed("one", "$(IMAGE)")), "batch"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
}
