// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/openapi"
)

const refPrefix = "#/definitions/"

// builtinDefinitions returns what kustomize knows of Kubernetes' own kinds, pruned to what decides how a patch is merged:
// the lists that merge by a key, and the way to them.
func builtinDefinitions() (map[string]*schema, error) {
	openapi.ResetOpenAPI()
	all, err := json.Marshal(openapi.Schema().Definitions)
	if err != nil {
		return nil, fmt.Errorf("encode the built-in definitions: %w", err)
	}
	definitions := map[string]*schema{}
	if err := json.Unmarshal(all, &definitions); err != nil {
		return nil, fmt.Errorf("decode the built-in definitions: %w", err)
	}
	return prune(definitions), nil
}

// prune keeps the definitions that change how kustomize merges a patch.
func prune(definitions map[string]*schema) map[string]*schema {
	matters := pruner{}
	// Definitions refer to each other and to themselves, so the loop runs until it finds no more that matter.
	for changed := true; changed; {
		changed = false
		for name, definition := range definitions {
			if !matters[name] && matters.prune(definition) != nil {
				matters[name], changed = true, true
			}
		}
	}
	kept := map[string]*schema{}
	for name := range matters {
		kept[name] = matters.prune(definitions[name])
		kept[name].Kinds = definitions[name].Kinds
	}
	return kept
}

// pruner has the names of the definitions that matter.
type pruner map[string]bool

// prune returns the part of the schema that leads to lists that merge, or nil. kustomize replaces other lists as a whole.
// Values of maps, such as labels, lead to no lists.
func (p pruner) prune(s *schema) *schema {
	switch {
	case s == nil:
		return nil
	case s.Ref != "":
		if p[strings.TrimPrefix(s.Ref, refPrefix)] {
			return &schema{Ref: s.Ref}
		}
		return nil
	case s.Type == "array":
		if s.PatchStrategy == "" {
			return nil
		}
		// kustomize follows the items of a list that merges, so they are never missing.
		return &schema{
			Type: s.Type, Items: cmp.Or(p.prune(s.Items), &schema{}),
			PatchStrategy: s.PatchStrategy, PatchMergeKey: s.PatchMergeKey, ListMapKeys: s.ListMapKeys,
		}
	}
	pruned := &schema{Properties: map[string]*schema{}}
	for name, property := range s.Properties {
		if kept := p.prune(property); kept != nil {
			pruned.Properties[name] = kept
		}
	}
	if len(pruned.Properties) == 0 {
		return nil
	}
	return pruned
}
