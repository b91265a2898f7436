// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-termination/operator/e2e/docs"
)

func read(t *testing.T) []docs.Document {
	t.Helper()
	documents, err := readAll(root)
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// TestOfflineCommands or the end-to-end tests run every command. Other blocks must state a reason.
func TestCommandsRunOrStateReason(t *testing.T) {
	counts := map[docs.Kind]int{}
	var notRun []string
	for _, document := range read(t) {
		for _, block := range document.Blocks {
			at := fmt.Sprintf("%s:%d", document.Path, block.Line)
			switch {
			case block.NotRun != "":
				notRun = append(notRun, at+": "+block.NotRun)
			case block.Language == "":
				t.Errorf("%s: the code block has no language; use sh for commands, or console for commands with output", at)
			case block.Kind == docs.Unknown:
				t.Errorf("%s: tests cannot run this block; add the comment <!-- not run: REASON --> before it, or extend needs in hack/docs/commands.go:\n%s", at, block.Text)
			default:
				counts[block.Kind]++
			}
		}
	}
	t.Logf("%d blocks of commands need no cluster, %d need one, %d are not run:\n%s",
		counts[docs.Offline], counts[docs.Cluster], len(notRun), strings.Join(notRun, "\n"))
	if counts[docs.Offline] == 0 || counts[docs.Cluster] == 0 {
		t.Error("no commands were found")
	}
}

// In commands without a cluster, kubectl runs the plugin only.
const kubectl = `#!/bin/sh
test "$1" = sidecar-termination || { echo "this needs a cluster: kubectl $*" >&2; exit 1; }
shift
exec kubectl-sidecar_termination "$@"
`

func TestOfflineCommands(t *testing.T) {
	place := newPlace(t)
	for _, document := range read(t) {
		for _, block := range document.Blocks {
			if name := block.File(); name != "" {
				if err := place.Write(name, block.Text); err != nil {
					t.Fatal(err)
				}
			}
			if block.Kind != docs.Offline || block.NotRun != "" {
				continue
			}
			t.Run(fmt.Sprintf("%s:%d", document.Path, block.Line), func(t *testing.T) {
				if output, err := place.Run(t.Context(), block.Given+"\n"+block.Script()); err != nil {
					t.Errorf("%v\n%s\n%s", err, block.Script(), output)
				}
			})
		}
	}
}

func newPlace(t *testing.T) *docs.Place {
	t.Helper()
	plugin := filepath.Join(t.TempDir(), "kubectl-sidecar_termination")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", plugin, "./cmd/kubectl-sidecar_termination")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, output)
	}
	place, err := docs.NewPlace(root, plugin, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(place.Programs, "kubectl"), []byte(kubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	// The commands must not reach an existing cluster.
	place.Environment = []string{"KUBECONFIG=" + filepath.Join(t.TempDir(), "none")}
	return place
}

func TestLinksResolve(t *testing.T) {
	documents := read(t)
	anchors := map[string][]string{}
	for _, document := range documents {
		for _, heading := range document.Headings {
			anchors[document.Path] = append(anchors[document.Path], heading.Anchor)
		}
	}
	for _, document := range documents {
		for _, link := range document.Links {
			if strings.Contains(link, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link, "#")
			target := document.Path
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(document.Path), path))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", document.Path, link)
			}
			if anchor != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchors[target], anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", document.Path, link, target)
			}
		}
	}
}

// The site has only pages that docs/README.md or the README.md of a directory links.
func TestIndexLinksEveryDocument(t *testing.T) {
	linked := map[string]bool{"docs/README.md": true}
	documents := read(t)
	for _, document := range documents {
		if strings.HasPrefix(document.Path, "docs/") && path.Base(document.Path) == "README.md" {
			for _, link := range document.Links {
				linked[path.Join(path.Dir(document.Path), link)] = true
			}
		}
	}
	for _, document := range documents {
		if strings.HasPrefix(document.Path, "docs/") && !linked[document.Path] {
			t.Errorf("%s is in no table of docs/README.md, so readers do not find it: add a row", document.Path)
		}
	}
}
