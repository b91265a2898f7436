// SPDX-License-Identifier: Apache-2.0

// Package helm_test checks the chart with Helm's own code. It is a module of its own,
// because the operator needs none of that.
package helm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	repository = "../../.."
	chartName  = "sidecar-termination-operator"
	// namespace is the namespace of the kustomization, so that the objects can be compared.
	namespace = "sidecar-termination-system"
)

// built is the directory of the packages, which all tests share.
var built string

// TestMain makes the chart and the manifests before the tests, and removes them.
func TestMain(m *testing.M) {
	code := 1
	var err error
	if built, err = os.MkdirTemp("", "packages-"); err == nil {
		command := exec.Command("go", "run", "./hack/packaging", "manifests", "--output", built)
		command.Dir, command.Stderr = repository, os.Stderr
		if err = command.Run(); err == nil {
			code = m.Run()
		}
		_ = os.RemoveAll(built)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the packages:", err)
	}
	os.Exit(code)
}

// archive returns the path of the chart.
func archive(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(built, chartName+"-*.tgz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("archives are %v, %v", files, err)
	}
	return files[0]
}

// newest is a version of Kubernetes that has all that the chart can use.
var newest = kubernetes("36")

func kubernetes(minor string) *chartutil.KubeVersion {
	return &chartutil.KubeVersion{Version: "v1." + minor + ".0", Major: "1", Minor: minor}
}

// values are what a user gives.
type values = map[string]any

// everything turns everything on.
var everything = values{
	"commonLabels":      values{"team": "batch"},
	"commonAnnotations": values{"team": "batch"},
	"imageRegistry":     "mirror.example",
	"serviceMonitor":    values{"enabled": true},
	"prometheusRule":    values{"enabled": true},
	"dashboard":         values{"enabled": true},
	"networkPolicy":     values{"enabled": true},
}

// objects are the objects of a release by kind and name.
type objects = map[string]*unstructured.Unstructured

// render returns the objects of the release that the documentation installs, unless the installation is changed.
func render(t *testing.T, given values, change ...func(*action.Install)) objects {
	t.Helper()
	rendered, err := install(t, load(t), given, change...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, []byte(rendered.Manifest))
}

// install renders the chart as helm template does.
func install(t *testing.T, loaded *chart.Chart, given values, change ...func(*action.Install)) (*release.Release, error) {
	t.Helper()
	install := action.NewInstall(&action.Configuration{})
	install.DryRun, install.ClientOnly = true, true
	install.ReleaseName, install.Namespace = chartName, namespace
	install.KubeVersion = newest
	for _, c := range change {
		c(install)
	}
	rendered, err := install.RunWithContext(t.Context(), loaded, copied(given))
	if err == nil && !strings.Contains(rendered.Info.Notes, "kubectl -n "+install.Namespace+" rollout status deployment/") {
		t.Errorf("the notes do not say where the operator is: %s", rendered.Info.Notes)
	}
	return rendered, err
}

// as installs with another name, in a namespace.
func as(name, namespace string) func(*action.Install) {
	return func(install *action.Install) { install.ReleaseName, install.Namespace = name, namespace }
}

// onKubernetes installs on a minor version of Kubernetes.
func onKubernetes(minor string) func(*action.Install) {
	return func(install *action.Install) { install.KubeVersion = kubernetes(minor) }
}

// copied returns a copy, because Helm changes the values that it merges.
func copied(from values) values {
	to := values{}
	for key, value := range from {
		if inner, ok := value.(values); ok {
			value = copied(inner)
		}
		to[key] = value
	}
	return to
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	loaded, err := loader.Load(archive(t))
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func decode(t *testing.T, content []byte) objects {
	t.Helper()
	objects := objects{}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) == 0 {
			continue
		}
		key := object.GetKind() + " " + object.GetName()
		if known := objects[key]; known != nil && known.GetNamespace() != object.GetNamespace() {
			key += " in " + object.GetNamespace()
		}
		if objects[key] != nil {
			t.Errorf("%s is rendered twice", key)
		}
		objects[key] = object
	}
}

// Artifact Hub shows and scans the images that an annotation lists.
func TestChartListsItsImages(t *testing.T) {
	metadata := load(t).Metadata
	manager := container(t, render(t, nil))
	for _, image := range []any{manager["image"], manager["env"].([]any)[0].(map[string]any)["value"]} {
		if !strings.Contains(metadata.Annotations["artifacthub.io/images"], fmt.Sprintf("image: %s\n", image)) {
			t.Errorf("artifacthub.io/images lacks %s", image)
		}
	}
}

func TestChartIsLinted(t *testing.T) {
	for name, given := range map[string]values{"defaults": {}, "everything": copied(everything)} {
		lint := action.NewLint()
		lint.Strict, lint.Namespace, lint.KubeVersion = true, namespace, newest
		result := lint.Run([]string{archive(t)}, given)
		for _, err := range result.Errors {
			t.Errorf("%s: %v", name, err)
		}
		for _, message := range result.Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, message)
			}
		}
	}
}
