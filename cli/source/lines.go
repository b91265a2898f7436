// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Place is where an object is. Its JSON form is part of the versioned output.
type Place struct {
	// File is what the user gave, or the template of the Helm chart that the object was rendered from.
	File string `json:"file,omitempty"`
	// RepositoryPath is the file from the root of the repository around the working directory, with slashes. It is empty if the object is in
	// no file there.
	RepositoryPath string `json:"-"`
	// Line is the first line of the object, or 0 if it is unknown. That of a template of Helm and of a kustomization is 1.
	Line int `json:"line,omitempty"`
	// Position is the place among all objects.
	Position int `json:"-"`
	// node is the object, or nil if its lines are not those of the file.
	node *yaml.Node
}

// LineOf returns the line of the container in the part of the object at the path, or else of the last field of the path that is there.
func (p Place) LineOf(path, container string) int {
	if p.node == nil {
		return p.Line
	}
	part, line := follow(p.node, path)
	if found := containerIn(part, container); container != "" && found != nil {
		line = found.Line
	}
	return line
}

// locateMistakes adds the line of the field to each mistake, as far as the object is in a file.
func (m Manifests) locateMistakes() {
	for _, manifest := range slices.Concat(m.Objects, m.Rejected) {
		for i, mistake := range manifest.Mistakes {
			if path, _, isField := strings.Cut(mistake, ": "); isField && manifest.Place.node != nil {
				manifest.Mistakes[i] = fmt.Sprintf("%s (line %d)", mistake, manifest.Place.LineOf(path, ""))
			}
		}
	}
}

// places finds objects in files. It reads each file once.
type places struct {
	stdin *bytes.Buffer
	files map[string]placesInFile
}

// placesInFile are the places of objects by identity, in the order of the file. Objects that are not found have the place other.
type placesInFile struct {
	byIdentity map[string][]Place
	other      Place
}

// next returns the place of an object. It must be called for all objects of a file in their order, because some have the same identity.
func (p *places) next(file string, object *unstructured.Unstructured) Place {
	known, read := p.files[file]
	if !read {
		known = p.read(file)
		p.files[file] = known
	}
	key := identity(object.GetKind(), object.GetName(), object.GetGenerateName())
	all := known.byIdentity[key]
	if len(all) == 0 {
		return known.other
	}
	// A file may be given twice, so the first follows the last.
	known.byIdentity[key] = append(all[1:], all[0])
	return all[0]
}

func identity(kind, name, generateName string) string { return kind + "/" + name + "/" + generateName }

// read finds the objects in a file. Text that is not YAML has none, and nor does a URL.
func (p *places) read(file string) placesInFile {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if path := filepath.Join(file, name); isFile(path) {
			return placesInFile{other: Place{File: file, RepositoryPath: repositoryPath(path), Line: 1}}
		}
	}
	found := placesInFile{map[string][]Place{}, Place{File: file}}
	text := p.stdin.Bytes()
	if file != standardInput {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return found
		}
	}
	path, lines := repositoryPath(file), strings.Split(string(text), "\n")
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			return found
		}
		root := document.Content[0]
		// YAML knows more characters that end a line.
		template := templateOf(lines[:min(root.Line-1, len(lines))])
		for _, node := range objectsIn(root) {
			place := Place{File: file, RepositoryPath: path, Line: node.Line, node: node}
			if template != "" {
				place = Place{File: template, RepositoryPath: repositoryPath(template), Line: 1}
			}
			key := identity(textIn(node, "kind"), textIn(node, "metadata", "name"), textIn(node, "metadata", "generateName"))
			found.byIdentity[key] = append(found.byIdentity[key], place)
		}
	}
}

// objectsIn returns the object, or the items of a list.
func objectsIn(object *yaml.Node) []*yaml.Node {
	items := yaml.NewRNode(object).Field("items")
	if items == nil || !strings.HasSuffix(textIn(object, "kind"), "List") {
		return []*yaml.Node{object}
	}
	var all []*yaml.Node
	for _, item := range items.Value.Content() {
		all = append(all, objectsIn(item)...)
	}
	return all
}

// templateOf returns the file that helm template names in a comment before an object, given the lines before it, as the working directory
// has it: the path starts with the name of the chart, which may be another directory.
func templateOf(before []string) string {
	for _, line := range slices.Backward(before) {
		line = strings.TrimSpace(line)
		comment, found := strings.CutPrefix(line, "# Source: ")
		if found && filepath.IsLocal(comment) && !strings.Contains(comment, "://") && (strings.Contains(comment, "/templates/") || strings.Contains(comment, "/crds/")) {
			_, inChart, _ := strings.Cut(comment, "/")
			for _, path := range []string{comment, filepath.Join("charts", comment), inChart} {
				if isFile(path) {
					return path
				}
			}
			return comment
		}
		if line != "" && line[0] != '#' {
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
	for directory, below := root, ""; directory != below; directory, below = filepath.Dir(directory), directory {
		if _, err := os.Stat(filepath.Join(directory, ".git")); err == nil {
			root = directory
			break
		}
	}
	relative, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(relative) {
		return ""
	}
	return filepath.ToSlash(relative)
}

// textIn returns the text at the fields, or nothing. Aliases are not followed, so that no document is larger than its text.
func textIn(node *yaml.Node, fields ...string) string {
	for _, name := range fields {
		field := yaml.NewRNode(node).Field(name)
		if field == nil {
			return ""
		}
		node = field.Value.YNode()
	}
	return node.Value
}

// steps are the fields and indexes of a path such as spec.jobs[0].template.metadata.labels[app].
var steps = regexp.MustCompile(`[^.[]+|\[[^]]*]?`)

// follow returns what is at the path, as far as it is there, and its line. A value is where its field is.
func follow(node *yaml.Node, path string) (part *yaml.Node, line int) {
	line = node.Line
	for _, step := range steps.FindAllString(path, -1) {
		name := strings.Trim(step, "[]")
		index, err := strconv.Atoi(name)
		if err == nil && node.Kind == yaml.SequenceNode && index >= 0 && index < len(node.Content) {
			node = node.Content[index]
			line = node.Line
		} else if field := yaml.NewRNode(node).Field(name); field != nil {
			node, line = field.Value.YNode(), field.Key.YNode().Line
		} else {
			break
		}
	}
	return node, line
}

// containerLists are the fields with lists of containers, or of their names.
var containerLists = []string{"containers", "initContainers", "sidecars", "mainContainers"}

// containerIn returns the first container with the name, in the order of the text, or nil.
func containerIn(node *yaml.Node, name string) *yaml.Node {
	for i, value := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 1 && slices.Contains(containerLists, node.Content[i-1].Value) {
			for _, item := range value.Content {
				if item.Value == name || textIn(item, "name") == name {
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
