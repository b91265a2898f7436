// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
)

// Write adds the SBOMs and the provenance to a release with its images, and writes its checksums again. The same release
// and parameters give the same files. It returns the names of the new files.
func Write(ctx context.Context, generator Generator, directory string, parameters Parameters) ([]string, error) {
	files, err := readFiles(directory)
	if err != nil {
		return nil, err
	}
	artifacts, err := Archives(files)
	if err != nil {
		return nil, err
	}
	subjects, ofImages, err := imageSubjects(directory)
	if err != nil {
		return nil, err
	}
	artifacts = append(artifacts, ofImages...)
	chart, err := dist.ChartDigest(directory)
	if err != nil {
		return nil, err
	}
	if chart != "" {
		subjects[dist.ChartLayout] = chart
	}
	if parameters.Go, err = toolchain(artifacts); err != nil {
		return nil, err
	}
	added := map[string][]byte{}
	for _, artifact := range artifacts {
		documents, err := generator.sboms(ctx, artifact, parameters)
		if err != nil {
			return nil, err
		}
		maps.Copy(added, documents)
	}
	maps.Copy(files, added)
	for name, content := range files {
		subjects[name] = dist.Digest(content)
	}
	if added[ProvenanceFile], err = encode(NewStatement(subjects, parameters)); err != nil {
		return nil, err
	}
	files[ProvenanceFile] = added[ProvenanceFile]
	added[dist.ChecksumFile] = dist.Checksums(files)
	names := slices.Sorted(maps.Keys(added))
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(directory, name), added[name], 0o644); err != nil {
			return nil, fmt.Errorf("write a file of the release: %w", err)
		}
	}
	return names, nil
}

// readFiles returns the files that the checksums list, without SBOMs and provenance.
func readFiles(directory string) (map[string][]byte, error) {
	list, err := os.ReadFile(filepath.Join(directory, dist.ChecksumFile))
	if err != nil {
		return nil, fmt.Errorf("read the checksums: %w: run `make dist` first", err)
	}
	sums, err := dist.ParseChecksums(list)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, sum := range sums {
		if strings.HasSuffix(name, cycloneDXSuffix) || strings.HasSuffix(name, spdxSuffix) || name == ProvenanceFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			return nil, fmt.Errorf("read a file of the release: %w", err)
		}
		if dist.Digest(content) != sum {
			return nil, fmt.Errorf("%s is not the file that %s lists: run `make dist` again", name, dist.ChecksumFile)
		}
		files[name] = content
	}
	return files, nil
}

func imageSubjects(directory string) (map[string]string, []Artifact, error) {
	names, err := Layouts(directory)
	if err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("there are no images in %s: run `make images` first", filepath.Join(directory, ImagesDirectory))
	}
	subjects := map[string]string{}
	var artifacts []Artifact
	for _, name := range names {
		index, found, err := Image(directory, name)
		if err != nil {
			return nil, nil, err
		}
		digests, err := ImageDigests(name, index, found)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(subjects, digests)
		artifacts = append(artifacts, found...)
	}
	return subjects, artifacts, nil
}

// ImageDigests returns the digests of an image and of its platforms, by the names of their subjects.
func ImageDigests(name string, index v1.ImageIndex, platforms []Artifact) (map[string]string, error) {
	digest, err := index.Digest()
	if err != nil {
		return nil, fmt.Errorf("digest the image %s: %w", name, err)
	}
	digests := map[string]string{IndexSubject(name): digest.Hex}
	for _, artifact := range platforms {
		digests[artifact.Subject()] = artifact.SHA256
	}
	return digests, nil
}

// toolchain returns the version of Go that built all programs.
func toolchain(artifacts []Artifact) (string, error) {
	version := ""
	for _, artifact := range artifacts {
		information, err := artifact.BuildInfo()
		if err != nil {
			return "", err
		}
		if information == nil {
			continue
		}
		if version != "" && information.GoVersion != version {
			return "", fmt.Errorf("%s was built with %s, and others with %s: run `make dist images` again", artifact.Name, information.GoVersion, version)
		}
		version = information.GoVersion
	}
	if version == "" {
		return "", errors.New("the release has no program that was built with Go")
	}
	return version, nil
}
