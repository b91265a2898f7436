// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

var platform = v1.Platform{OS: "linux", Architecture: "amd64"}

func headers(t *testing.T, image v1.Image) map[string]*tar.Header {
	t.Helper()
	contents := mutate.Extract(image)
	defer func() { _ = contents.Close() }()
	found := map[string]*tar.Header{}
	reader := tar.NewReader(contents)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = header
	}
}

func TestBusyboxHasEveryApplet(t *testing.T) {
	image, err := Busybox([]byte("program"), []string{"busybox", "sh", "sleep"}, platform)
	if err != nil {
		t.Fatal(err)
	}
	files := headers(t, image)
	if program := files["bin/busybox"]; program == nil || program.Typeflag != tar.TypeReg || program.Mode != 0o755 {
		t.Errorf("busybox is %+v", program)
	}
	for _, applet := range []string{"bin/sh", "bin/sleep"} {
		if link := files[applet]; link == nil || link.Typeflag != tar.TypeLink || link.Linkname != "bin/busybox" {
			t.Errorf("%s is %+v", applet, link)
		}
	}
	if temporary := files["tmp"]; temporary == nil || temporary.Mode != 0o1777 {
		t.Errorf("/tmp is %+v", temporary)
	}
}

func TestOperatorRunsAsNobodySpecial(t *testing.T) {
	image, err := Operator([]byte("program"), platform)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.Config.User != "65532:65532" || len(file.Config.Entrypoint) != 1 || file.Config.Entrypoint[0] != "/sidecar-termination-operator" {
		t.Errorf("configuration is %+v", file.Config)
	}
	if headers(t, image)["sidecar-termination-operator"] == nil {
		t.Error("the program is missing")
	}
}

func TestImagesAreReproducible(t *testing.T) {
	for name, build := range map[string]func() (v1.Image, error){
		"pause":    func() (v1.Image, error) { return Pause([]byte("program"), platform) },
		"operator": func() (v1.Image, error) { return Operator([]byte("program"), platform) },
		"busybox":  func() (v1.Image, error) { return Busybox([]byte("program"), []string{"b", "a"}, platform) },
	} {
		t.Run(name, func(t *testing.T) {
			digests := map[v1.Hash]bool{}
			for range 2 {
				image, err := build()
				if err != nil {
					t.Fatal(err)
				}
				digest, err := image.Digest()
				if err != nil {
					t.Fatal(err)
				}
				digests[digest] = true
			}
			if len(digests) != 1 {
				t.Errorf("digests are %v", digests)
			}
		})
	}
}

func TestSave(t *testing.T) {
	image, err := Pause([]byte("program"), platform)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "images", "pause.tar")
	if err := Save(file, PauseReference, image); err != nil {
		t.Fatal(err)
	}
	if information, err := os.Stat(file); err != nil || information.Size() == 0 {
		t.Errorf("the archive is not there: %v", err)
	}
	if err := Save(file, "not a reference", image); err == nil {
		t.Error("a bad reference was accepted")
	}
}
