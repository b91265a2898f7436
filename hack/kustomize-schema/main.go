// SPDX-License-Identifier: Apache-2.0

// Command kustomize-schema writes the OpenAPI schemas with which kustomize merges patches of policies. The component's schema
// replaces kustomize's own schema, so it also contains the Kubernetes kinds. The other contains only the policies, for users who
// have their own schema.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// The files that are written.
const (
	schemaFile  = "schema.json"
	snippetFile = "policies.json"
)

func main() {
	crds := flag.String("crds", "config/crd/bases", "directory of the policies' custom resource definitions")
	output := flag.String("output", "config/kustomize/component", "directory to write to")
	flag.Parse()
	if err := run(*crds, *output); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(crds, output string) error {
	files, err := generate(crds)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(output, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the content of each file.
func generate(crds string) (map[string][]byte, error) {
	policies, err := readPolicies(crds)
	if err != nil {
		return nil, err
	}
	snippet, err := policies.encode()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", snippetFile, err)
	}
	builtin, err := builtinDefinitions()
	if err != nil {
		return nil, err
	}
	// kustomize knows without a schema which of Kubernetes' own kinds have a namespace, so only ours need paths.
	maps.Copy(builtin, policies.Definitions)
	all, err := document{Definitions: builtin, Paths: policies.Paths}.encode()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", schemaFile, err)
	}
	return map[string][]byte{schemaFile: all, snippetFile: snippet}, nil
}
