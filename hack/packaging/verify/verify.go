// SPDX-License-Identifier: Apache-2.0

// Package verify checks that the files and images of a release belong together, and that its sources give the same bytes.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/sidecar-termination/operator/hack/packaging/attest"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
)

// NotesFile has the notes of the release. They are not a file of the release: its page shows them.
const NotesFile = "release-notes.md"

// Options say what is checked.
type Options struct {
	// Directory has the files of the release.
	Directory string
	// Key is the file with the public key of the signatures. If empty, a signature is an error.
	Key string
	// Rebuild builds the release again into a directory. If nil, nothing is rebuilt.
	Rebuild func(ctx context.Context, directory string, parameters attest.Parameters) error
}

// Release checks a release and writes one line for each check and each problem. It returns an error if it has found a problem.
func Release(ctx context.Context, options Options, output io.Writer) error {
	r := &release{Options: options, report: report{output: output}, artifacts: map[string]attest.Artifact{}}
	r.checksums()
	r.signatures()
	r.images()
	r.chart()
	r.provenance()
	r.sboms()
	if err := r.rebuild(ctx); err != nil {
		return err
	}
	if r.failed > 0 {
		return fmt.Errorf("the release in %s has %d problems", options.Directory, r.failed)
	}
	return nil
}

// report writes the lines.
type report struct {
	output io.Writer
	failed int
}

func (r *report) pass(format string, arguments ...any) { r.line("ok  ", format, arguments...) }
func (r *report) skip(format string, arguments ...any) { r.line("skip", format, arguments...) }

func (r *report) fail(format string, arguments ...any) {
	r.failed++
	r.line("FAIL", format, arguments...)
}

func (r *report) line(result, format string, arguments ...any) {
	_, _ = fmt.Fprintf(r.output, "%s  %s\n", result, fmt.Sprintf(format, arguments...))
}

// passIf passes if nothing has failed since before.
func (r *report) passIf(before int, format string, arguments ...any) {
	if r.failed == before {
		r.pass(format, arguments...)
	}
}

type release struct {
	Options
	report
	// files are those that the checksums list, as far as they exist.
	files map[string][]byte
	// listed says that the checksums were read.
	listed bool
	// imageDigests are the digests of images and their platforms by the names of their subjects.
	imageDigests map[string]string
	// chartDigest is the digest of the chart's manifest, or empty without a layout of the chart.
	chartDigest string
	// artifacts are the archives and images by name.
	artifacts map[string]attest.Artifact
	// parameters are those of the provenance, or nil.
	parameters *attest.Parameters
}

func (r *release) path(name string) string { return filepath.Join(r.Directory, name) }

// checksums checks that the directory has the listed files and no others.
func (r *release) checksums() {
	before := r.failed
	r.files = map[string][]byte{}
	list, err := os.ReadFile(r.path(dist.ChecksumFile))
	if err != nil {
		r.fail("%s: %v: download it, or run `make dist images attest`", dist.ChecksumFile, err)
		return
	}
	sums, err := dist.ParseChecksums(list)
	if err != nil {
		r.fail("%s: %v: download it again", dist.ChecksumFile, err)
		return
	}
	r.listed = true
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		content, err := os.ReadFile(r.path(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			r.fail("%s: missing, but %s lists it: download it", name, dist.ChecksumFile)
			continue
		case err != nil:
			r.fail("%s: %v", name, err)
			continue
		}
		if got := dist.Digest(content); got != sums[name] {
			r.fail("%s: SHA-256 is %s, but %s has %s: download both again", name, got, dist.ChecksumFile, sums[name])
		}
		r.files[name] = content
	}
	r.extraFiles(sums)
	r.passIf(before, "%s: %d files", dist.ChecksumFile, len(sums))
}

func (r *release) extraFiles(sums map[string]string) {
	entries, err := os.ReadDir(r.Directory)
	if err != nil {
		r.fail("%s: %v", r.Directory, err)
		return
	}
	for _, entry := range entries {
		name := entry.Name()
		signed := strings.TrimSuffix(name, signatureSuffix)
		switch {
		case sums[name] != "", name == dist.ChecksumFile, name == bundleFile, name == NotesFile:
		case entry.IsDir() && (name == attest.ImagesDirectory || name == path.Dir(dist.ChartLayout)):
		case signed != name && (signed == dist.ChecksumFile || sums[signed] != ""):
		default:
			r.fail("%s: not a part of the release, %s does not list it: remove it", name, dist.ChecksumFile)
		}
	}
}

// images checks that the layouts of images have what their digests say and nothing else.
func (r *release) images() {
	r.imageDigests = map[string]string{}
	names, err := attest.Layouts(r.Directory)
	if err != nil {
		r.fail("%s: %v", attest.ImagesDirectory, err)
		return
	}
	if len(names) == 0 {
		r.skip("%s: the directory has no images. `make images` builds them, `skopeo copy` copies them from a registry", attest.ImagesDirectory)
	}
	for _, name := range names {
		if err := r.image(name); err != nil {
			r.fail("%s: %v: run `make images`, or copy the image again", attest.IndexSubject(name), err)
		}
	}
}

