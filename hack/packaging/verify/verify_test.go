// SPDX-License-Identifier: Apache-2.0

//go:build packaging

package verify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	packer "github.com/sidecar-termination/operator/hack/packaging/archive"
	"github.com/sidecar-termination/operator/hack/packaging/attest"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/hack/packaging/images"
	"github.com/sidecar-termination/operator/hack/packaging/plugin"
	"github.com/sidecar-termination/operator/hack/packaging/verify"
)

const (
	// generator is what `make bin/cyclonedx-gomod` builds.
	generator = attest.Generator("../../../bin/cyclonedx-gomod")
	archive   = "kubectl-sidecar_termination-linux-amd64.tar.gz"
	sbom      = "kubectl-sidecar_termination-linux-amd64.cdx.json"
	imageSBOM = "sidecar-termination-operator-image-linux-arm64.spdx.json"
	commit    = "0123456789abcdef0123456789abcdef01234567"
)

// build writes a small release: one archive, both images, a text, and what describes them.
func build(ctx context.Context, directory string, parameters attest.Parameters) error {
	module := filepath.Join("..", "testdata", "program")
	files, err := plugin.Archives(ctx, module, []v1.Platform{{OS: "linux", Architecture: "amd64"}})
	if err != nil {
		return err
	}
	files["install.yaml"] = []byte("kind: Namespace\n")
	chart, err := chartArchive()
	if err != nil {
		return err
	}
	files[dist.ChartFile("0.1.0")] = chart
	if err := dist.WriteChartLayout(filepath.Join(directory, dist.ChartLayout), chart); err != nil {
		return err
	}
	files[dist.ChecksumFile] = dist.Checksums(maps.Clone(files))
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			return err
		}
	}
	if _, err := images.Write(ctx, module, filepath.Join(directory, attest.ImagesDirectory), "latest", images.Platforms()); err != nil {
		return err
	}
	_, err = attest.Write(ctx, generator, directory, parameters)
	return err
}

// chartArchive returns the operator's chart.
func chartArchive() (packed []byte, err error) {
	directory, err := os.MkdirTemp("", "chart-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	if err := dist.WriteChart(filepath.Join("..", "..", "..", "config"), filepath.Join(directory, dist.ChartName)); err != nil {
		return nil, err
	}
	return packer.TarGzip(directory)
}

