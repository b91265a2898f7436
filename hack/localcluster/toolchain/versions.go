// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
)

// DefaultKubernetes and DefaultKruise are the versions of a cluster by default.
const (
	DefaultKubernetes = "v1.37.2"
	DefaultKruise     = "v1.8.3"
)

// WithoutKruise is the version of OpenKruise of a cluster that does not have it.
const WithoutKruise = "none"

var (
	// kubernetesVersions and kubeletVersions have one version of each minor, the oldest first.
	kubernetesVersions = []string{"v1.36.4", DefaultKubernetes}
	kubeletVersions    = append([]string{"v1.34.10"}, kubernetesVersions...)
	kruiseVersions     = []string{DefaultKruise, "v1.9.1", WithoutKruise}
)

// Versions are the versions of a cluster's programs. Parse completes and checks them.
type Versions struct {
	Kubernetes string `json:"kubernetes"`
	// KubeletVersion is the version of the kubelets.
	KubeletVersion string `json:"kubeletVersion"`
	Kruise         string `json:"kruiseVersion"`
	// With names the addons, sorted and separated by commas.
	With string `json:"with,omitempty"`
}

// FromEnvironment returns the versions that the environment names, which may be incomplete.
func FromEnvironment() Versions {
	return Versions{
		Kubernetes: os.Getenv("K8S_VERSION"), KubeletVersion: os.Getenv("KUBELET_VERSION"),
		Kruise: os.Getenv("KRUISE_VERSION"),
		With:   os.Getenv("WITH"),
	}
}

// Parse completes the versions by the defaults, and each by its leading v. It fails if one is not supported here.
func (v Versions) Parse() (Versions, error) {
	var err error
	if v.Kubernetes, err = supported("kubernetes", cmp.Or(v.Kubernetes, DefaultKubernetes), kubernetesVersions); err != nil {
		return Versions{}, err
	}
	if v.KubeletVersion, err = supported("kubelet", cmp.Or(v.KubeletVersion, v.Kubernetes), kubeletVersions); err != nil {
		return Versions{}, err
	}
	if version.MustParseSemantic(v.Kubernetes).LessThan(version.MustParseSemantic(v.KubeletVersion)) {
		return Versions{}, fmt.Errorf("an API server %s does not support kubelet %s, which is newer", v.Kubernetes, v.KubeletVersion)
	}
	if v.Kruise, err = supported("OpenKruise", cmp.Or(v.Kruise, DefaultKruise), kruiseVersions); err != nil {
		return Versions{}, err
	}
	if _, v.With, err = addons.Parse(v.With); err != nil {
		return Versions{}, err
	}
	return v, nil
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
	if v.Kruise != DefaultKruise {
		text += ", OpenKruise " + v.Kruise
	}
	if v.With != "" {
		text += ", with " + strings.ReplaceAll(v.With, ",", " and ")
	}
	return text
}

// KubeletTool returns the tool that builds the kubelet. It builds all of Kubernetes.
func (v Versions) KubeletTool() Tool { return Kubernetes(v.KubeletVersion) }

// UpgradesKubelets reports whether the other versions differ only in newer kubelets.
func (v Versions) UpgradesKubelets(other Versions) bool {
	newer := version.MustParseSemantic(v.KubeletVersion).LessThan(version.MustParseSemantic(other.KubeletVersion))
	v.KubeletVersion = other.KubeletVersion
	return newer && v == other
}

// Addons returns the addons of the cluster.
func (v Versions) Addons() []addons.Addon {
	chosen, _, _ := addons.Parse(v.With)
	return chosen
}

// GainsAddons reports whether the other versions differ only in more addons.
func (v Versions) GainsAddons(other Versions) bool {
	others := strings.Split(other.With, ",")
	for name := range strings.SplitSeq(v.With, ",") {
		if name != "" && !slices.Contains(others, name) {
			return false
		}
	}
	more := v.With != other.With
	v.With = other.With
	return more && v == other
}

// HasKruise reports whether the cluster has OpenKruise when it comes up.
func (v Versions) HasKruise() bool { return v.Kruise != WithoutKruise }

// KruiseTool returns the tool that builds OpenKruise. A cluster without OpenKruise may get the default version later.
func (v Versions) KruiseTool() Tool {
	if !v.HasKruise() {
		return Kruise(DefaultKruise)
	}
	return Kruise(v.Kruise)
}
