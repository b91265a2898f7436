// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sidecar-termination/operator/hack/packaging/render"
)

// feature is something that a kustomize component turns on or off and a value of the
// chart does as well. What it consists of is taken from what the component changes, so
// that the two cannot drift apart.
type feature struct {
	// component is a directory below config/components.
	component string
	// on is the template condition under which the chart is as without the component, if
	// the component takes away, or as with it, if the component adds.
	on string
}

// removals are the components that take something away: objects go, and flags come.
var removals = []feature{
	{"no-crr", `eq .Values.modes.crr "Enabled"`},
	{"no-image", `eq .Values.modes.image "Enabled"`},
	{"no-pod-phase", `ne .Values.modes.podPhase "Disabled"`},
	{"no-pre-pull", `eq .Values.prePull "Enabled"`},
	{"no-admission", ".Values.admissionPolicies.enabled"},
}

// additions are the components that add objects and nothing else.
var additions = []feature{
	{"service-monitor", ".Values.serviceMonitor.enabled"},
	{"alerts", ".Values.alerts.enabled"},
	{"dashboard", ".Values.dashboard.enabled"},
	{"network-policy", ".Values.networkPolicy.enabled"},
}

// lastResort is the flag of the one value that no component has.
var lastResort = conditionalFlags{`ne .Values.modes.podPhase "LastResort"`, []string{"--pod-phase=LastResort"}}

// conditionalFlags are arguments that the operator gets unless a condition holds.
type conditionalFlags struct {
	unless string
	flags  []string
}

// installation is everything that the chart may install.
type installation struct {
	objects []unstructured.Unstructured
	// conditions has the template conditions of objects that are not always installed.
	conditions map[string][]string
	flags      []conditionalFlags
}

// read renders the kustomization with and without every feature.
func read(config string) (*installation, error) {
	directory := filepath.Join(config, "default")
	base, err := render.Objects(directory)
	if err != nil {
		return nil, err
	}
	result := &installation{objects: base, conditions: map[string][]string{}, flags: []conditionalFlags{lastResort}}
	for _, feature := range removals {
		changed, err := render.Objects(directory, filepath.Join(config, "components", feature.component))
		if err != nil {
			return nil, err
		}
		if err := result.remove(feature, base, changed); err != nil {
			return nil, fmt.Errorf("read what the component %s takes away: %w", feature.component, err)
		}
	}
	for _, feature := range additions {
		changed, err := render.Objects(directory, filepath.Join(config, "components", feature.component))
		if err != nil {
			return nil, err
		}
		if err := result.add(feature, base, changed); err != nil {
			return nil, fmt.Errorf("read what the component %s adds: %w", feature.component, err)
		}
	}
	return result, nil
}

func (i *installation) remove(feature feature, base, changed []unstructured.Unstructured) error {
	for _, object := range base {
		other := find(changed, object)
		switch {
		case other == nil:
			i.conditions[key(object)] = append(i.conditions[key(object)], feature.on)
		case object.GetKind() == "Deployment":
			flags, err := addedFlags(object, *other)
			if err != nil {
				return err
			}
			i.flags = append(i.flags, conditionalFlags{feature.on, flags})
		case !reflect.DeepEqual(object.Object, other.Object):
			return fmt.Errorf("%s is changed, which the chart cannot follow", key(object))
		}
	}
	return nil
}

func (i *installation) add(feature feature, base, changed []unstructured.Unstructured) error {
	for _, object := range changed {
		switch other := find(base, object); {
		case other == nil:
			i.objects = append(i.objects, object)
			i.conditions[key(object)] = []string{feature.on}
		case !reflect.DeepEqual(object.Object, other.Object):
			return fmt.Errorf("%s is changed, which the chart cannot follow", key(object))
		}
	}
	return nil
}

// addedFlags returns the arguments that a Deployment's only container got, and fails when
// anything else was changed.
func addedFlags(before, after unstructured.Unstructured) ([]string, error) {
	old, err := arguments(before)
	if err != nil {
		return nil, err
	}
	all, err := arguments(after)
	if err != nil {
		return nil, err
	}
	if len(all) < len(old) || !slices.Equal(all[:len(old)], old) {
		return nil, fmt.Errorf("the arguments %q are not followed by others in %q", old, all)
	}
	restored := after.DeepCopy()
	if err := setArguments(restored, old); err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(before.Object, restored.Object) {
		return nil, fmt.Errorf("%s is changed by more than arguments, which the chart cannot follow", key(before))
	}
	return all[len(old):], nil
}

func arguments(deployment unstructured.Unstructured) ([]string, error) {
	container, err := onlyContainer(deployment.Object)
	if err != nil {
		return nil, err
	}
	found, _, err := unstructured.NestedStringSlice(container, "args")
	return found, err
}

func setArguments(deployment *unstructured.Unstructured, values []string) error {
	container, err := onlyContainer(deployment.Object)
	if err != nil {
		return err
	}
	return unstructured.SetNestedStringSlice(container, values, "args")
}

// onlyContainer returns the container of a Deployment, to be read or changed in place.
func onlyContainer(deployment map[string]any) (map[string]any, error) {
	containers, _, err := unstructured.NestedFieldNoCopy(deployment, "spec", "template", "spec", "containers")
	if err != nil {
		return nil, fmt.Errorf("find the container of the Deployment: %w", err)
	}
	list, _ := containers.([]any)
	if len(list) != 1 {
		return nil, fmt.Errorf("the Deployment has %d containers, and the chart is made for one", len(list))
	}
	container, ok := list[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the container of the Deployment is no object")
	}
	return container, nil
}

// key names an object.
func key(object unstructured.Unstructured) string {
	return strings.Join([]string{object.GetKind(), object.GetName()}, " ")
}

func find(objects []unstructured.Unstructured, wanted unstructured.Unstructured) *unstructured.Unstructured {
	for index := range objects {
		if key(objects[index]) == key(wanted) && objects[index].GetAPIVersion() == wanted.GetAPIVersion() {
			return &objects[index]
		}
	}
	return nil
}
