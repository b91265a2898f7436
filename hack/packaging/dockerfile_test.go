// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// instruction is one of a Dockerfile.
type instruction struct {
	name  string
	words []string
}

func dockerfile(t *testing.T) []instruction {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var instructions []instruction
	for line := range strings.Lines(strings.ReplaceAll(string(content), "\\\n", " ")) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) == 1 {
			t.Fatalf("%s has no arguments", words[0])
		}
		instructions = append(instructions, instruction{words[0], words[1:]})
	}
	return instructions
}

func TestDockerfileHasKnownInstructions(t *testing.T) {
	known := []string{"ARG", "COPY", "ENTRYPOINT", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}
	stages := 0
	for _, instruction := range dockerfile(t) {
		if !slices.Contains(known, instruction.name) {
			t.Errorf("instruction %s is not known", instruction.name)
		}
		if instruction.name == "FROM" {
			stages++
		}
	}
	if stages != 2 {
		t.Errorf("%d stages, want 2", stages)
	}
}

// What is copied exists, and everything that the operator is compiled from is copied.
func TestDockerfileCopiesWhatTheOperatorIsMadeOf(t *testing.T) {
	var copied []string
	for _, instruction := range dockerfile(t) {
		if instruction.name != "COPY" || strings.HasPrefix(instruction.words[0], "--from=") {
			continue
		}
		for _, pattern := range instruction.words[:len(instruction.words)-1] {
			found, err := filepath.Glob(filepath.Join(repository, pattern))
			if err != nil || len(found) == 0 {
				t.Errorf("COPY %s: nothing is there (%v)", pattern, err)
			}
			copied = append(copied, strings.TrimSuffix(pattern, "/"))
		}
	}
	for _, directory := range packageDirectories(t) {
		isCopied := func(above string) bool { return directory == above || strings.HasPrefix(directory, above+"/") }
		if directory != "." && !slices.ContainsFunc(copied, isCopied) {
			t.Errorf("the operator needs %s, which is not copied", directory)
		}
	}
	if !slices.Contains(copied, "*.go") || !slices.Contains(copied, "go.mod") || !slices.Contains(copied, "go.sum") {
		t.Errorf("copied is only %v", copied)
	}
	ignored, err := os.ReadFile(filepath.Join(repository, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range copied {
		if !strings.Contains(string(ignored), "\n!"+pattern+"\n") {
			t.Errorf(".dockerignore leaves %s out", pattern)
		}
	}
}

// Both ways of building give the same program, run in the same way.
func TestDockerfileBuildsAsMakeImagesDoes(t *testing.T) {
	content, err := os.ReadFile("program/program.go")
	if err != nil {
		t.Fatal(err)
	}
	const flags = `-ldflags "-s -w -buildid="`
	if !strings.Contains(string(content), `"-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid="`) {
		t.Error("make images builds with other flags than this test knows")
	}
	all := dockerfile(t)
	has := func(name, text string) bool {
		return slices.ContainsFunc(all, func(instruction instruction) bool {
			return instruction.name == name && strings.Contains(strings.Join(instruction.words, " "), text)
		})
	}
	for _, want := range [][2]string{
		{"RUN", "-trimpath -buildvcs=false " + flags},
		{"RUN", "CGO_ENABLED=0"},
		{"RUN", "mkdir -m 1777 /image/tmp"},
		{"RUN", "-o /image/sidecar-termination-operator ."},
		{"COPY", "--from=build /image/ /"},
		{"USER", "65532:65532"},
		{"ENTRYPOINT", `["/sidecar-termination-operator"]`},
		{"ARG", "GO_IMAGE=golang:" + goVersion(t)},
		{"FROM", "--platform=$BUILDPLATFORM ${GO_IMAGE} AS build"},
	} {
		if !has(want[0], want[1]) {
			t.Errorf("no %s has %s", want[0], want[1])
		}
	}
}

// Both ways of building give the image the same labels.
func TestDockerfileLabelsAsMakeImagesDoes(t *testing.T) {
	image, err := images.Operator(nil, v1.Platform{OS: "linux", Architecture: "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	labels := ""
	for _, instruction := range dockerfile(t) {
		if instruction.name == "LABEL" {
			labels += strings.Join(instruction.words, " ") + " "
		}
	}
	for key, value := range configuration.Config.Labels {
		want := fmt.Sprintf("%s=%q ", key, value)
		if !strings.Contains(labels, want) {
			t.Errorf("the Dockerfile has no label %s", want)
		}
		labels = strings.Replace(labels, want, "", 1)
	}
	if labels != "" {
		t.Errorf("only the Dockerfile has %s", labels)
	}
}

// goVersion returns the minor version of Go that go.mod asks for.
func goVersion(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if version, found := strings.CutPrefix(line, "go "); found {
			parts := strings.Split(strings.TrimSpace(version), ".")
			return strings.Join(parts[:2], ".")
		}
	}
	t.Fatal("go.mod names no version of Go")
	return ""
}

// packageDirectories returns the directories of the operator's own packages.
func packageDirectories(t *testing.T) []string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,Module", ".")
	command.Dir = repository
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	var directories []string
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var listed struct {
			Dir    string
			Module *struct{ Main bool }
		}
		err := decoder.Decode(&listed)
		if errors.Is(err, io.EOF) {
			return directories
		}
		if err != nil {
			t.Fatal(err)
		}
		if listed.Module == nil || !listed.Module.Main {
			continue
		}
		relative, err := filepath.Rel(root, listed.Dir)
		if err != nil {
			t.Fatal(err)
		}
		directories = append(directories, relative)
	}
}
