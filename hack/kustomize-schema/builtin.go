// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	p := pruner{definitions: definitions, matters: map[string]bool{}}
	// Definitions refer to each other and to themselves, so the loop runs until it finds no more that matter.
	for changed := true; changed; {
		changed = false
		for name, definition := range definitions {
			if !p.matters[name] && p.prune(definition) != nil {
				p.matters[name], changed = true, true
			}
		}
	}
	kept := map[string]*schema{}
	for name, definition := range definitions {
		if len(definition.Kinds) > 0 {
			p.keep(name, kept)
		}
	}
	return kept
}

type pruner struct {
	definitions map[string]*schema
	matters     map[string]bool
}

// keep adds the pruned definition and all that it refers to.
func (p *pruner) keep(name string, kept map[string]*schema) {
	if _, done := kept[name]; done || !p.matters[name] {
		return
	}
	pruned := p.prune(p.definitions[name])
	pruned.Kinds = p.definitions[name].Kinds
	kept[name] = pruned
	pruned.references(func(reference string) { p.keep(reference, kept) })
}

// prune returns the part of the schema that leads to lists that merge, or nil. kustomize replaces other lists as a whole.
func (p *pruner) prune(s *schema) *schema {
	switch {
	case s == nil:
		return nil
	case s.Ref != "":
		if p.matters[strings.TrimPrefix(s.Ref, refPrefix)] {
			return &schema{Ref: s.Ref}
		}
		return nil
	case s.Type == "array":
		if s.PatchStrategy == "" {
			return nil
		}
		return &schema{
			Type: s.Type, Items: orEmpty(p.prune(s.Items)),
			PatchStrategy: s.PatchStrategy, PatchMergeKey: s.PatchMergeKey, ListMapKeys: s.ListMapKeys,
		}
	}
	pruned := &schema{Properties: map[string]*schema{}}
	for name, property := range s.Properties {
		if kept := p.prune(property); kept != nil {
			pruned.Properties[name] = kept
		}
	}
	if s.AdditionalProperties != nil {
		if kept := p.prune(&s.AdditionalProperties.schema); kept != nil {
			pruned.AdditionalProperties = &valueSchema{*kept}
		}
	}
	if len(pruned.Properties) == 0 && pruned.AdditionalProperties == nil {
		return nil
	}
	return pruned
}

// orEmpty returns a schema that says nothing for none: kustomize follows the items of a list that merges.
func orEmpty(s *schema) *schema {
	if s == nil {
		return &schema{}
	}
	return s
}

// references calls visit with the name of each definition that the schema refers to.
func (s *schema) references(visit func(string)) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		visit(strings.TrimPrefix(s.Ref, refPrefix))
	}
	for _, property := range s.Properties {
		property.references(visit)
	}
	if s.AdditionalProperties != nil {
		s.AdditionalProperties.references(visit)
	}
	s.Items.references(visit)
}
