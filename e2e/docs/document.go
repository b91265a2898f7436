// SPDX-License-Identifier: Apache-2.0

// Package docs provides the project's parsed documents, so that tests can run their commands and apply their manifests. The parser
// is in hack/docs, a separate module.
package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Document is a parsed Markdown file.
type Document struct {
	// Path is relative to the root of the repository.
	Path     string
	Headings []Heading
	Blocks   []Block
	// Links are the destinations of links and images.
	Links []string
}

// Heading is a heading with GitHub's anchor.
type Heading struct {
	Text, Anchor string
}

// Block is a code block.
type Block struct {
	// Line is the first line of the code.
	Line int
	// Language is the word after the fence, or "" for an indented block.
	Language string
	Text     string
	// NotRun is the reason in a comment <!-- not run: REASON --> directly before the block.
	NotRun string
	// Given are the commands in a comment <!-- given: COMMANDS --> directly before the block. They create what the block requires.
	Given string
	// Kind is what the commands of the block need: the maximum of all commands.
	Kind Kind
	// Commands are the words of every command in Given and in the block, without quotes.
	Commands [][]string
}

// Kind is what the commands of a block need. A kind includes those before it.
type Kind int

// Kinds of blocks.
const (
	// NoCommands is a block without commands.
	NoCommands Kind = iota
	// Offline commands need the repository and the kubectl plugin.
	Offline
	// Cluster commands need a cluster with the operator.
	Cluster
	// Unknown commands cannot run in tests.
	Unknown
)

// Read returns the documents of the repository. It runs the parser of hack/docs.
func Read(root string) ([]Document, error) {
	command := exec.Command("go", "run", ".")
	command.Dir = filepath.Join(root, "hack", "docs")
	var failure bytes.Buffer
	command.Stderr = &failure
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("parse the documents: %w\n%s", err, failure.String())
	}
	var documents []Document
	if err := json.Unmarshal(output, &documents); err != nil {
		return nil, fmt.Errorf("decode the documents: %w", err)
	}
	return documents, nil
}

// Script returns the commands of a block without their output.
func (b Block) Script() string {
	switch b.Language {
	case "sh":
		return b.Text
	case "console":
		return typed(b.Text)
	}
	return ""
}

// typed returns the lines after prompts and their continuation lines.
func typed(session string) string {
	var script strings.Builder
	continued := false
	for line := range strings.Lines(session) {
		command, prompted := strings.CutPrefix(line, "$ ")
		if !prompted && !continued {
			continue
		}
		script.WriteString(command)
		continued = strings.HasSuffix(strings.TrimSpace(line), `\`)
	}
	return script.String()
}

var nameOfFile = regexp.MustCompile(`^# (\S+\.ya?ml)\n`)

// File returns the file name in the first line of a YAML block, as in "# job.yaml".
func (b Block) File() string {
	if match := nameOfFile.FindStringSubmatch(b.Text); match != nil && b.Language == "yaml" {
		return match[1]
	}
	return ""
}

// notObjects are the apiVersions of files that are no API objects: kustomizations, and tests of policies.
var notObjects = []string{"kustomize.config.k8s.io/v1beta1", "cli.sidecartermination.dev/v1alpha1"}

// Manifests returns the objects of a YAML block. Parts of objects and files for programs are excluded.
func (b Block) Manifests() ([]*unstructured.Unstructured, error) {
	if b.Language != "yaml" || b.NotRun != "" {
		return nil, nil
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(b.Text)), len(b.Text))
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		if object.GetKind() != "" && !slices.Contains(notObjects, object.GetAPIVersion()) {
			objects = append(objects, object)
		}
	}
}
