// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Place is where an object is.
type Place struct {
	// File is what the user gave, or the template of the Helm chart that the object was rendered from.
	File string
	// RepositoryPath is the file from the root of the repository around the working directory, with slashes. It is empty if the object is in
	// no file there.
	RepositoryPath string
	// Line is the first line of the object, or 0 if it is unknown. That of a template of Helm and of a kustomization is 1.
	Line int
	// node is the object, or nil for a kustomization.
	node *yaml.Node
	// before is the number of lines before the document with the node.
	before int
	// rendered means that the lines of the node are not those of the file.
	rendered bool
}

// Place says where a manifest is. It reads a file when it is asked about the first manifest in it.
func (m Manifests) Place(manifest Manifest) Place { return m.place(manifest) }

// places returns what Place calls, given what was read from standard input.
func (m Manifests) places(stdin []byte) func(Manifest) Place {
	files := map[string][]Place{}
	byIdentity := map[string]Place{} // the first with the identity in the file
	return func(manifest Manifest) Place {
		all, known := files[manifest.File]
		if !known {
			all = placesIn(manifest.File, stdin)
			files[manifest.File] = all
			for _, place := range slices.Backward(all) {
				byIdentity[manifest.File+identityOf(place.node)] = place
			}
		}
		raw := manifest.Raw
		identity := identity(raw.GetKind(), raw.GetName(), raw.GetGenerateName())
		// The objects of a file follow each other. A file may be given twice, and what cannot be parsed has no place.
		if n := len(all); n > 0 {
			if place := all[(manifest.Position-m.first[manifest.File])%n]; place.node == nil || identityOf(place.node) == identity {
				return place
			}
		}
		if place, known := byIdentity[manifest.File+identity]; known {
			return place
		}
		return Place{File: manifest.File}
	}
}

// locateMistakes adds the line of the field to each mistake, as far as the object is in a file.
func (m Manifests) locateMistakes() {
	for _, manifest := range slices.Concat(m.Objects, m.Rejected) {
		for i, mistake := range manifest.Mistakes {
			path, _, isField := strings.Cut(mistake, ": ")
			if at := m.Place(manifest); isField && at.node != nil && !at.rendered {
				manifest.Mistakes[i] = fmt.Sprintf("%s (line %d)", mistake, at.LineOf(path, ""))
			}
		}
	}
}

func identity(kind, name, generateName string) string { return kind + "/" + name + "/" + generateName }

func identityOf(object *yaml.Node) string {
	name := func(field string) string { return valueOf(at(object, "metadata", field)) }
	return identity(valueOf(at(object, "kind")), name("name"), name("generateName"))
}

// LineOf returns the line of the container in the part of the object at the path, or else of the last field of the path that is there.
func (p Place) LineOf(path, container string) int {
	if p.node == nil || p.rendered {
		return p.Line
	}
	part := follow(p.node, path)
	if found := containerIn(part, container); container != "" && found != nil {
		part = found
	}
	return p.before + part.Line
}

// placesIn returns the places of the objects in a file, in order. Text that is not YAML has none.
func placesIn(file string, stdin []byte) []Place {
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		if path := filepath.Join(file, name); isFile(path) {
			return []Place{{File: file, RepositoryPath: repositoryPath(path), Line: 1}}
		}
	}
	text, path := stdin, ""
	if file != standardInput {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return nil // it is a URL
		}
		path = repositoryPath(file)
	}
	var all []Place
	for _, document := range documentsIn(text) {
		var root yaml.Node
		if yaml.Unmarshal(document.text, &root) != nil || len(root.Content) == 0 {
			continue
		}
		for _, node := range objectsIn(root.Content[0]) {
			place := Place{File: file, RepositoryPath: path, Line: document.before + node.Line, node: node, before: document.before}
			if template := templateOf(document.text); template != "" {
				place = Place{File: template, RepositoryPath: repositoryPath(template), Line: 1, node: node, rendered: true}
			}
			all = append(all, place)
		}
	}
	return all
}

type document struct {
	text   []byte
	before int // lines before it
}

