// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sidecar-termination/operator/hack/localcluster/toolchain"
)

// The versions of a cluster by default.
const (
	defaultKubernetes = "v1.37.2"
	defaultKruise     = "v1.8.3"
)

var (
	// kubernetesVersions has one version of each minor, the oldest first. Kubelets have the same.
	kubernetesVersions = []string{"v1.34.10", "v1.35.8", "v1.36.4", defaultKubernetes}
	kruiseVersions     = []string{defaultKruise, "v1.9.1"}
)

// Versions are what a cluster consists of. Parse completes and checks them.
type Versions struct {
	Kubernetes string `json:"kubernetes"`
	// KubeletVersion is the version of the kubelets.
	KubeletVersion string `json:"kubeletVersion"`
	Kruise         string `json:"kruiseVersion"`
	// With names the addons, separated by commas.
	With string `json:"with,omitempty"`
}

// FromEnvironment returns the versions that the environment names, or the defaults.
func FromEnvironment() (Versions, error) {
	return Versions{
		Kubernetes: os.Getenv("K8S_VERSION"), KubeletVersion: os.Getenv("KUBELET_VERSION"), Kruise: os.Getenv("KRUISE_VERSION"),
		With: os.Getenv("WITH"),
	}.Parse()
}

// Parse completes the versions by the defaults, and each by its leading v. It fails if one is not supported here.
func (v Versions) Parse() (Versions, error) {
	var err error
	if v.Kubernetes, err = supported("kubernetes", cmp.Or(v.Kubernetes, defaultKubernetes), kubernetesVersions); err != nil {
		return Versions{}, err
	}
	if v.KubeletVersion, err = supported("kubelet", cmp.Or(v.KubeletVersion, v.Kubernetes), kubernetesVersions); err != nil {
		return Versions{}, err
	}
	if older(v.Kubernetes, v.KubeletVersion) {
		return Versions{}, fmt.Errorf("an API server %s does not support kubelet %s, which is newer", v.Kubernetes, v.KubeletVersion)
	}
	if v.Kruise, err = supported("OpenKruise", cmp.Or(v.Kruise, defaultKruise), kruiseVersions); err != nil {
		return Versions{}, err
	}
	names, err := parseAddons(v.With)
	v.With = strings.Join(names, ",")
	return v, err
}

// older reports whether the first version is older than the second.
func older(first, second string) bool {
	return version.MustParseSemantic(first).LessThan(version.MustParseSemantic(second))
}

// supported returns the version that the text names, with or without a leading v.
func supported(what, text string, versions []string) (string, error) {
	for _, name := range []string{text, "v" + text} {
		if slices.Contains(versions, name) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s %s is not supported here: choose one of %s", what, text, strings.Join(versions, ", "))
}

// String names the versions that differ from each other and from the defaults.
func (v Versions) String() string {
	text := "Kubernetes " + v.Kubernetes
	if v.KubeletVersion != v.Kubernetes {
		text += ", kubelet " + v.KubeletVersion
	}
	if v.Kruise != defaultKruise {
		text += ", OpenKruise " + v.Kruise
	}
	if v.With != "" {
		text += ", with " + strings.ReplaceAll(v.With, ",", " and ")
	}
	return text
}

// names returns the names of the addons.
func (v Versions) names() []string {
	return slices.DeleteFunc(strings.Split(v.With, ","), func(name string) bool { return name == "" })
}

// next returns what a running cluster becomes that is brought up again: it may gain addons. It fails if anything else differs.
func (v Versions) next(wanted Versions) (Versions, error) {
	next := wanted
	all := append(v.names(), wanted.names()...)
	slices.Sort(all)
	next.With = strings.Join(slices.Compact(all), ",")
	if v.Kubernetes != next.Kubernetes || v.Kruise != next.Kruise || v.KubeletVersion != next.KubeletVersion {
		return v, fmt.Errorf("a cluster of %s is running: run localcluster down first", v)
	}
	return next, nil
}

// KruiseTool returns the tool that builds OpenKruise.
func (v Versions) KruiseTool() toolchain.Tool {
	const module = "github.com/openkruise/kruise"
	return toolchain.Tool{
		Name:     "kruise-" + v.Kruise,
		Source:   module,
		Duration: "3 minutes",
		Packages: map[string]string{"kruise-manager": module, "kruise-daemon": module + "/cmd/daemon"},
	}
}
