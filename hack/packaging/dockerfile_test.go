// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sidecar-termination/operator/hack/localcluster/images"
)

const repository = "../.."

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Everything that the operator is compiled from is copied.
func TestDockerfileCopiesSources(t *testing.T) {
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", ".")
	command.Dir = repository
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	dockerfile, ignored := readFile(t, "Dockerfile"), readFile(t, ".dockerignore")
	for _, path := range append(strings.Fields(string(output)), "go.mod", "go.sum", "*.go") {
		path = strings.TrimPrefix(strings.TrimPrefix(path, "github.com/sidecar-termination/operator"), "/")
		var parents []string
		for parent := path; parent != "" && parent != "."; parent = filepath.Dir(parent) {
			parents = append(parents, parent)
		}
		isCopied := func(parent string) bool {
			copied := strings.Contains(dockerfile, "COPY "+parent+"/ ") || strings.Contains(dockerfile, " "+parent+" ")
			return copied && strings.Contains(ignored, "\n!"+parent+"\n")
		}
		if path != "" && !slices.ContainsFunc(parents, isCopied) {
			t.Errorf("the Dockerfile does not copy %s, or .dockerignore leaves it out", path)
		}
	}
}

// Both ways of building give the same program, run in the same way, with the same labels.
func TestDockerfileBuildsLikeMake(t *testing.T) {
	if flags := `"-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid="`; !strings.Contains(readFile(t, "hack/packaging/program/program.go"), flags) {
		t.Errorf("package program does not build with %s", flags)
	}
	image, err := images.Operator(nil, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(readFile(t, "go.mod"), "\ngo ")
	parts := strings.Split(version, ".")
	want := []string{
		`CGO_ENABLED=0`, `-trimpath -buildvcs=false -ldflags "-s -w -buildid="`, "mkdir -m 1777 /image/tmp", "-o /image/sidecar-termination-operator .",
		"COPY --from=build /image/ /", "USER " + file.Config.User, fmt.Sprintf("ENTRYPOINT [%q]", file.Config.Entrypoint[0]),
		"ARG GO_IMAGE=golang:" + parts[0] + "." + parts[1], "FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build",
	}
	for key, value := range file.Config.Labels {
		want = append(want, fmt.Sprintf("%s=%q", key, value))
	}
	dockerfile := readFile(t, "Dockerfile")
	for _, part := range want {
		if !strings.Contains(dockerfile, part) {
			t.Errorf("the Dockerfile has no %s", part)
		}
	}
	if labels := strings.Count(dockerfile, "org.opencontainers.image."); labels != len(file.Config.Labels) {
		t.Errorf("the Dockerfile has %d labels, want %d", labels, len(file.Config.Labels))
	}
}
