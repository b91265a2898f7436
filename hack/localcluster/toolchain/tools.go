// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tool is a set of programs built from one tool module.
type Tool struct {
	// Name is the program's name and version, and the directory of the cached binaries. Directory is that of the tool module
	// relative to hack/tools, if it has another name.
	Name, Directory string
	// Duration says how long a first build takes, for people who wait for it.
	Duration string
	// Packages maps the names of the binaries to the packages that they are built from.
	Packages map[string]string
	// LinkerFlags are given to the linker, besides those that strip the programs.
	LinkerFlags string
	// Source is the module whose source is needed, at the version of the tool. It is optional.
	Source string
	// Change is a shell script that runs in a copy of the source, from which the programs are then built. It is optional.
	Change string
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
		Name:        "kubernetes-" + version,
		Duration:    "5 to 10 minutes",
		Packages:    packages,
		LinkerFlags: fmt.Sprintf("-X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s", variable, version, parts[0], parts[1]),
	}
}

// Etcd returns the tool that builds etcd.
func Etcd() Tool {
	return Tool{Name: "etcd-v3.7.0", Duration: "30 seconds", Packages: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"}}
}

// Version returns the part of the name behind the program's.
func (t Tool) Version() string { return t.Name[strings.LastIndex(t.Name, "-")+1:] }

// Binaries returns the names of all binaries, sorted.
func (t Tool) Binaries() []string { return slices.Sorted(maps.Keys(t.Packages)) }

func (t Tool) linkerFlags() string { return strings.TrimSpace("-s -w " + t.LinkerFlags) }
