// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// schema is the part of an OpenAPI schema that says how patches are merged. Whatever else a schema holds is dropped when
// it is decoded into this type.
type schema struct {
	Ref           string             `json:"$ref,omitempty"`
	Type          string             `json:"type,omitempty"`
	Properties    map[string]*schema `json:"properties,omitempty"`
	Items         *schema            `json:"items,omitempty"`
	PatchStrategy string             `json:"x-kubernetes-patch-strategy,omitempty"`
	PatchMergeKey string             `json:"x-kubernetes-patch-merge-key,omitempty"`
	ListType      string             `json:"x-kubernetes-list-type,omitempty"`
	ListMapKeys   []string           `json:"x-kubernetes-list-map-keys,omitempty"`
	Kinds         []groupVersionKind `json:"x-kubernetes-group-version-kind,omitempty"`
}

type groupVersionKind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// document is what kustomize reads from the file that `openapi: {path: ...}` names.
type document struct {
	Definitions map[string]*schema
	Paths       map[string]pathItem
}

// pathItem is one URL of the API. kustomize learns from it whether a kind has a namespace.
type pathItem struct {
	Get operation `json:"get"`
}

type operation struct {
	Kind groupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// encode writes one definition and one path on each line, so that the file is small and a change of it can be read.
func (d document) encode() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("{\n\"definitions\": {\n")
	if err := encodeLines(&out, d.Definitions); err != nil {
		return nil, err
	}
	out.WriteString("},\n\"paths\": {\n")
	if err := encodeLines(&out, d.Paths); err != nil {
		return nil, err
	}
	out.WriteString("}\n}\n")
	return out.Bytes(), nil
}

func encodeLines[T any](out *bytes.Buffer, values map[string]T) error {
	names := slices.Sorted(maps.Keys(values))
	for i, name := range names {
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		value, err := json.Marshal(values[name])
		if err != nil {
			return err
		}
		out.Write(key)
		out.WriteString(": ")
		out.Write(value)
		if i < len(names)-1 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
	}
	return nil
}
