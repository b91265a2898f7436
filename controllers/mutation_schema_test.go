// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controllers

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/sidecar-termination/operator/config/crd"
)

// The steps from a value to a value inside it, except for names of properties.
const (
	itemStep  = "[]"
	valueStep = "{}"
)

// field is a field of the spec that a definition describes.
type field struct {
	// steps lead from the object to the field: spec, sidecars, [], mode.
	steps  []string
	schema *apiextensionsv1.JSONSchemaProps
}

func (f field) String() string { return strings.Join(f.steps, ".") }

// definitionOf reads the installed definition of a kind.
func definitionOf(t *testing.T, plural string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return readDefinition(t, crd.Definitions, "bases/sidecartermination.dev_"+plural+".yaml")
}

func readDefinition(t *testing.T, files fs.FS, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	content, err := fs.ReadFile(files, file)
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(content, definition); err != nil {
		t.Fatal(err)
	}
	return definition
}

// fieldsOf returns every field of the spec, the spec itself first.
func fieldsOf(definition *apiextensionsv1.CustomResourceDefinition) []field {
	var all []field
	var walk func(schema *apiextensionsv1.JSONSchemaProps, steps []string)
	walk = func(schema *apiextensionsv1.JSONSchemaProps, steps []string) {
		all = append(all, field{slices.Clone(steps), schema})
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			property := schema.Properties[name]
			walk(&property, append(steps, name))
		}
		if schema.Items != nil {
			walk(schema.Items.Schema, append(steps, itemStep))
		}
		if schema.AdditionalProperties != nil {
			walk(schema.AdditionalProperties.Schema, append(steps, valueStep))
		}
	}
	spec := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	walk(&spec, []string{"spec"})
	return all
}

// generator generates values for a schema.
type generator struct{ *rand.Rand }

// words are the strings to choose from: values of pods, values of maximum length, and unexpected ones.
var words = []string{
	"", "a", "0", "main", "proxy", "logger", "none", "team", "etl", "In", "NotIn", "Exists", "DoesNotExist", "Near",
	quickExit, "registry.example:5000/team/quick-exit@sha256:" + strings.Repeat("0", 64), "quick exit:v1", "-x", "/", "example.com/a.b",
	"UPPER", "two words", "a/b/c", "\u00e9\u4e16\U0001F600", "*", "null", "true", "-1", "{{.}}", "%s%n", "a\nb", "$(PATH)",
	"default", "/app/server", "/usr/local/bin/proxy",
	strings.Repeat("a", 63), strings.Repeat("b", 253), strings.Repeat("c", 512), strings.Repeat("d", 4096),
}

func one[T any](g generator, list []T) T { return list[g.IntN(len(list))] }

// value returns a value that the schema allows. CEL rules may still deny it.
func (g generator) value(schema *apiextensionsv1.JSONSchemaProps) any {
	switch {
	case len(schema.Enum) > 0:
		return strings.Trim(string(one(g, schema.Enum).Raw), `"`)
	case schema.XIntOrString:
		return one(g, []any{int64(g.IntN(100)), "50%"})
	}
	switch schema.Type {
	case "string":
		return g.word(schema)
	case "integer":
		return g.number(schema)
	case "boolean":
		return g.IntN(2) == 0
	case "array":
		return g.list(schema, g.size(schema.MinItems, schema.MaxItems))
	}
	object := map[string]any{}
	if additional := schema.AdditionalProperties; additional != nil {
		g.fill(object, additional.Schema, g.size(schema.MinProperties, schema.MaxProperties))
		return object
	}
	for name, property := range sorted(schema.Properties) {
		if slices.Contains(schema.Required, name) || g.IntN(3) == 0 {
			object[name] = g.value(&property)
		}
	}
	return object
}

