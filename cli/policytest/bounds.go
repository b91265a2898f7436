// SPDX-License-Identifier: Apache-2.0

package policytest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// Bounds of the input.
const (
	// maxFileBytes bounds a test file and a manifest.
	maxFileBytes = 1 << 20
	// maxExpandedBytes bounds a file after its aliases are expanded.
	maxExpandedBytes = 8 << 20
	// maxManifests bounds the manifests of one test file.
	maxManifests = 100
	// maxFiles bounds the test files of one run.
	maxFiles = 10_000
	// maxInvalidCases bounds the invalid cases of a file that are reported.
	maxInvalidCases = 10
)

// readFile reads a regular file of bounded size.
func readFile(path string) ([]byte, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("it is a directory; name its files")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("it is larger than %d KiB; split it", maxFileBytes>>10)
	}
	return data, checkAliases(data)
}

// checkAliases bounds the size of YAML documents after their aliases are expanded: a few lines can stand for gigabytes.
func checkAliases(data []byte) error {
	if !bytes.ContainsRune(data, '*') || !bytes.ContainsRune(data, '&') {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	total := 0
	for {
		var document yaml.Node
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		total += expandedSize(&document, map[*yaml.Node]int{})
		if total > maxExpandedBytes {
			return fmt.Errorf("its aliases expand to more than %d MiB; write the values out", maxExpandedBytes>>20)
		}
	}
}

// expandedSize returns the approximate size of a node with its aliases expanded, or more than maxExpandedBytes.
func expandedSize(node *yaml.Node, known map[*yaml.Node]int) int {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if size, ok := known[node]; ok {
		return size
	}
	// A node that contains itself has no end.
	known[node] = maxExpandedBytes + 1
	size := len(node.Value) + 1
	for _, child := range node.Content {
		size = min(size+expandedSize(child, known), maxExpandedBytes+1)
	}
	known[node] = size
	return size
}
