// SPDX-License-Identifier: Apache-2.0

package crdify_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/yaml"
)

// rules are what counts as breaking: every difference that crdify does not know to be harmless, except for descriptions and
// values that are added to an enum.
var rules = config.Config{
	Validations: []config.ValidationConfig{
		{Name: "description", Enforcement: config.EnforcementPolicyNone},
		{Name: "enum", Enforcement: config.EnforcementPolicyError, Configuration: map[string]any{"additionPolicy": "Allow"}},
	},
	UnhandledEnforcement: config.EnforcementPolicyError,
	Conversion:           config.ConversionPolicyNone,
}

// compare returns the breaking changes from old to current definitions, or "". It matches definitions by name, not by file.
func compare(old, current map[string][]byte) (string, error) {
	checks, err := runner.New(&rules, runner.DefaultRegistry())
	if err != nil {
		return "", fmt.Errorf("configure the checks: %w", err)
	}
	before, err := decode(old)
	if err != nil {
		return "", err
	}
	after, err := decode(current)
	if err != nil {
		return "", err
	}
	report := &strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] == nil {
			fmt.Fprintf(report, "%s: it is gone\n", name)
			continue
		}
		for _, version := range served(before[name]) {
			if !slices.Contains(served(after[name]), version) {
				fmt.Fprintf(report, "%s: version %s is not served any more\n", name, version)
			}
		}
		if results := checks.Run(before[name], after[name]); results.HasFailures() {
			fmt.Fprintf(report, "%s:\n%s\n", name, results.RenderPlainText())
		}
	}
	return report.String(), nil
}

// served returns the versions that clients can use. crdify itself checks only the stored versions.
func served(definition *apiextensionsv1.CustomResourceDefinition) []string {
	var versions []string
	for _, version := range definition.Spec.Versions {
		if version.Served {
			versions = append(versions, version.Name)
		}
	}
	return versions
}

func decode(files map[string][]byte) (map[string]*apiextensionsv1.CustomResourceDefinition, error) {
	decoded := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for name, content := range files {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(content, definition); err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		if definition.Kind != "CustomResourceDefinition" {
			return nil, fmt.Errorf("decode %s: it is a %q, not a CustomResourceDefinition", name, definition.Kind)
		}
		decoded[definition.Name] = definition
	}
	return decoded, nil
}
