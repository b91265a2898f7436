// SPDX-License-Identifier: Apache-2.0

// Package sidecars knows well-known sidecars: what they are called, what injects them and what ends them. It predicts which of them
// admission webhooks add to a pod, from labels and annotations as each injector documents them. It cannot know whether an injector is
// installed.
package sidecars

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sidecar is a sidecar that runs until it is stopped.
type Sidecar struct {
	// Containers are its names. The injector uses the first, in which {namespace} and {name} stand for the pod's namespace and the rest
	// of the trigger's key.
	Containers []string
	// Images are the last parts of the repositories of its images. Ambiguous ones are left out.
	Images []string
	// EndedBy is what ends the container of this name once the others have ended, or empty.
	EndedBy string
	// Preset is the directory below config/presets with a policy for the sidecar, or empty.
	Preset string
	// Page documents the names, the triggers, or what ends the sidecar. Date is the month in which the entry was written or last compared
	// with it.
	Page, Date string

	// Injector is the name of the webhook that adds the sidecar to pods, or empty. The fields below describe it.
	Injector string
	// Triggers decide in their order: the first one that asks or opts out.
	Triggers []Trigger
	Native   Native
	// SkipsHostNetwork is true if pods with hostNetwork get no sidecar.
	SkipsHostNetwork bool
	// WayOut is another way out than a policy or a native sidecar, or empty.
	WayOut string
}

// Place is where a trigger is.
type Place string

// The places of triggers.
const (
	PodLabel            Place = "label of the pod"
	PodAnnotation       Place = "annotation of the pod"
	NamespaceLabel      Place = "label of the namespace"
	NamespaceAnnotation Place = "annotation of the namespace"
)

// places are the labels and annotations that triggers may be in.
type places map[Place]map[string]string

// Trigger is a label or an annotation that asks for a sidecar or opts out of it. Values are compared without regard to case.
type Trigger struct {
	At Place
	// Key is the label or annotation, or its start if it ends in a slash. The rest of the key is then a name.
	Key string
	// On are the values that ask. Any other value opts out, unless Off says which values do.
	On []string
	// Off are the values that opt out.
	Off []string
	// Any is true if every value that is not in Off asks.
	Any bool
}

// Native says when an injector adds its sidecar as a native one.
type Native struct {
	// Annotations turn it on or off for a pod, by a Boolean value.
	Annotations []string
	// AnnotationsSince is the first version of the injector that reads them, or empty if that is long ago.
	AnnotationsSince string
	// Namespace is true if the annotations also count on the namespace.
	Namespace bool
	// Setting turns it on outside of the pod, where it cannot be read, or is empty.
	Setting string
	// Since is the first version of the injector that does so by default, or empty.
	Since string
	// Kubernetes is the oldest version of the nodes with which it does so by default.
	Kubernetes string
}

// KnownBy returns the name or the image by which the container is a known sidecar, such as "name istio-proxy", or nothing.
func KnownBy(container *corev1.Container) string {
	if named(container.Name) != nil {
		return "name " + container.Name
	}
	repository, _, _ := strings.Cut(container.Image, "@")
	last, _, _ := strings.Cut(repository[strings.LastIndex(repository, "/")+1:], ":")
	if slices.ContainsFunc(Table, func(s Sidecar) bool { return slices.Contains(s.Images, last) }) {
		return "image " + last
	}
	return ""
}

// EndedByOthers reports whether a container of this name is a known sidecar that something ends.
func EndedByOthers(container string) bool {
	known := named(container)
	return known != nil && known.EndedBy != ""
}

var anyName = strings.NewReplacer("{namespace}", "*", "{name}", "*")

// named returns the sidecar with a container of this name, or nil.
func named(container string) *Sidecar {
	i := slices.IndexFunc(Table, func(s Sidecar) bool {
		return slices.ContainsFunc(s.Containers, func(name string) bool {
			matches, _ := path.Match(anyName.Replace(name), container)
			return matches
		})
	})
	if i < 0 {
		return nil
	}
	return &Table[i]
}

// Injection is a container that an injector adds to a pod.
type Injection struct {
	*Sidecar
	Container string
	// Cause is the trigger, as KEY=VALUE and its place.
	Cause string
	// IsNative is whether annotations ask for a native sidecar. It is nil if the injector's default applies.
	IsNative *bool
}

// Ways are the ways out that need no policy.
func (i Injection) Ways() []string {
	var ways []string
	if annotations := i.Native.Annotations; len(annotations) > 0 {
		way := fmt.Sprintf("set annotation %s=true on the pod", annotations[0])
		if since := i.Native.AnnotationsSince; since != "" {
			way += fmt.Sprintf(" (%s %s or later)", i.Injector, since)
		}
		ways = append(ways, way)
	}
	if i.Native.Setting != "" {
		ways = append(ways, "set "+i.Native.Setting)
	}
	if i.WayOut != "" {
		ways = append(ways, i.WayOut)
	}
	return ways
}

// Predict returns the containers that injectors add to the pod, in the order of the table. A container that the pod has already is not
// among them.
func Predict(pod *corev1.Pod, namespace metav1.Object) []Injection {
	in := places{
		PodLabel: pod.Labels, PodAnnotation: pod.Annotations,
		NamespaceLabel: namespace.GetLabels(), NamespaceAnnotation: namespace.GetAnnotations(),
	}
	var all []Injection
	for i := range Table {
		if !Table[i].SkipsHostNetwork || !pod.Spec.HostNetwork {
			all = append(all, Table[i].asked(pod.Namespace, in)...)
		}
	}
	return slices.DeleteFunc(all, func(i Injection) bool {
		isNamed := func(c corev1.Container) bool { return c.Name == i.Container }
		return slices.ContainsFunc(pod.Spec.Containers, isNamed) || slices.ContainsFunc(pod.Spec.InitContainers, isNamed)
	})
}

// asked returns the containers that the first decisive trigger asks for. Only a prefix can ask for several.
func (s *Sidecar) asked(namespace string, in places) []Injection {
	for _, trigger := range s.Triggers {
		var all []Injection
		for _, key := range trigger.keys(in) {
			value := in[trigger.At][key]
			asks, decides := trigger.decide(value)
			switch {
			case decides && asks:
				name := strings.NewReplacer("{namespace}", namespace, "{name}", strings.TrimPrefix(key, trigger.Key)).Replace(s.Containers[0])
				all = append(all, Injection{s, name, fmt.Sprintf("%s=%s, %s", key, value, trigger.At), s.Native.requested(in)})
			case decides:
				return nil
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return nil
}

// keys returns the keys of the trigger that are present, sorted.
func (t Trigger) keys(in places) []string {
	if !strings.HasSuffix(t.Key, "/") {
		return []string{t.Key}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(in[t.At])), func(key string) bool {
		return len(key) <= len(t.Key) || !strings.HasPrefix(key, t.Key)
	})
}

// decide reports whether the value asks for the sidecar, and whether it decides at all.
func (t Trigger) decide(value string) (asks, decides bool) {
	switch {
	case value == "":
		return false, false
	case contains(t.Off, value):
		return false, true
	case t.Any || contains(t.On, value):
		return true, true
	}
	return false, len(t.Off) == 0
}

// requested returns what the annotations ask for, or nil.
func (n Native) requested(in places) *bool {
	for _, place := range []Place{PodAnnotation, NamespaceAnnotation} {
		for _, key := range n.Annotations {
			if value := in[place][key]; value != "" && (place == PodAnnotation || n.Namespace) {
				return new(contains(truthy, value))
			}
		}
	}
	return nil
}

func contains(values []string, value string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return strings.EqualFold(v, value) })
}
