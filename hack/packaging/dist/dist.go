// SPDX-License-Identifier: Apache-2.0

// Package dist makes the files of a release that people install from.
package dist

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/hack/packaging/archive"
	"github.com/sidecar-termination/operator/hack/packaging/plugin"
)

// Names of the files.
const (
	InstallFile   = "install.yaml"
	CRDFile       = "crds.yaml"
	ComponentFile = "kustomize-component.tar.gz"
	ChecksumFile  = "SHA256SUMS"
)

// Write writes into a directory everything that can be installed: the whole operator and
// its definitions as one file each, the kustomize component and the Helm chart as archives,
// the archives of the command line that are given by name, and the checksums of all of them.
// The chart is there as an OCI layout as well. Equal kustomizations give equal files. It returns the names of the files
// and of the layout.
func Write(config, directory string, commandLine map[string][]byte) ([]string, error) {
	version, err := chartVersion(config)
	if err != nil {
		return nil, err
	}
	files, err := build(config, ChartFile(version))
	if err != nil {
		return nil, err
	}
	maps.Copy(files, commandLine)
	files[ChecksumFile] = Checksums(files)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("create %s: %w", directory, err)
	}
	if err := removeOld(directory); err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(directory, name), files[name], 0o644); err != nil {
			return nil, fmt.Errorf("write a file of the release: %w", err)
		}
	}
	if err := WriteChartLayout(filepath.Join(directory, ChartLayout), files[ChartFile(version)]); err != nil {
		return nil, err
	}
	return append(names, ChartLayout), nil
}

// removeOld removes what is named for a version or a platform or describes old files, and would otherwise seem to belong
// to what is written.
func removeOld(directory string) error {
	for _, pattern := range []string{ChartName + "-*.tgz", plugin.Program + "-*", "*.cdx.json", "*.spdx.json", "provenance.json", "*.sig", "*.sigstore.json"} {
		old, err := filepath.Glob(filepath.Join(directory, pattern))
		if err != nil {
			return fmt.Errorf("look for old files: %w", err)
		}
		for _, file := range old {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove an old file: %w", err)
			}
		}
	}
	return nil
}

func build(config, chartFile string) (files map[string][]byte, err error) {
	files = map[string][]byte{}
	for name, kustomization := range map[string]string{InstallFile: "default", CRDFile: "crd"} {
		content, err := render(filepath.Join(config, kustomization))
		if err != nil {
			return nil, err
		}
		files[name] = content
	}
	directory, err := os.MkdirTemp("", "dist-")
	if err != nil {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	component := filepath.Join(directory, "component")
	if err := os.CopyFS(filepath.Join(component, "component"), os.DirFS(filepath.Join(config, "kustomize", "component"))); err != nil {
		return nil, fmt.Errorf("copy the kustomize component: %w", err)
	}
	if files[ComponentFile], err = archive.TarGzip(component); err != nil {
		return nil, err
	}
	chart := filepath.Join(directory, "chart")
	if err := WriteChart(config, filepath.Join(chart, ChartName)); err != nil {
		return nil, err
	}
	files[chartFile], err = archive.TarGzip(chart)
	return files, err
}

// Checksums returns the file that sha256sum --check reads.
func Checksums(files map[string][]byte) []byte {
	var lines []byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		lines = fmt.Appendf(lines, "%s  %s\n", Digest(files[name]), name)
	}
	return lines
}

// ParseChecksums returns the names and checksums of a file that Checksums wrote.
func ParseChecksums(content []byte) (map[string]string, error) {
	sums := map[string]string{}
	for line := range strings.Lines(string(content)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		decoded, err := hex.DecodeString(sum)
		switch {
		case !ok || err != nil || len(decoded) != sha256.Size:
			return nil, fmt.Errorf("parse %s: invalid line %q", ChecksumFile, line)
		case name == "" || name != filepath.Base(name):
			return nil, fmt.Errorf("parse %s: invalid file name %q", ChecksumFile, name)
		case sums[name] != "":
			return nil, fmt.Errorf("parse %s: %s is listed twice", ChecksumFile, name)
		}
		sums[name] = sum
	}
	return sums, nil
}

// Digest returns the checksum of a file.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
