// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/hack/packaging/archive"
)

// files returns a directory with a program, a text and, if asked, a link.
func files(t *testing.T, withLink bool) string {
	t.Helper()
	directory := t.TempDir()
	err := errors.Join(
		os.WriteFile(filepath.Join(directory, "program"), []byte("program"), 0o700),
		os.WriteFile(filepath.Join(directory, "text"), []byte("text"), 0o600),
	)
	if withLink {
		err = errors.Join(err, os.Symlink("program", filepath.Join(directory, "link")))
	}
	if err != nil {
		t.Fatal(err)
	}
	return directory
}

// unpacked is what a user has of a file.
type unpacked struct {
	Mode    fs.FileMode
	Content string
	Link    string
}

func TestTarGzip(t *testing.T) {
	content, err := archive.TarGzip(files(t, true))
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]unpacked{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.ModTime.Unix() != 0 || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s depends on who makes it: %+v", header.Name, header)
		}
		body, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		got[header.Name] = unpacked{header.FileInfo().Mode(), string(body), header.Linkname}
	}
	want := map[string]unpacked{
		"program": {0o755, "program", ""}, "text": {0o644, "text", ""}, "link": {0o777 | fs.ModeSymlink, "", "program"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
}

func TestZip(t *testing.T) {
	content, err := archive.Zip(files(t, false))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]unpacked{}
	for _, file := range reader.File {
		opened, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
		if file.Modified.Year() != 1980 {
			t.Errorf("%s has the time %s", file.Name, file.Modified)
		}
		got[file.Name] = unpacked{Mode: file.Mode(), Content: string(body)}
	}
	want := map[string]unpacked{"program": {0o755, "program", ""}, "text": {0o644, "text", ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
}

func TestZipRefusesLinks(t *testing.T) {
	if _, err := archive.Zip(files(t, true)); err == nil {
		t.Error("a link was accepted")
	}
}
