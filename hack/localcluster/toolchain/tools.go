// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/hack/localcluster/addons"
)

// Tool is a set of programs built from one tool module, a directory below hack/tools.
type Tool struct {
	// Name is the program's name and version, and both the directory of the tool
	// module and of the cached binaries.
	Name string
	// Duration says how long a first build takes, for people who wait for it.
	Duration string
	// Packages maps the names of the binaries to the packages that they are built from.
	Packages map[string]string
	// LinkerFlags are given to the linker.
	LinkerFlags string
	// Module is the directory of the tool module, relative to the directory of all tool
	// modules, if it differs from the name.
	Module string
	// Links maps files of the module Source to the files with their content. They are symbolic links in its repository, which
	// modules do not have.
	Links  map[string]string
	Source string
	// Loopback says that the programs listen on the loopback interface where they would on every one: see overlay.AddLoopback.
	Loopback bool
}

// Kubernetes returns the tool that builds a supported version of Kubernetes.
func Kubernetes(version string) Tool {
	packages := map[string]string{}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet"} {
		packages[name] = "k8s.io/kubernetes/cmd/" + name
	}
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	const variable = "k8s.io/component-base/version."
	return Tool{
		Name:     "kubernetes-" + version,
		Duration: "5 minutes",
		Packages: packages,
		LinkerFlags: fmt.Sprintf("-s -w -X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s",
			variable, version, parts[0], parts[1]),
	}
}

// Etcd returns the tool that builds etcd.
func Etcd() Tool {
	return Tool{
		Name:        "etcd-v3.6.5",
		Duration:    "30 seconds",
		Packages:    map[string]string{"etcd": "go.etcd.io/etcd/server/v3"},
		LinkerFlags: "-s -w",
	}
}

// Kruise returns the tool that builds a supported version of OpenKruise's manager and daemon.
func Kruise(version string) Tool {
	return Tool{
		Name:     "kruise-" + version,
		Duration: "3 minutes",
		Packages: map[string]string{
			"kruise-manager": "github.com/openkruise/kruise",
			"kruise-daemon":  "github.com/openkruise/kruise/cmd/daemon",
		},
		LinkerFlags: "-s -w",
	}
}

// Addon returns the tool that builds the programs of an addon.
func Addon(addon addons.Addon) Tool {
	return Tool{
		Name: addon.Name + "-" + addon.Version, Duration: addon.Duration, Packages: addon.Packages,
		LinkerFlags: strings.TrimSpace("-s -w " + addon.LinkerFlags), Loopback: addon.Loopback,
		Links: addon.Links, Source: addon.Module,
	}
}

// VirtualNode returns the tool that builds the virtual node. Its version is the version
// of virtual-kubelet.
func VirtualNode() Tool {
	return Tool{
		Name:        "virtual-node-v1.13.0",
		Duration:    "2 minutes",
		Packages:    map[string]string{"virtual-node": "github.com/sidecar-termination/operator/e2e/virtualnode"},
		LinkerFlags: "-s -w",
		Module:      filepath.Join("..", "..", "e2e", "virtualnode"),
	}
}

// Version returns the part of the name behind the program's.
func (t Tool) Version() string {
	return t.Name[strings.LastIndex(t.Name, "-")+1:]
}

// Binaries returns the names of all binaries, sorted.
func (t Tool) Binaries() []string { return slices.Sorted(maps.Keys(t.Packages)) }
