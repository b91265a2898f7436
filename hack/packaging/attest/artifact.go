// SPDX-License-Identifier: Apache-2.0

// Package attest describes a release: SBOMs of its programs, and the provenance of its files and images.
package attest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/sidecar-termination/operator/hack/ociimage"
	"github.com/sidecar-termination/operator/hack/packaging/dist"
	"github.com/sidecar-termination/operator/hack/packaging/plugin"
)

// ImagesDirectory is the directory of a release with one OCI layout per image.
const ImagesDirectory = "images"

const (
	cycloneDXSuffix = ".cdx.json"
	spdxSuffix      = ".spdx.json"
)

// Artifact is an archive of the command line, or an image for one platform. It has one program and two SBOMs.
type Artifact struct {
	// Name is the name of the archive, or a name for the image and its platform.
	Name string
	// Image says that this is an image.
	Image bool
	// Title is the name of the image, without its platform.
	Title    string
	Platform v1.Platform
	// SHA256 is the digest of the archive, or of the manifest of the image.
	SHA256 string
	// ProgramPath is the path of the program inside.
	ProgramPath string
	Program     []byte
}

// CycloneDXFile returns the name of the CycloneDX SBOM.
func (a Artifact) CycloneDXFile() string { return a.base() + cycloneDXSuffix }

// SPDXFile returns the name of the SPDX SBOM.
func (a Artifact) SPDXFile() string { return a.base() + spdxSuffix }

func (a Artifact) base() string {
	return strings.TrimSuffix(strings.TrimSuffix(a.Name, ".tar.gz"), ".zip")
}

// Archives returns those of the files that are archives of the command line.
func Archives(files map[string][]byte) ([]Artifact, error) {
	var found []Artifact
	for _, platform := range plugin.Platforms() {
		name := plugin.FileName(platform)
		content, ok := files[name]
		if !ok {
			continue
		}
		path := plugin.Program
		unpack := fromTarGzip
		if strings.HasSuffix(name, ".zip") {
			path += ".exe"
			unpack = fromZip
		}
		program, err := unpack(content, path)
		if err != nil {
			return nil, fmt.Errorf("read %s from %s: %w", path, name, err)
		}
		found = append(found, Artifact{
			Name: name, Title: plugin.Program, Platform: platform, SHA256: dist.Digest(content), ProgramPath: path, Program: program,
		})
	}
	return found, nil
}

// Layouts returns the names of the images in a release, sorted.
func Layouts(directory string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(directory, ImagesDirectory))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}

// Image returns the index of an image of a release, and the image for each platform.
func Image(directory, name string) (v1.ImageIndex, []Artifact, error) {
	index, err := ociimage.ReadLayout(filepath.Join(directory, ImagesDirectory, name))
	if err != nil {
		return nil, nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, nil, fmt.Errorf("read the index of %s: %w", name, err)
	}
	var found []Artifact
	for _, descriptor := range manifest.Manifests {
		if descriptor.Platform == nil {
			return nil, nil, fmt.Errorf("read the index of %s: %s has no platform", name, descriptor.Digest)
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			return nil, nil, fmt.Errorf("read %s for %s: %w", name, descriptor.Platform, err)
		}
		path, program, err := entrypoint(image)
		if err != nil {
			return nil, nil, fmt.Errorf("read the program of %s for %s: %w", name, descriptor.Platform, err)
		}
		platform := *descriptor.Platform
		found = append(found, Artifact{
			Name:  fmt.Sprintf("%s-image-%s-%s", name, platform.OS, platform.Architecture),
			Image: true, Title: name, Platform: platform, SHA256: descriptor.Digest.Hex, ProgramPath: path, Program: program,
		})
	}
	return index, found, nil
}

func entrypoint(image v1.Image) (path string, program []byte, err error) {
	file, err := image.ConfigFile()
	if err != nil {
		return "", nil, err
	}
	if len(file.Config.Entrypoint) == 0 {
		return "", nil, errors.New("the image has no entrypoint")
	}
	path = file.Config.Entrypoint[0]
	contents := mutate.Extract(image)
	defer func() { err = errors.Join(err, contents.Close()) }()
	program, err = fromTar(contents, strings.TrimPrefix(path, "/"))
	return path, program, err
}

func fromTarGzip(content []byte, path string) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	return fromTar(reader, path)
}

func fromTar(content io.Reader, path string) ([]byte, error) {
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil, fs.ErrNotExist
		}
		if err != nil {
			return nil, err
		}
		if header.Name == path && header.Typeflag == tar.TypeReg {
			return io.ReadAll(reader)
		}
	}
}

func fromZip(content []byte, path string) ([]byte, error) {
	reader, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, err
	}
	return fs.ReadFile(reader, path)
}
