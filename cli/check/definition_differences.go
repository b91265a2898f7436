// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// differences are how an installed CRD differs from the shipped one.
type differences struct {
	// older are fields and enum values that the installed CRD lacks, and newer those that the shipped one lacks. Fields below
	// such a field are omitted.
	older, newer []string
	// weaker are other differences. What is stricter, such as a lower limit or another rule, is not among them.
	weaker []string
}

// compareDefinitions compares the fields of two CRDs. It adds the API server's defaults to the shipped one.
func compareDefinitions(shipped, installed *apiextensionsv1.CustomResourceDefinition) differences {
	shipped = shipped.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(shipped)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&shipped.Spec)
	ours, theirs := asMap(shipped.Spec), asMap(installed.Spec)
	// A merge key instead of the index.
	ours["versions"], theirs["versions"] = byKey(ours["versions"], "name"), byKey(theirs["versions"], "name")
	var d differences
	d.compare("", ours, theirs)
	return d
}

// asMap returns the value as JSON has it.
func asMap(value any) map[string]any {
	fields := map[string]any{}
	content, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(content, &fields)
	}
	if err != nil {
		panic(err) // types of Kubernetes can be encoded
	}
	return fields
}

// byKey returns the items of a list by the value of a field.
func byKey(list any, key string) map[string]any {
	items, _ := list.([]any)
	all := map[string]any{}
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok {
			all[fmt.Sprint(fields[key])] = item
		}
	}
	return all
}

// compare adds the differences of the fields.
func (d *differences) compare(at string, shipped, installed map[string]any) {
	keys := maps.Clone(shipped)
	maps.Copy(keys, installed)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		d.compareField(at, key, shipped[key], installed[key])
	}
}

func (d *differences) compareField(at, key string, shipped, installed any) {
	path := strings.TrimPrefix(at+"."+key, ".")
	ours, _ := shipped.(map[string]any)
	theirs, _ := installed.(map[string]any)
	switch {
	case key == "description", reflect.DeepEqual(shipped, installed):
		// Tools remove descriptions.
	case key == "properties":
		d.properties(at, ours, theirs)
	case key == "items" && ours != nil && theirs != nil:
		d.compare(at+"[]", ours, theirs)
	case key == "openAPIV3Schema" && ours != nil && theirs != nil:
		d.compare("", ours, theirs)
	case key == "enum":
		d.enum(at, shipped, installed)
	case isStricter(key, shipped, installed):
	case ours != nil && theirs != nil:
		d.compare(path, ours, theirs)
	default:
		d.weaker = append(d.weaker, path)
	}
}

// properties compares the fields of an object's schema, whose names stand for themselves in paths.
func (d *differences) properties(at string, shipped, installed map[string]any) {
	keys := maps.Clone(shipped)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, installed)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		path := strings.TrimPrefix(at+"."+key, ".")
		ours, inShipped := shipped[key].(map[string]any)
		theirs, inInstalled := installed[key].(map[string]any)
		switch {
		case !inInstalled:
			d.older = append(d.older, path)
		case !inShipped:
			d.newer = append(d.newer, path)
		default:
			d.compare(path, ours, theirs)
		}
	}
}

// enum compares the allowed values of a field.
func (d *differences) enum(at string, shipped, installed any) {
	ours, _ := shipped.([]any)
	theirs, _ := installed.([]any)
	if len(ours) == 0 || len(theirs) == 0 {
		if len(theirs) == 0 {
			d.weaker = append(d.weaker, at+".enum")
		}
		return
	}
	missing := func(values, others []any) (names []string) {
		for _, value := range values {
			if !slices.Contains(others, value) {
				names = append(names, fmt.Sprintf("value %v of %s", value, at))
			}
		}
		return names
	}
	d.older, d.newer = append(d.older, missing(ours, theirs)...), append(d.newer, missing(theirs, ours)...)
}

// containsAll reports whether the first list has every item of the second, whatever its messages are.
func containsAll(list, items any) bool {
	all, _ := list.([]any)
	wanted, _ := items.([]any)
	for _, item := range wanted {
		same := func(other any) bool { return reflect.DeepEqual(withoutMessages(item), withoutMessages(other)) }
		if !slices.ContainsFunc(all, same) {
			return false
		}
	}
	return true
}

// withoutMessages returns a validation rule without its messages, and with the spaces of its expression folded.
func withoutMessages(item any) any {
	rule, ok := item.(map[string]any)
	if !ok {
		return item
	}
	rule = maps.Clone(rule)
	delete(rule, "message")
	delete(rule, "messageExpression")
	rule["rule"] = strings.Join(strings.Fields(fmt.Sprint(rule["rule"])), " ")
	return rule
}

// isStricter reports whether the installed value of a schema's field allows less than the shipped one, or the same.
func isStricter(key string, shipped, installed any) bool {
	ours, limited := shipped.(float64)
	theirs, isNumber := installed.(float64)
	switch key {
	case "maximum", "maxItems", "maxLength", "maxProperties":
		return isNumber && (!limited || cmp.Less(theirs, ours))
	case "minimum", "minItems", "minLength", "minProperties":
		return isNumber && (!limited || cmp.Less(ours, theirs))
	case "pattern", "format", "multipleOf":
		return shipped == nil
	case "required", "x-kubernetes-validations":
		return containsAll(installed, shipped)
	}
	return false
}