func TestReleases(t *testing.T) {
	original := t.TempDir()
	parameters := attest.Parameters{
		Version: "v1.2.3", Repository: "https://example.test/repository", Commit: commit,
		Builder: "https://example.test/builder", Date: time.Unix(1_700_000_000, 0),
	}
	if err := build(t.Context(), original, parameters); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*testing.T, string)
		// want are parts of the first lines with problems. Nothing else may fail if it is empty.
		want    []string
		rebuild bool
	}{
		"intact":                     {change: func(*testing.T, string) {}},
		"intact and rebuilt":         {change: func(*testing.T, string) {}, rebuild: true},
		"without images":             {change: remove("images")},
		"without images, rebuilt":    {change: remove("images"), rebuild: true},
		"without the chart":          {change: remove("charts")},
		"without the chart, rebuilt": {change: remove("charts"), rebuild: true},
		"notes":                      {change: write("release-notes.md", "x")},
		"changed archive":            {change: flip(archive), want: []string{archive + ": SHA-256 is "}},
		"changed text":               {change: flip("install.yaml"), want: []string{"install.yaml: SHA-256 is ", "provenance.json: the digest of install.yaml is "}},
		"changed SBOM":               {change: flip(sbom), want: []string{sbom + ": SHA-256 is "}},
		"changed provenance":         {change: flip("provenance.json"), want: []string{"provenance.json: SHA-256 is "}},
		"changed checksum":           {change: edit(dist.ChecksumFile, "  install.yaml", "0  install.yaml"), want: []string{"SHA256SUMS: parse SHA256SUMS: invalid line "}},
		"changed name in the checksums": {change: edit(dist.ChecksumFile, "  install.yaml", "  instal1.yaml"),
			want: []string{"instal1.yaml: missing, but SHA256SUMS lists it", "install.yaml: not a part of the release", "provenance.json: names the subject install.yaml, which is missing"}},
		"path in the checksums":   {change: edit(dist.ChecksumFile, "  install.yaml", "  ../install.yaml"), want: []string{`SHA256SUMS: parse SHA256SUMS: invalid file name "../install.yaml"`}},
		"line twice":              {change: doubleLine, want: []string{"SHA256SUMS: parse SHA256SUMS: install.yaml is listed twice"}},
		"no checksums":            {change: remove(dist.ChecksumFile), want: []string{"SHA256SUMS: open "}},
		"extra file":              {change: write("extra.txt", "x"), want: []string{"extra.txt: not a part of the release, SHA256SUMS does not list it: remove it"}},
		"signature without a key": {change: write("SHA256SUMS.sigstore.json", "{}")},
		"signature of no file":    {change: write("extra.txt.sig", "x"), want: []string{"extra.txt.sig: not a part of the release"}},
		"missing file": {change: remove("install.yaml"),
			want: []string{"install.yaml: missing, but SHA256SUMS lists it: download it", "provenance.json: names the subject install.yaml, which is missing"}},
		"missing archive":    {change: remove(archive), want: []string{archive + ": missing, but SHA256SUMS lists it: download it"}},
		"missing SBOM":       {change: remove(imageSBOM), want: []string{imageSBOM + ": missing, but SHA256SUMS lists it: download it"}},
		"missing provenance": {change: remove("provenance.json"), want: []string{"provenance.json: missing, but SHA256SUMS lists it: download it"}},
		"missing image": {change: remove("images/quick-exit"),
			want: []string{"provenance.json: names the subject images/quick-exit, which is missing", "provenance.json: names the subject images/quick-exit@linux/amd64, which is missing"}},
		"changed layer":                 {change: flipBlob("images/quick-exit", false), want: []string{"images/quick-exit: "}},
		"changed manifest":              {change: flipBlob("images/quick-exit", true), want: []string{"images/quick-exit: "}},
		"extra blob":                    {change: write("images/quick-exit/blobs/sha256/extra", "x"), want: []string{"images/quick-exit: blobs/sha256/extra is not a part of the image"}},
		"changed chart in the layout":   {change: flipBlob(dist.ChartLayout, false), want: []string{dist.ChartLayout + ": blobs/sha256/"}},
		"changed manifest of the chart": {change: flipBlob(dist.ChartLayout, true), want: []string{dist.ChartLayout + ": blobs/sha256/"}},
		"extra blob of the chart":       {change: write(dist.ChartLayout+"/blobs/sha256/extra", "x"), want: []string{dist.ChartLayout + ": blobs/sha256/extra is not a part of the chart"}},
		"another chart in the layout":   {change: edit(dist.ChartLayout+"/index.json", "sha256:", "sha256:0"), want: []string{dist.ChartLayout + ": "}},
		"extra image":                   {change: write("images/other/oci-layout", "{}"), want: []string{"images/other: "}},
		"archive and checksums":         {change: sums(flip(archive)), want: []string{"provenance.json: the digest of " + archive + " is "}},
		"SBOM and checksums":            {change: sums(flip(sbom)), want: []string{"provenance.json: the digest of " + sbom + " is "}},
		"extra file and checksums":      {change: sums(write("extra.txt", "x")), want: []string{"provenance.json: does not name the subject extra.txt"}},
		"unknown type of build":         {change: sums(edit("provenance.json", "packages.md#provenance", "packages.md#other")), want: []string{"provenance.json: parse provenance.json: buildType is "}},
		"SBOM without a module":         {change: subjects(edit(sbom, `"name": "std"`, `"name": "other"`)), want: []string{sbom + ": it does not name the module std@go1."}},
		"SBOM of another image": {change: subjects(swap(imageSBOM, "sidecar-termination-operator-image-linux-amd64.spdx.json")),
			want: []string{"sidecar-termination-operator-image-linux-amd64.spdx.json: it describes something with the digest ", imageSBOM + ": it describes something with the digest "}},
		"SBOM of another version": {change: subjects(edit(imageSBOM, `"versionInfo": "v1.2.3"`, `"versionInfo": "v1.2.4"`)), want: []string{imageSBOM + ": it names the program example.test/program@v1.2.4, want example.test/program@v1.2.3"}},
		"no document":             {change: subjects(write(sbom, "{}")), want: []string{sbom + ": parse the SBOM: it is no CycloneDX document with components"}},
		"other sources":           {change: subjects(write("install.yaml", "kind: Pod\n")), rebuild: true, want: []string{"rebuild: install.yaml differs from what commit " + commit, "rebuild: provenance.json differs"}},
		"file without sources":    {change: subjects(write("extra.txt", "x")), rebuild: true, want: []string{"rebuild: provenance.json differs", "rebuild: commit " + commit + " does not give the file extra.txt"}},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			if err := os.CopyFS(directory, os.DirFS(original)); err != nil {
				t.Fatal(err)
			}
			test.change(t, directory)
			options := verify.Options{Directory: directory}
			if test.rebuild {
				options.Rebuild = build
			}
			var output bytes.Buffer
			err := verify.Release(t.Context(), options, &output)
			requireProblems(t, output.String(), err, test.want)
		})
	}
}

