// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// lines finds fields of manifests in their files. It reads each file once.
type lines map[string]map[string]*yaml.Node

// annotate adds the line of the field to each mistake, as far as the manifest is in a file.
func (l lines) annotate(manifest Manifest) {
	document := l.document(manifest)
	for i, mistake := range manifest.Mistakes {
		path, _, _ := strings.Cut(mistake, ": ")
		if line := lineOf(document, path); line > 0 {
			manifest.Mistakes[i] = fmt.Sprintf("%s (line %d)", mistake, line)
		}
	}
}

// document returns the manifest in its file, or nil.
func (l lines) document(manifest Manifest) *yaml.Node {
	if l[manifest.File] == nil {
		l[manifest.File] = documents(manifest.File)
	}
	return l[manifest.File][manifest.Raw.GetKind()+"/"+manifest.Raw.GetName()]
}

// documents returns the objects of a file by kind and name. A name that two objects have has no line.
func documents(file string) map[string]*yaml.Node {
	all := map[string]*yaml.Node{}
	content, err := os.ReadFile(file)
	if err != nil {
		return all
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		document := &yaml.Node{}
		if decoder.Decode(document) != nil {
			return all
		}
		if len(document.Content) == 0 {
			continue
		}
		root := document.Content[0]
		name := child(child(root, "metadata"), "name")
		if kind := child(root, "kind"); kind != nil && name != nil {
			key := kind.Value + "/" + name.Value
			if _, twice := all[key]; twice {
				root = nil
			}
			all[key] = root
		}
	}
}

// lineOf returns the line of the field with the path, as in spec.containers[0].image, or of the last part of the path that exists.
func lineOf(node *yaml.Node, path string) int {
	line := 0
	for step := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		at, next := find(node, step)
		if next == nil {
			break
		}
		line, node = at, next
	}
	return line
}

// child returns the value of a key, or nil.
func child(node *yaml.Node, key string) *yaml.Node {
	_, value := find(node, key)
	return value
}

// find returns the value of a key or an index with its line, or nil.
func find(node *yaml.Node, step string) (line int, value *yaml.Node) {
	switch {
	case node == nil:
	case node.Kind == yaml.AliasNode:
		return find(node.Alias, step)
	case node.Kind == yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i].Line, node.Content[i]
		}
	case node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i].Line, node.Content[i+1]
			}
		}
	}
	return 0, nil
}