// sorted has the same order for the same seed.
func sorted[T any](m map[string]T) func(yield func(string, T) bool) {
	return func(yield func(string, T) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

func (g generator) word(schema *apiextensionsv1.JSONSchemaProps) string {
	allowed := slices.DeleteFunc(slices.Clone(words), func(word string) bool { return !allows(schema, word) })
	return one(g, allowed)
}

// allows reports whether the schema allows the text, CEL rules aside.
func allows(schema *apiextensionsv1.JSONSchemaProps, text string) bool {
	length := int64(len([]rune(text)))
	return (schema.MinLength == nil || length >= *schema.MinLength) && (schema.MaxLength == nil || length <= *schema.MaxLength) &&
		(schema.Pattern == "" || regexp.MustCompile(schema.Pattern).MatchString(text))
}

func (g generator) number(schema *apiextensionsv1.JSONSchemaProps) int64 {
	low, high := int64(-1<<31), int64(1<<31-1)
	if schema.Minimum != nil {
		low = int64(*schema.Minimum)
	}
	if schema.Maximum != nil {
		high = int64(*schema.Maximum)
	}
	return one(g, []int64{low, high, low + g.Int64N(high-low+1), min(low+g.Int64N(3), high)})
}

// size is mostly small, sometimes at a limit, and larger than CEL rules allow if the schema has no limit.
func (g generator) size(least, most *int64) int {
	low, high := int64(0), int64(65)
	if least != nil {
		low = *least
	}
	if most != nil {
		high = *most
	}
	if g.IntN(8) == 0 {
		return int(one(g, []int64{low, high}))
	}
	return int(min(low+g.Int64N(3), high))
}

// list returns that many items, which differ where the schema requires it.
func (g generator) list(schema *apiextensionsv1.JSONSchemaProps, size int) []any {
	items := []any{}
	for i := range size {
		item := g.value(schema.Items.Schema)
		if distinct(schema) && slices.ContainsFunc(items, func(other any) bool { return identity(schema, other) == identity(schema, item) }) {
			item = identified(schema, item, fmt.Sprintf("item-%d", i))
		}
		items = append(items, item)
	}
	return items
}

func distinct(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.XListType != nil && (*schema.XListType == "set" || *schema.XListType == "map")
}

// identity is what no two items of a list may have in common.
func identity(schema *apiextensionsv1.JSONSchemaProps, item any) any {
	if len(schema.XListMapKeys) > 0 {
		return item.(map[string]any)[schema.XListMapKeys[0]]
	}
	return item
}

func identified(schema *apiextensionsv1.JSONSchemaProps, item any, id string) any {
	if len(schema.XListMapKeys) > 0 {
		item.(map[string]any)[schema.XListMapKeys[0]] = id
		return item
	}
	return id
}

func (g generator) fill(object map[string]any, schema *apiextensionsv1.JSONSchemaProps, size int) {
	for _, key := range []string{"team", "example.com/name", "two words"} {
		if len(object) < size && g.IntN(2) == 0 {
			object[key] = g.value(schema)
		}
	}
	for i := 0; len(object) < size; i++ {
		object[fmt.Sprintf("key-%d", i)] = g.value(schema)
	}
}

// wrong is a value that the schema does not allow.
type wrong struct {
	what  string
	value any
}

// wrongs returns every way to break the schema of a field with its current value. CEL rules are not among them.
func (g generator) wrongs(schema *apiextensionsv1.JSONSchemaProps) []wrong {
	list := g.wrongTypes(schema)
	if len(schema.Enum) > 0 {
		return append(list, wrong{"no value of the enum", "Unheard"}, wrong{"an empty value of an enum", ""},
			wrong{"a value of the enum in small letters", strings.ToLower(strings.Trim(string(schema.Enum[0].Raw), `"`))})
	}
	if schema.MinLength != nil && *schema.MinLength > 0 {
		list = append(list, wrong{"too short", ""})
	}
	if schema.MaxLength != nil {
		list = append(list, wrong{"too long", strings.Repeat("a", int(*schema.MaxLength)+1)})
	}
	if schema.Pattern != "" {
		for _, word := range words {
			if within := (&apiextensionsv1.JSONSchemaProps{MinLength: schema.MinLength, MaxLength: schema.MaxLength}); allows(within, word) && !allows(schema, word) {
				list = append(list, wrong{"not of the pattern", word})
			}
		}
	}
	if schema.Minimum != nil {
		list = append(list, wrong{"below the minimum", int64(*schema.Minimum) - 1}, wrong{"far below the minimum", int64(-1 << 62)})
	}
	if schema.Maximum != nil {
		list = append(list, wrong{"above the maximum", int64(*schema.Maximum) + 1}, wrong{"far above the maximum", int64(1 << 62)})
	}
	if schema.MinItems != nil && *schema.MinItems > 0 {
		list = append(list, wrong{"too few items", g.list(schema, int(*schema.MinItems)-1)})
	}
	if schema.MaxItems != nil {
		list = append(list, wrong{"too many items", g.list(schema, int(*schema.MaxItems)+1)})
	}
	if schema.Type == "array" && distinct(schema) {
		item := g.value(schema.Items.Schema)
		list = append(list, wrong{"an item twice", []any{item, item}})
	}
	if schema.MaxProperties != nil {
		object := map[string]any{}
		g.fill(object, schema.AdditionalProperties.Schema, int(*schema.MaxProperties)+1)
		list = append(list, wrong{"too many properties", object})
	}
	for _, required := range schema.Required {
		object := g.value(schema).(map[string]any)
		delete(object, required)
		list = append(list, wrong{"without " + required, object})
	}
	return list
}

func (g generator) wrongTypes(schema *apiextensionsv1.JSONSchemaProps) []wrong {
	var list []wrong
	for kind, value := range sorted(map[string]any{
		"string": "text", "integer": int64(7), "boolean": true, "array": []any{"text"}, "object": map[string]any{"text": "text"}, "number": 1.5,
	}) {
		either := schema.XIntOrString && (kind == "string" || kind == "integer")
		if kind != schema.Type && !either {
			list = append(list, wrong{"of type " + kind, value})
		}
	}
	return list
}

// companions are fields that a CEL rule requires along with another one, with a value for each.
var companions = map[string]struct{ name, value string }{"quickExitPaths": {"image", quickExit}}

// accompany mostly sets the field that the named field requires.
func (g generator) accompany(object map[string]any, name string) {
	companion, needed := companions[name]
	if there, _ := object[companion.name].(string); needed && there == "" && g.IntN(8) > 0 {
		object[companion.name] = companion.value
	}
}

// removed, as the new value of a property, removes it.
type removed struct{}

// edit changes the field at the end of the steps. It creates missing parents and chooses items and keys. It returns the new value,
// and the field's path as the API server names it.
func (g generator) edit(old any, schema *apiextensionsv1.JSONSchemaProps, steps []string, at string, change func(old any) any) (updated any, where string) {
	if len(steps) == 0 {
		return change(old), at
	}
	switch steps[0] {
	case itemStep:
		items, _ := old.([]any)
		if len(items) == 0 {
			items = g.list(schema, 1)
		}
		i := g.IntN(len(items))
		items[i], where = g.edit(items[i], schema.Items.Schema, steps[1:], fmt.Sprintf("%s[%d]", at, i), change)
		if items[i] == (removed{}) {
			return slices.Delete(items, i, i+1), where
		}
		return items, where
	case valueStep:
		object, ok := old.(map[string]any)
		if !ok || len(object) == 0 {
			object = map[string]any{}
			g.fill(object, schema.AdditionalProperties.Schema, 1)
		}
		key := one(g, slices.Sorted(maps.Keys(object)))
		return g.editKey(object, key, schema.AdditionalProperties.Schema, steps, at, change)
	default:
		object, ok := old.(map[string]any)
		if !ok {
			object = g.value(schema).(map[string]any)
		}
		g.accompany(object, steps[0])
		property := schema.Properties[steps[0]]
		return g.editKey(object, steps[0], &property, steps, at, change)
	}
}

func (g generator) editKey(
	object map[string]any, key string, schema *apiextensionsv1.JSONSchemaProps, steps []string, at string, change func(old any) any,
) (updated any, where string) {
	value, where := g.edit(object[key], schema, steps[1:], at+"."+key, change)
	object[key] = value
	if value == any(removed{}) {
		delete(object, key)
	}
	return object, where
}