func requireProblems(t *testing.T, output string, err error, want []string) {
	t.Helper()
	var problems []string
	for line := range strings.Lines(output) {
		if problem, ok := strings.CutPrefix(line, "FAIL  "); ok {
			problems = append(problems, problem)
		}
	}
	if (len(problems) > 0) != (err != nil) || (len(want) == 0 && len(problems) > 0) || len(problems) < len(want) {
		t.Fatalf("error %v and problems\n%s\nwant %q", err, output, want)
	}
	// Signatures are checked between the checksums and the rest.
	for _, part := range want {
		found := false
		for i, problem := range problems {
			if found = strings.HasPrefix(problem, part); found {
				problems = problems[i+1:]
				break
			}
		}
		if !found {
			t.Errorf("no problem %q in this order in\n%s", part, output)
		}
	}
}

type change = func(*testing.T, string)

func flip(name string) change {
	return func(t *testing.T, directory string) {
		t.Helper()
		content := read(t, directory, name)
		content[len(content)/2] ^= 1
		writeFile(t, directory, name, content)
	}
}

// flipBlob changes the largest or smallest file of a layout.
func flipBlob(layout string, smallest bool) change {
	return func(t *testing.T, directory string) {
		t.Helper()
		blobs := filepath.Join(layout, "blobs", "sha256")
		entries, err := os.ReadDir(filepath.Join(directory, blobs))
		if err != nil {
			t.Fatal(err)
		}
		chosen, size := "", int64(-1)
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil {
				t.Fatal(err)
			}
			if size < 0 || (info.Size() < size) == smallest {
				chosen, size = entry.Name(), info.Size()
			}
		}
		flip(filepath.Join(blobs, chosen))(t, directory)
	}
}

func edit(name, old, replacement string) change {
	return func(t *testing.T, directory string) {
		t.Helper()
		content := read(t, directory, name)
		if !bytes.Contains(content, []byte(old)) {
			t.Fatalf("%s has no %q", name, old)
		}
		writeFile(t, directory, name, bytes.ReplaceAll(content, []byte(old), []byte(replacement)))
	}
}

func doubleLine(t *testing.T, directory string) {
	t.Helper()
	content := string(read(t, directory, dist.ChecksumFile))
	for line := range strings.Lines(content) {
		if strings.HasSuffix(line, "  install.yaml\n") {
			content += line
		}
	}
	writeFile(t, directory, dist.ChecksumFile, []byte(content))
}

func remove(name string) change {
	return func(t *testing.T, directory string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(directory, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func write(name, content string) change {
	return func(t *testing.T, directory string) {
		t.Helper()
		writeFile(t, directory, name, []byte(content))
	}
}

func swap(one, other string) change {
	return func(t *testing.T, directory string) {
		t.Helper()
		first, second := read(t, directory, one), read(t, directory, other)
		writeFile(t, directory, one, second)
		writeFile(t, directory, other, first)
	}
}

// sums makes a change and corrects the checksums.
func sums(inner change) change {
	return func(t *testing.T, directory string) {
		t.Helper()
		inner(t, directory)
		files := topFiles(t, directory)
		writeFile(t, directory, dist.ChecksumFile, dist.Checksums(files))
	}
}

// subjects makes a change, and corrects the provenance and the checksums.
func subjects(inner change) change {
	return sums(func(t *testing.T, directory string) {
		t.Helper()
		inner(t, directory)
		statement, err := attest.ParseStatement(read(t, directory, attest.ProvenanceFile))
		if err != nil {
			t.Fatal(err)
		}
		digests := map[string]string{}
		for _, subject := range statement.Subject {
			digests[subject.Name] = subject.Digest["sha256"]
		}
		for name, content := range topFiles(t, directory) {
			if name != attest.ProvenanceFile {
				digests[name] = dist.Digest(content)
			}
		}
		content, err := json.Marshal(attest.NewStatement(digests, statement.Parameters()))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, directory, attest.ProvenanceFile, content)
	})
}

func topFiles(t *testing.T, directory string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if !entry.IsDir() && entry.Name() != dist.ChecksumFile {
			files[entry.Name()] = read(t, directory, entry.Name())
		}
	}
	return files
}

func read(t *testing.T, directory, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(directory, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func writeFile(t *testing.T, directory, name string, content []byte) {
	t.Helper()
	file := filepath.Join(directory, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
