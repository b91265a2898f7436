// SPDX-License-Identifier: Apache-2.0

package dist_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
)

const config = "../../../config"

// commandLine stands for the archives of the command line.
var commandLine = map[string][]byte{"kubectl-sidecar_termination-linux-amd64.tar.gz": []byte("archive")}

func write(t *testing.T) (directory string, names []string) {
	t.Helper()
	directory = filepath.Join(t.TempDir(), "dist")
	names, err := dist.Write(config, directory, commandLine)
	if err != nil {
		t.Fatal(err)
	}
	if layout := names[len(names)-1]; layout != dist.ChartLayout {
		t.Fatalf("the last name is %s, not the layout of the chart", layout)
	}
	return directory, names[:len(names)-1]
}

func TestFilesAreReproducible(t *testing.T) {
	first, names := write(t)
	second, _ := write(t)
	for _, name := range names {
		if one, other := read(t, first, name), read(t, second, name); one != other {
			t.Errorf("%s differs in the second build", name)
		}
	}
}

func TestChecksumsAreThoseOfAllFiles(t *testing.T) {
	directory, names := write(t)
	var want []string
	for _, name := range names {
		if name != dist.ChecksumFile {
			want = append(want, fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(read(t, directory, name))), name))
		}
	}
	if got := read(t, directory, dist.ChecksumFile); got != strings.Join(want, "") || len(want) != 5 {
		t.Errorf("checksums are\n%s\nwant\n%s", got, strings.Join(want, ""))
	}
}

func TestManifestsHaveWhatTheyAreNamedFor(t *testing.T) {
	directory, _ := write(t)
	install, crds := read(t, directory, dist.InstallFile), read(t, directory, dist.CRDFile)
	for _, kind := range []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Deployment"} {
		if !strings.Contains(install, "\nkind: "+kind+"\n") {
			t.Errorf("%s has no %s", dist.InstallFile, kind)
		}
	}
	documents := strings.Count("\n"+crds, "\napiVersion: ")
	if definitions := strings.Count(crds, "\nkind: CustomResourceDefinition\n"); definitions != 2 || documents != 2 {
		t.Errorf("%s has %d definitions in %d documents, want 2", dist.CRDFile, definitions, documents)
	}
}

func TestArchiveHasTheComponent(t *testing.T) {
	directory, _ := write(t)
	file, err := os.Open(filepath.Join(directory, dist.ComponentFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.Unix() != 0 || header.Mode != 0o644 || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s depends on who makes it: %+v", header.Name, header)
		}
		names = append(names, header.Name)
	}
	if !slices.Contains(names, "component/kustomization.yaml") {
		t.Errorf("the archive has %v only", names)
	}
}

func TestChartIsReplaced(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "chart")
	if err := dist.WriteChart(config, directory); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(directory, "templates", "stale.yaml")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dist.WriteChart(config, directory); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("a file of the old chart is still there")
	}
	for _, name := range []string{"Chart.yaml", "templates/deployment.yaml", "files/rbac/role.yaml"} {
		if read(t, directory, name) == "" {
			t.Errorf("%s is empty", name)
		}
	}
}

func TestChartLayoutHasTheArchive(t *testing.T) {
	directory, _ := write(t)
	layout := filepath.Join(directory, dist.ChartLayout)
	digest, err := dist.ChartDigest(directory)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := filepath.Glob(filepath.Join(directory, dist.ChartName+"-*.tgz"))
	if err != nil || len(archive) != 1 {
		t.Fatalf("archives %v, %v", archive, err)
	}
	content := []byte(read(t, directory, filepath.Base(archive[0])))
	manifest := read(t, layout, "blobs/sha256/"+digest)
	for _, part := range []string{
		dist.Digest(content), "application/vnd.cncf.helm.config.v1+json", "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
	} {
		if !strings.Contains(manifest, part) {
			t.Errorf("the manifest has no %s:\n%s", part, manifest)
		}
	}
	again := t.TempDir()
	if err := dist.WriteChartLayout(filepath.Join(again, dist.ChartLayout), content); err != nil {
		t.Fatal(err)
	}
	if second, err := dist.ChartDigest(again); err != nil || second != digest {
		t.Errorf("the second layout has the digest %s, %v; want %s", second, err, digest)
	}
}

func TestVersionsOfTheSourcesAgree(t *testing.T) {
	version, err := dist.Version(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := dist.CheckVersion(config, version); err != nil {
		t.Error(err)
	}
	copied := filepath.Join(t.TempDir(), "config")
	if err := os.CopyFS(copied, os.DirFS(config)); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"chart/Chart.yaml", "default/kustomization.yaml", "default/quick_exit_image.yaml", "chart/values.yaml"} {
		t.Run(file, func(t *testing.T) {
			original := read(t, copied, file)
			changed := strings.ReplaceAll(original, strings.TrimPrefix(version, "v"), "9.9.9")
			for _, content := range []string{changed, original} {
				if err := os.WriteFile(filepath.Join(copied, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := dist.CheckVersion(copied, version); (err == nil) != (content == original) {
					t.Errorf("error %v; want one only for another version", err)
				}
			}
		})
	}
}

func TestOldFilesAreRemoved(t *testing.T) {
	directory := t.TempDir()
	oldChart := filepath.Join(directory, "sidecar-termination-operator-0.0.1.tgz")
	oldProgram := filepath.Join(directory, "kubectl-sidecar_termination-plan9-amd64.tar.gz")
	other := filepath.Join(directory, "images")
	for _, file := range []string{oldChart, oldProgram, other} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := dist.Write(config, directory, nil); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{oldChart, oldProgram} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s is still there", file)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("something else was removed: %v", err)
	}
}

func TestMissingKustomizationsAreNamed(t *testing.T) {
	if _, err := dist.Write(t.TempDir(), t.TempDir(), nil); err == nil {
		t.Error("nothing was rendered, and nothing was said")
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
