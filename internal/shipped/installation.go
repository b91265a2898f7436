// SPDX-License-Identifier: Apache-2.0

package shipped

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Installation says how names of an installation differ from those of config/default. The zero value is config/default.
type Installation struct {
	// Deployment is the name of the operator's Deployment.
	Deployment string
	// Namespace and Account are those of the ServiceAccount that runs the operator. An empty account is unknown.
	Namespace, Account string
}

// controllerManager is what the name of the operator's Deployment has in every installation.
const controllerManager = "-controller-manager"

// Name returns a name of config/default as it is in the cluster. A Helm release, and namePrefix and nameSuffix of kustomize, may
// change what names begin and end with.
func (i Installation) Name(name string) string {
	if prefix, suffix, ok := strings.Cut(i.Deployment, controllerManager); ok {
		return prefix + "-" + strings.TrimPrefix(name, namesPrefix) + suffix
	}
	return name
}

// user is the name of the operator's ServiceAccount as a user.
func (i Installation) user() string { return "system:serviceaccount:" + i.Namespace + ":" + i.Account }

// names are the names that the chart replaces in expressions and messages. A test compares them with the chart.
var names = regexp.MustCompile(namesPrefix + "(controller-manager|leader-election-|manager-|marks|metrics-reader|mode-|outcome|operator-limits|" +
	"operator-requests|phase|pod-finisher|policy-|clusterpolicy-)")

// chartText returns a text of config/default as the chart installs it. kustomize changes no text.
func (i Installation) chartText(text string) string {
	fullname, _, ok := strings.Cut(i.Deployment, controllerManager)
	if !ok {
		return text
	}
	account := fullname + controllerManager
	return strings.ReplaceAll(names.ReplaceAllString(text, fullname+"-${1}"), account, cmp.Or(i.Account, account))
}

// defaults are the values that the API server sets in admission policies.
var defaults = map[string]any{
	"matchPolicy": "Equivalent", "namespaceSelector": map[string]any{}, "objectSelector": map[string]any{}, "scope": "*",
}

// differences lists the fields in which the installed value differs from the shipped one.
func (i Installation) differences(path string, shipped, installed any) []string {
	var all []string
	switch shipped := shipped.(type) {
	case map[string]any:
		fields, _ := installed.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if _, given := shipped[key]; !given && !reflect.DeepEqual(fields[key], defaults[key]) {
				all = append(all, path+"."+key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(shipped)) {
			all = append(all, i.differences(path+"."+key, shipped[key], fields[key])...)
		}
		return all
	case []any:
		items, _ := installed.([]any)
		if len(items) != len(shipped) {
			return []string{path}
		}
		for n := range shipped {
			all = append(all, i.differences(fmt.Sprintf("%s[%d]", path, n), shipped[n], items[n])...)
		}
		return all
	case string:
		if text, ok := installed.(string); ok && i.isSame(path, shipped, text) {
			return nil
		}
	default:
		if reflect.DeepEqual(shipped, installed) {
			return nil
		}
	}
	return []string{path}
}

// isSame reports whether an installed text is the shipped one. The name of a policy must be its name in the installation.
func (i Installation) isSame(path, shipped, installed string) bool {
	if path == "spec.policyName" {
		return installed == i.Name(shipped)
	}
	// Tools fold long expressions differently.
	words := strings.Fields(installed)
	return slices.Equal(words, strings.Fields(shipped)) || slices.Equal(words, strings.Fields(i.chartText(shipped)))
}
