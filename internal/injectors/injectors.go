// SPDX-License-Identifier: Apache-2.0

// Package injectors predicts which sidecars admission webhooks add to a pod. It reads the labels and annotations of the pod and
// its namespace, as the documentation of each injector describes them. It cannot know whether an injector is installed.
package injectors

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Place is where a mark is.
type Place string

// The places of marks.
const (
	PodLabel            Place = "label of the pod"
	PodAnnotation       Place = "annotation of the pod"
	NamespaceLabel      Place = "label of the namespace"
	NamespaceAnnotation Place = "annotation of the namespace"
)

// Mark is a label or an annotation that asks for a sidecar or opts out of it. Values are compared without regard to case.
type Mark struct {
	At  Place
	Key string
	// On are the values that ask. Any other value opts out, unless Off says which values do.
	On []string
	// Off are the values that opt out.
	Off []string
	// Any is true if every value that is not in Off asks.
	Any bool
	// Prefix is true if Key is the start of the key. The rest of the key is a name.
	Prefix bool
}

// Injector is a webhook that adds a sidecar to pods.
type Injector struct {
	Name string
	// Marks decide in their order: the first one that asks or opts out.
	Marks []Mark
	// Container is the name of the sidecar. {namespace} and {name} stand for the pod's namespace and the rest of the key of
	// the mark.
	Container string
	// Native says when the sidecar is a native one.
	Native Native
	// Ends says who ends a sidecar that is not native, or is empty if nobody does.
	Ends string
	// SkipsHostNetwork is true if pods with hostNetwork get no sidecar.
	SkipsHostNetwork bool
	// Preset is the directory below config/presets with a policy for the sidecar, or empty.
	Preset string
	// WayOut is another way out than a policy, or empty.
	WayOut string
	// Source is the page that documents the marks.
	Source string
}

// Native says when an injector adds its sidecar as a native one.
type Native struct {
	// Annotations turn it on or off for a pod, by a Boolean value.
	Annotations []string
	// Namespace is true if the annotations also count on the namespace.
	Namespace bool
	// Setting turns it on outside of the pod, where it cannot be read, or is empty.
	Setting string
	// Since is the first version of the injector that does so by default, or empty.
	Since string
	// Kubernetes is the oldest version of the nodes with which it does so by default.
	Kubernetes string
}

// Boolean values, as the injectors parse them.
var (
	parsed = []string{"true", "t", "1"}
	truthy = []string{"true", "t", "1", "yes", "y", "on"}
	yaml11 = []string{"true", "yes", "y", "on"}
)

