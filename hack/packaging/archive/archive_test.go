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
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/hack/packaging/archive"
)

var (
	program = archive.File{Content: []byte("program"), Executable: true}
	text    = archive.File{Content: []byte("text")}
	link    = archive.File{Link: "program"}
)

// unpacked is what a user has of a file.
type unpacked struct {
	Mode    fs.FileMode
	Content string
	Link    string
}

func TestTarGzip(t *testing.T) {
	content, err := archive.TarGzip(map[string]archive.File{"program": program, "text": text, "link": link})
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
	content, err := archive.Zip(map[string]archive.File{"program": program, "text": text})
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
	if _, err := archive.Zip(map[string]archive.File{"link": link}); err == nil {
		t.Error("a link was accepted")
	}
}
