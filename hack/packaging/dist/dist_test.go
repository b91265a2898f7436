// SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/internal/settings"
)

const repository = "../../.."

// written returns a directory of manifests that name the images by the digests.
func written(t *testing.T, digests map[string]string) string {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "dist")
	if _, err := dist.WriteManifests(filepath.Join(repository, "config"), directory, digests); err != nil {
		t.Fatal(err)
	}
	return directory
}

func TestFiles(t *testing.T) {
	first, second := written(t, nil), written(t, nil)
	for _, name := range []string{dist.InstallFile, dist.InstallOldFile, dist.CRDFile, dist.ComponentFile, dist.ChartFile(settings.Release)} {
		if read(t, first, name) != read(t, second, name) {
			t.Errorf("%s differs in the second build", name)
		}
	}
	component, chart := unpack(t, read(t, first, dist.ComponentFile)), unpack(t, read(t, first, dist.ChartFile(settings.Release)))
	if component["component/kustomization.yaml"] == "" || chart[settings.Name+"/templates/deployment.yaml"] == "" || chart[settings.Name+"/files/rbac/role.yaml"] == "" {
		t.Error("an archive lacks a file")
	}
	install, crds := read(t, first, dist.InstallFile), read(t, first, dist.CRDFile)
	for _, kind := range []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Deployment"} {
		if !strings.Contains(install, "\nkind: "+kind+"\n") {
			t.Errorf("%s has no %s", dist.InstallFile, kind)
		}
	}
	if definitions := strings.Count(crds, "\nkind: CustomResourceDefinition\n"); definitions != 2 || strings.Count(crds, "\nkind: ") != 2 {
		t.Errorf("%s has %d definitions or other objects, want 2", dist.CRDFile, definitions)
	}
	// The version of the chart is that of the program. TestReleasePinsImages has those of the images.
	for _, line := range []string{"version: " + strings.TrimPrefix(settings.Release, "v"), "appVersion: " + settings.Release} {
		if !strings.Contains(chart[settings.Name+"/Chart.yaml"], "\n"+line+"\n") {
			t.Errorf("Chart.yaml has no line %s", line)
		}
	}
}

// A release names both images by tag and digest wherever it names one of them, in the manifest and in the chart.
func TestReleasePinsImages(t *testing.T) {
	layouts, built := writeImages(t, dist.ImagePlatforms()[:1])
	digests, err := dist.Digests(layouts)
	if err != nil {
		t.Fatal(err)
	}
	directory := written(t, digests)
	chart := unpack(t, read(t, directory, dist.ChartFile(settings.Release)))
	references := regexp.MustCompile(`\bghcr\.io/sidecar-termination/[a-z-]+:[\w.@:-]+`)
	pinned := func(images ...string) []string {
		var all []string
		for _, image := range images {
			all = append(all, "ghcr.io/sidecar-termination/"+image+":"+settings.Release+"@"+built[slices.Index(imageNames, image)])
		}
		return all
	}
	for name, tc := range map[string]struct {
		content string
		want    []string
	}{
		dist.InstallFile: {read(t, directory, dist.InstallFile), pinned(dist.QuickExitImage, dist.OperatorImage)},
		"Chart.yaml":     {chart[settings.Name+"/Chart.yaml"], pinned(dist.OperatorImage, dist.QuickExitImage)},
		"values.yaml":    {chart[settings.Name+"/values.yaml"], pinned(dist.QuickExitImage)},
	} {
		if diff := cmp.Diff(tc.want, references.FindAllString(tc.content, -1)); diff != "" {
			t.Errorf("images of %s (-want +got):\n%s", name, diff)
		}
	}
}

// The directory of the sources is not in the archives.
func TestPluginsAreReproducible(t *testing.T) {
	for os, name := range map[string]string{"darwin": settings.PluginProgram, "windows": settings.PluginProgram + ".exe"} {
		platform := v1.Platform{OS: os, Architecture: "amd64"}
		first, second := plugin(t, platform), plugin(t, platform)
		if first != second {
			t.Errorf("%s differs in the second build", dist.PluginFile(platform))
		}
		files := unpack(t, first)
		if files[name] == "" || files["LICENSE"] != "licence\n" {
			t.Errorf("%s lacks %s or the licence", dist.PluginFile(platform), name)
		}
		if completes := files["kubectl_complete-sidecar_termination"] != ""; completes != (os != "windows") {
			t.Errorf("%s has a program for shells: %t", dist.PluginFile(platform), completes)
		}
	}
}

// module returns another directory at each call, with a module that has the programs and compiles in seconds.
func module(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	files := map[string]string{
		"go.mod": "module example.com/programs\n", "LICENSE": "licence\n",
		filepath.Join("cmd", settings.PluginProgram, "kubectl_complete-sidecar_termination"): "#!/bin/sh\n",
	}
	for _, program := range []string{".", "hack/localcluster/images/quickexit", filepath.Join("cmd", settings.PluginProgram)} {
		files[filepath.Join(program, "main.go")] = "package main\n\nfunc main() {}\n"
	}
	for name, content := range files {
		file := filepath.Join(directory, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"init --quiet", "-c user.name=a -c user.email=a@b.example commit --quiet --allow-empty --message=a"} {
		run := exec.CommandContext(t.Context(), "git", append([]string{"-C", directory}, strings.Fields(command)...)...)
		run.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z")
		if output, err := run.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", command, err, output)
		}
	}
	return directory
}

// plugin returns an archive, built from another directory at each call.
func plugin(t *testing.T, platform v1.Platform) string {
	t.Helper()
	written, err := dist.WritePlugin(t.Context(), module(t), t.TempDir(), []v1.Platform{platform})
	if err != nil {
		t.Fatal(err)
	}
	return read(t, filepath.Dir(written[0]), dist.PluginFile(platform))
}

// unpack returns the files of an archive. Nothing in it depends on the user or the time.
func unpack(t *testing.T, content string) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.Unix() != 0 || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s has the owner or time %+v", header.Name, header)
		}
		file := &bytes.Buffer{}
		if _, err := io.Copy(file, reader); err != nil {
			t.Fatal(err)
		}
		files[header.Name] = file.String()
	}
}

func read(t *testing.T, directory, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(directory, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