func (r *release) image(name string) error {
	index, artifacts, err := attest.Image(r.Directory, name)
	if err != nil {
		return err
	}
	if err := validate.Index(index); err != nil {
		return err
	}
	digests, err := attest.ImageDigests(name, index, artifacts)
	if err != nil {
		return err
	}
	if err := extraBlobs(r.path(attest.IndexSubject(name)), index); err != nil {
		return err
	}
	maps.Copy(r.imageDigests, digests)
	for _, artifact := range artifacts {
		r.artifacts[artifact.Name] = artifact
	}
	r.pass("%s: sha256:%s, %d platforms", attest.IndexSubject(name), digests[attest.IndexSubject(name)], len(artifacts))
	return nil
}

// chart checks that the layout of the chart has the chart of the release and nothing else.
func (r *release) chart() {
	if !r.listed {
		return
	}
	if _, err := os.Stat(r.path(dist.ChartLayout)); errors.Is(err, fs.ErrNotExist) {
		r.skip("%s: the directory has no chart for a registry. `make dist` builds it", dist.ChartLayout)
		return
	}
	if err := r.chartLayout(); err != nil {
		r.fail("%s: %v: run `make dist`, or copy the chart again", dist.ChartLayout, err)
		return
	}
	r.pass("%s: sha256:%s", dist.ChartLayout, r.chartDigest)
}

func (r *release) chartLayout() (err error) {
	charts := slices.Sorted(maps.Keys(r.files))
	charts = slices.DeleteFunc(charts, func(name string) bool { return !strings.HasSuffix(name, ".tgz") })
	if len(charts) != 1 {
		return fmt.Errorf("the release has %d archives of charts, not 1", len(charts))
	}
	directory, err := os.MkdirTemp("", "chart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	if err := dist.WriteChartLayout(directory, r.files[charts[0]]); err != nil {
		return err
	}
	want, err := contents(directory)
	if err != nil {
		return err
	}
	got, err := contents(r.path(dist.ChartLayout))
	if err != nil {
		return err
	}
	for name, content := range want {
		if strings.HasPrefix(name, "blobs/") && got[name] != content {
			return fmt.Errorf("%s is not the one of %s", name, charts[0])
		}
	}
	for name := range got {
		if want[name] == "" {
			return fmt.Errorf("%s is not a part of the chart", name)
		}
	}
	r.chartDigest, err = dist.ChartDigest(r.Directory)
	return err
}

// provenance checks that the subjects of the provenance are the files and images.
func (r *release) provenance() {
	if !r.listed {
		return
	}
	before := r.failed
	content, ok := r.files[attest.ProvenanceFile]
	if !ok {
		r.fail("%s: the release has no provenance: run `make attest`", attest.ProvenanceFile)
		return
	}
	statement, err := attest.ParseStatement(content)
	if err != nil {
		r.fail("%s: %v: download it again", attest.ProvenanceFile, err)
		return
	}
	parameters := statement.Parameters()
	r.parameters = &parameters
	want := r.subjects()
	seen := map[string]bool{}
	for _, subject := range statement.Subject {
		got := subject.Digest["sha256"]
		switch {
		case seen[subject.Name]:
			r.fail("%s: names the subject %s twice: download it again", attest.ProvenanceFile, subject.Name)
		case r.absent(subject.Name):
		case want[subject.Name] == "":
			r.fail("%s: names the subject %s, which is missing: download it, or run `make images` for an image", attest.ProvenanceFile, subject.Name)
		case want[subject.Name] != got:
			r.fail("%s: the digest of %s is %s, but the provenance has %s: download both again", attest.ProvenanceFile, subject.Name, want[subject.Name], got)
		}
		seen[subject.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !seen[name] {
			r.fail("%s: does not name the subject %s: run `make attest`, or download the release again", attest.ProvenanceFile, name)
		}
	}
	r.passIf(before, "%s: %d subjects, commit %s, builder %s", attest.ProvenanceFile, len(statement.Subject), parameters.Commit, parameters.Builder)
}

// subjects returns the digests of what the provenance has to name.
func (r *release) subjects() map[string]string {
	digests := maps.Clone(r.imageDigests)
	if r.chartDigest != "" {
		digests[dist.ChartLayout] = r.chartDigest
	}
	for name, content := range r.files {
		if name != attest.ProvenanceFile {
			digests[name] = dist.Digest(content)
		}
	}
	return digests
}

// absent says whether a name belongs to an image or to the chart for a registry, and the release has no images or no such chart here.
func (r *release) absent(name string) bool {
	return strings.HasPrefix(name, attest.ImagesDirectory+"/") && len(r.imageDigests) == 0 ||
		strings.HasPrefix(name, dist.ChartLayout) && r.chartDigest == ""
}

// sboms checks that each archive and image has SBOMs, and that they name exactly the modules in the program.
func (r *release) sboms() {
	if r.parameters == nil {
		return
	}
	archives, err := attest.Archives(r.files)
	if err != nil {
		r.fail("%v: download the archive again", err)
	}
	for _, archive := range archives {
		r.artifacts[archive.Name] = archive
	}
	for _, name := range slices.Sorted(maps.Keys(r.artifacts)) {
		artifact := r.artifacts[name]
		for _, file := range []string{artifact.CycloneDXFile(), artifact.SPDXFile()} {
			content, ok := r.files[file]
			if !ok {
				r.fail("%s: missing, %s has no SBOM: run `make attest`, or download the SBOM", file, name)
				continue
			}
			modules, err := attest.CheckSBOM(file, content, artifact, r.parameters.Version)
			if err != nil {
				r.fail("%s: %v: run `make attest`, or download it again", file, err)
				continue
			}
			r.pass("%s: names the modules of the program: %d", file, modules)
		}
	}
}
