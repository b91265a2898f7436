// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/sets"
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
	for _, key := range keysOf(shipped, installed) {
		path := strings.TrimPrefix(at+"."+key, ".")
		ours, _ := shipped[key].(map[string]any)
		theirs, _ := installed[key].(map[string]any)
		switch {
		case key == "description", reflect.DeepEqual(shipped[key], installed[key]):
			// Tools remove descriptions.
		case key == "properties":
			d.compareProperties(at, ours, theirs)
		case isStricter(key, shipped[key], installed[key]):
		case key == "enum" && installed[key] != nil:
			d.older = append(d.older, missingValues(at, shipped[key], installed[key])...)
			d.newer = append(d.newer, missingValues(at, installed[key], shipped[key])...)
		case ours == nil || theirs == nil:
			d.weaker = append(d.weaker, path)
		case key == "items":
			d.compare(at+"[]", ours, theirs)
		case key == "openAPIV3Schema":
			d.compare("", ours, theirs)
		default:
			d.compare(path, ours, theirs)
		}
	}
}

// compareProperties compares the fields of an object's schema, whose names stand for themselves in paths.
func (d *differences) compareProperties(at string, shipped, installed map[string]any) {
	for _, name := range keysOf(shipped, installed) {
		path := strings.TrimPrefix(at+"."+name, ".")
		ours, inShipped := shipped[name].(map[string]any)
		theirs, inInstalled := installed[name].(map[string]any)
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

// keysOf returns the keys of both maps, sorted.
func keysOf(a, b map[string]any) []string { return sets.List(sets.KeySet(a).Union(sets.KeySet(b))) }

// missingValues lists the values of a field's enum that another enum lacks.
func missingValues(at string, enum, other any) []string {
	values, _ := enum.([]any)
	others, _ := other.([]any)
	var names []string
	for _, value := range values {
		if !slices.Contains(others, value) {
			names = append(names, fmt.Sprintf("value %v of %s", value, at))
		}
	}
	return names
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
		return isNumber && (!limited || theirs < ours)
	case "minimum", "minItems", "minLength", "minProperties":
		return isNumber && (!limited || ours < theirs)
	case "pattern", "format", "multipleOf", "enum":
		return shipped == nil
	case "required", "x-kubernetes-validations":
		return containsAll(installed, shipped)
	}
	return false
}