// All has the known injectors, sorted by name.
var All = []Injector{
	{
		// The operator adds the annotation to the templates that its AuthProxyWorkloads select.
		Name:      "Cloud SQL Proxy Operator",
		Marks:     []Mark{{At: PodAnnotation, Key: "cloudsql.cloud.google.com/", Prefix: true, Any: true}},
		Container: "csql-{namespace}-{name}",
		Native:    Native{Setting: "sidecarType: initContainer of the AuthProxyWorkload"},
		Source:    "https://github.com/GoogleCloudPlatform/cloud-sql-proxy-operator/blob/main/docs/api.md",
	},
	{
		Name:      "Consul",
		Marks:     []Mark{{At: PodAnnotation, Key: "consul.hashicorp.com/connect-inject", On: parsed}},
		Container: "consul-dataplane",
		Native:    Native{Annotations: []string{"consul.hashicorp.com/enable-consul-dataplane-as-sidecar"}},
		Source:    "https://developer.hashicorp.com/consul/docs/reference/k8s/annotation-label",
	},
	{
		Name:      "Dapr",
		Marks:     []Mark{{At: PodAnnotation, Key: "dapr.io/enabled", On: truthy}},
		Container: "daprd",
		Native:    Native{Annotations: []string{"dapr.io/enable-native-sidecar"}},
		Preset:    "dapr",
		Source:    "https://docs.dapr.io/reference/arguments-annotations-overview/",
	},
	{
		Name:      "Datadog",
		Marks:     []Mark{{At: PodLabel, Key: "agent.datadoghq.com/sidecar", Any: true}},
		Container: "datadog-agent-injected",
		Source:    "https://docs.datadoghq.com/integrations/eks_fargate/",
	},
	{
		Name:      "GKE Cloud Storage FUSE",
		Marks:     []Mark{{At: PodAnnotation, Key: "gke-gcsfuse/volumes", On: parsed}},
		Container: "gke-gcsfuse-sidecar",
		Native:    Native{Annotations: []string{"gke-gcsfuse/enable-native-sidecar"}, Since: "1.29", Kubernetes: "1.29"},
		Ends:      "its CSI driver, once the other containers have ended",
		Source:    "https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/blob/main/docs/known-issues.md",
	},
	{
		// In a namespace with istio-injection=disabled no webhook of Istio sees the pod.
		Name: "Istio",
		Marks: []Mark{
			{At: NamespaceLabel, Key: "istio-injection", Off: []string{"disabled"}},
			{At: PodLabel, Key: "sidecar.istio.io/inject", On: yaml11},
			{At: PodAnnotation, Key: "sidecar.istio.io/inject", On: yaml11},
			{At: NamespaceLabel, Key: "istio-injection", On: []string{"enabled"}},
			{At: NamespaceLabel, Key: "istio.io/rev", Any: true},
			{At: PodLabel, Key: "istio.io/rev", Any: true},
		},
		Container:        "istio-proxy",
		Native:           Native{Annotations: []string{"sidecar.istio.io/nativeSidecar"}, Since: "1.27", Kubernetes: "1.33"},
		SkipsHostNetwork: true,
		Preset:           "istio-proxy",
		// The annotation is in https://istio.io/latest/docs/reference/config/annotations/, the default in
		// https://github.com/istio/istio/pull/56428.
		Source: "https://istio.io/latest/docs/setup/additional-setup/sidecar-injection/",
	},
	{
		Name: "Linkerd",
		Marks: []Mark{
			{At: PodAnnotation, Key: "linkerd.io/inject", On: []string{"enabled", "ingress"}},
			{At: NamespaceAnnotation, Key: "linkerd.io/inject", On: []string{"enabled", "ingress"}},
		},
		Container: "linkerd-proxy",
		// Versions before 2.19 read the alpha annotation. 2.20 reads both others.
		Native: Native{
			Annotations: []string{
				"config.beta.linkerd.io/proxy-enable-native-sidecar", "config.linkerd.io/proxy-enable-native-sidecar",
				"config.alpha.linkerd.io/proxy-enable-native-sidecar",
			},
			Namespace: true, Since: "2.20", Kubernetes: "1.29",
		},
		SkipsHostNetwork: true,
		Preset:           "linkerd-proxy",
		// The default is in https://linkerd.io/2/features/native-sidecars/.
		Source: "https://linkerd.io/2/features/proxy-injection/",
	},
	{
		// A value other than false is the name of an OpenTelemetryCollector.
		Name: "OpenTelemetry Operator",
		Marks: []Mark{
			{At: PodAnnotation, Key: "sidecar.opentelemetry.io/inject", Off: []string{"false"}, Any: true},
			{At: NamespaceAnnotation, Key: "sidecar.opentelemetry.io/inject", Off: []string{"false"}, Any: true},
		},
		Container: "otc-container",
		// https://github.com/open-telemetry/opentelemetry-operator/pull/4275
		Native: Native{Since: "0.132.0", Kubernetes: "1.29"},
		Source: "https://github.com/open-telemetry/opentelemetry-operator#sidecar-injection",
	},
	{
		// With agent-pre-populate-only the injector adds an init container only.
		Name: "Vault Agent Injector",
		Marks: []Mark{
			{At: PodAnnotation, Key: "vault.hashicorp.com/agent-pre-populate-only", Off: parsed},
			{At: PodAnnotation, Key: "vault.hashicorp.com/agent-inject", On: parsed},
		},
		Container: "vault-agent",
		Preset:    "vault-agent",
		WayOut:    "set annotation vault.hashicorp.com/agent-pre-populate-only=true on the pod if it reads its secrets once",
		Source:    "https://developer.hashicorp.com/vault/docs/deploy/kubernetes/injector/annotations",
	},
}