// documentsIn splits YAML as the reader of kubectl does.
func documentsIn(text []byte) []document {
	all := []document{{}}
	lines := 0
	for line := range bytes.Lines(text) {
		last := &all[len(all)-1]
		lines++
		rest, separates := bytes.CutPrefix(line, []byte("---"))
		if rest = bytes.TrimSpace(rest); separates && (len(rest) == 0 || rest[0] == '#') {
			all = append(all, document{before: lines})
			continue
		}
		last.text = append(last.text, line...)
	}
	return all
}

// objectsIn returns the object, or the items of a list.
func objectsIn(object *yaml.Node) []*yaml.Node {
	items := at(object, "items")
	if items == nil || !strings.HasSuffix(valueOf(at(object, "kind")), "List") {
		return []*yaml.Node{object}
	}
	var all []*yaml.Node
	for _, item := range items.Content {
		all = append(all, objectsIn(item)...)
	}
	return all
}

// templateOf returns the file that helm template names in a comment before the object, as the working directory has it: the path starts
// with the name of the chart, which may be another directory.
func templateOf(text []byte) string {
	for line := range bytes.Lines(text) {
		comment, found := strings.CutPrefix(strings.TrimSpace(string(line)), "# Source: ")
		if found && filepath.IsLocal(comment) && !strings.Contains(comment, "://") && (strings.Contains(comment, "/templates/") || strings.Contains(comment, "/crds/")) {
			_, inChart, _ := strings.Cut(comment, "/")
			for _, path := range []string{comment, filepath.Join("charts", comment), inChart} {
				if isFile(path) {
					return path
				}
			}
			return comment
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			break
		}
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// repositoryPath returns the path from the root of the repository around the working directory, or from there if there is no repository.
// It is empty for paths outside.
func repositoryPath(file string) string {
	root, err := os.Getwd()
	if err != nil || strings.Contains(file, "://") || file == standardInput {
		return ""
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	for directory := root; ; directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, ".git")); err == nil {
			root = directory
			break
		}
		if directory == filepath.Dir(directory) {
			break
		}
	}
	relative, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(relative) {
		return ""
	}
	return filepath.ToSlash(relative)
}

// at returns the value at the fields, or nil. Aliases are not followed, so that no document is larger than its text.
func at(node *yaml.Node, fields ...string) *yaml.Node {
	for _, field := range fields {
		if node == nil || node.Kind != yaml.MappingNode {
			return nil
		}
		i := 0
		for i < len(node.Content) && node.Content[i].Value != field {
			i += 2
		}
		if i >= len(node.Content) {
			return nil
		}
		node = node.Content[i+1]
	}
	return node
}

func valueOf(node *yaml.Node) string {
	if node == nil {
		return ""
	}
	return node.Value
}

// follow returns what is at the path, such as spec.jobs[0].template.metadata.labels[app], as far as it is there. A value is where its
// field is.
func follow(node *yaml.Node, path string) *yaml.Node {
	line := node.Line
	for path != "" {
		var field string
		if path[0] == '[' {
			field, path, _ = strings.Cut(path[1:], "]")
		} else {
			end := strings.IndexAny(path+".", ".[")
			field, path = path[:end], path[end:]
		}
		path = strings.TrimPrefix(path, ".")
		var next *yaml.Node
		if index, err := strconv.Atoi(field); err == nil && node.Kind == yaml.SequenceNode && index >= 0 && index < len(node.Content) {
			next = node.Content[index]
			line = next.Line
		} else if next = at(node, field); next != nil {
			line = node.Content[slices.Index(node.Content, next)-1].Line
		}
		if next == nil {
			break
		}
		node = next
	}
	copied := *node
	copied.Line = line
	return &copied
}

// containerLists are the fields with lists of containers, or of their names.
var containerLists = []string{"containers", "initContainers", "sidecars", "mainContainers"}

// containerIn returns the first container with the name, in the order of the text, or nil.
func containerIn(node *yaml.Node, name string) *yaml.Node {
	for i, value := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 1 && slices.Contains(containerLists, node.Content[i-1].Value) {
			for _, item := range value.Content {
				if item.Value == name || valueOf(at(item, "name")) == name {
					return item
				}
			}
		}
		if found := containerIn(value, name); found != nil {
			return found
		}
	}
	return nil
}
