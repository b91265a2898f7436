// SPDX-License-Identifier: Apache-2.0

package attest

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/packaging/images"
)

var update = flag.Bool("update", false, "write the golden files")

var parameters = Parameters{
	Version: "v1.2.3", Repository: "https://example.test/repository", Commit: "0123456789abcdef0123456789abcdef01234567",
	Builder: "https://example.test/builder", Go: "go1.26.8", Date: time.Unix(1_700_000_000, 0),
}

// quickExit is an artifact whose program has no modules.
var quickExit = Artifact{
	Name: "quick-exit-image-linux-arm64", Image: true, Title: images.QuickExit,
	Platform: v1.Platform{OS: "linux", Architecture: "arm64"}, SHA256: strings.Repeat("ab", 32),
	ProgramPath: "/quick-exit", Program: []byte("program"),
}

func TestProvenance(t *testing.T) {
	statement := NewStatement(map[string]string{
		"install.yaml":                    strings.Repeat("01", 32),
		IndexSubject(images.QuickExit):    strings.Repeat("23", 32),
		quickExit.Subject():               quickExit.SHA256,
		"kubectl-sidecar_termination.zip": strings.Repeat("45", 32),
	}, parameters)
	encoded, err := encode(statement)
	if err != nil {
		t.Fatal(err)
	}
	requireGolden(t, ProvenanceFile, encoded)
	parsed, err := ParseStatement(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if got := parsed.Parameters(); !got.Date.Equal(parameters.Date) || got.Go != parameters.Go || got.Commit != parameters.Commit ||
		got.Builder != parameters.Builder || got.Version != parameters.Version || got.Repository != parameters.Repository {
		t.Errorf("parameters are %+v, want %+v", got, parameters)
	}
}

func TestProvenanceOfOthersIsAnError(t *testing.T) {
	encoded, err := encode(NewStatement(nil, parameters))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"not JSON":        {"{", "["},
		"statement":       {StatementType, "https://in-toto.io/Statement/v0.1"},
		"predicate":       {PredicateType, "https://slsa.dev/provenance/v0.2"},
		"type of build":   {BuildType, "https://example.test/build"},
		"unknown field":   {`"runDetails"`, `"byproducts": [], "runDetails"`},
		"unknown setting": {`"version"`, `"flags": "", "version"`},
	} {
		t.Run(name, func(t *testing.T) {
			changed := bytes.Replace(encoded, []byte(change[0]), []byte(change[1]), 1)
			if bytes.Equal(changed, encoded) {
				t.Fatalf("the statement has no %s", change[0])
			}
			if _, err := ParseStatement(changed); err == nil {
				t.Error("no error")
			}
		})
	}
}

// The addresses in the provenance are those of sections.
func TestProvenanceIsDocumented(t *testing.T) {
	document, err := os.ReadFile("../../../docs/packages.md")
	if err != nil {
		t.Fatal(err)
	}
	for address, heading := range map[string]string{BuildType: "### Provenance", LocalBuilder: "### Local builds"} {
		_, anchor, _ := strings.Cut(address, "docs/packages.md#")
		title := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(heading, "### ")), " ", "-")
		if anchor != title || !bytes.Contains(document, []byte("\n"+heading+"\n")) {
			t.Errorf("%s is not the section %q of docs/packages.md", address, heading)
		}
	}
}

func TestSBOMsWithoutModules(t *testing.T) {
	documents, err := Generator("").sboms(t.Context(), quickExit, parameters)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(documents)); !slices.Equal(got, []string{"quick-exit-image-linux-arm64.cdx.json", "quick-exit-image-linux-arm64.spdx.json"}) {
		t.Errorf("documents are %v", got)
	}
	for name, content := range documents {
		requireGolden(t, name, content)
		if count, err := CheckSBOM(name, content, quickExit, parameters.Version); err != nil || count != 1 {
			t.Errorf("%s has %d modules, %v; want the program alone", name, count, err)
		}
	}
}

func requireGolden(t *testing.T, name string, content []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, content, want)
	}
}