// Metadata are the labels and annotations of a namespace.
type Metadata struct {
	Labels, Annotations map[string]string
}

// Sidecar is a container that an injector adds.
type Sidecar struct {
	Injector *Injector
	// Container is its name.
	Container string
	// Cause is the mark that asks for it, as KEY=VALUE and its place.
	Cause string
	// Native is whether annotations ask for a native sidecar. It is nil if the injector's default applies.
	Native *bool
}

// Ways are the ways out that need no policy.
func (s Sidecar) Ways() []string {
	var ways []string
	if annotations := s.Injector.Native.Annotations; len(annotations) > 0 {
		ways = append(ways, fmt.Sprintf("set annotation %s=true on the pod", annotations[0]))
	}
	if s.Injector.Native.Setting != "" {
		ways = append(ways, "set "+s.Injector.Native.Setting)
	}
	if s.Injector.WayOut != "" {
		ways = append(ways, s.Injector.WayOut)
	}
	return ways
}

// Predict returns the sidecars that injectors add to the pod, sorted by injector. A sidecar that the pod has already is not
// among them.
func Predict(pod *corev1.Pod, namespace Metadata) []Sidecar {
	var all []Sidecar
	for i := range All {
		injector := &All[i]
		if injector.SkipsHostNetwork && pod.Spec.HostNetwork {
			continue
		}
		for _, asked := range injector.asked(pod, namespace) {
			if !hasContainer(pod, asked.Container) {
				all = append(all, asked)
			}
		}
	}
	return all
}

// asked returns the sidecars of the injector that the first decisive mark asks for. Only a prefix can ask for several.
func (i *Injector) asked(pod *corev1.Pod, namespace Metadata) []Sidecar {
	for _, mark := range i.Marks {
		var all []Sidecar
		values := mark.values(pod, namespace)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			asks, decides := mark.decide(values[key])
			switch {
			case decides && asks:
				name := strings.NewReplacer("{namespace}", pod.Namespace, "{name}", strings.TrimPrefix(key, mark.Key)).Replace(i.Container)
				all = append(all, Sidecar{
					Injector: i, Container: name, Cause: fmt.Sprintf("%s=%s, %s", key, values[key], mark.At),
					Native: i.Native.requested(pod, namespace),
				})
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

// values returns the value of each key of the mark.
func (m Mark) values(pod *corev1.Pod, namespace Metadata) map[string]string {
	at := map[Place]map[string]string{
		PodLabel: pod.Labels, PodAnnotation: pod.Annotations, NamespaceLabel: namespace.Labels, NamespaceAnnotation: namespace.Annotations,
	}[m.At]
	found := map[string]string{}
	for key, value := range at {
		if key == m.Key && !m.Prefix || m.Prefix && len(key) > len(m.Key) && strings.HasPrefix(key, m.Key) {
			found[key] = value
		}
	}
	return found
}

// decide reports whether the value asks for the sidecar, and whether it decides at all.
func (m Mark) decide(value string) (asks, decides bool) {
	is := func(other string) bool { return strings.EqualFold(value, other) }
	switch {
	case value == "":
		return false, false
	case slices.ContainsFunc(m.Off, is):
		return false, true
	case m.Any || slices.ContainsFunc(m.On, is):
		return true, true
	}
	return false, len(m.Off) == 0
}

// requested returns what the annotations ask for, or nil.
func (n Native) requested(pod *corev1.Pod, namespace Metadata) *bool {
	sources := []map[string]string{pod.Annotations}
	if n.Namespace {
		sources = append(sources, namespace.Annotations)
	}
	for _, annotations := range sources {
		for _, key := range n.Annotations {
			if value := annotations[key]; value != "" {
				native := slices.ContainsFunc(truthy, func(on string) bool { return strings.EqualFold(on, value) })
				return &native
			}
		}
	}
	return nil
}

func hasContainer(pod *corev1.Pod, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.Containers, named) || slices.ContainsFunc(pod.Spec.InitContainers, named)
}
