// SPDX-License-Identifier: Apache-2.0

//go:build packaging

package manual_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-termination/operator/hack/packaging/manual"
)

func TestEveryCommandHasItsPage(t *testing.T) {
	packed, err := manual.Archive()
	if err != nil {
		t.Fatal(err)
	}
	uncompressed, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for pages := tar.NewReader(uncompressed); ; {
		header, err := pages.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		content, err := io.ReadAll(pages)
		if err != nil {
			t.Fatal(err)
		}
		page := string(content)
		sections := []string{".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH SEE ALSO"}
		if header.Name != "man1/kubectl-sidecar-termination.1" {
			sections = append(sections, ".SH OPTIONS", ".SH EXAMPLE")
		}
		for _, section := range sections {
			if !strings.Contains(page, section) {
				t.Errorf("%s has no %s", header.Name, section)
			}
		}
		if strings.Contains(page, home+"/") {
			t.Errorf("%s contains the home directory %s", header.Name, home)
		}
	}
	slices.Sort(names)
	want := []string{
		"man1/kubectl-sidecar-termination-check.1", "man1/kubectl-sidecar-termination-diff.1",
		"man1/kubectl-sidecar-termination-explain.1", "man1/kubectl-sidecar-termination-finish.1",
		"man1/kubectl-sidecar-termination-lint.1",
		"man1/kubectl-sidecar-termination-test.1", "man1/kubectl-sidecar-termination.1",
	}
	if difference := cmp.Diff(want, names); difference != "" {
		t.Errorf("pages (-want +got):\n%s", difference)
	}
}
