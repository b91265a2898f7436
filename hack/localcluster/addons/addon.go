// SPDX-License-Identifier: Apache-2.0

// Package addons says which further controllers a local cluster can have: tools that make pods. Each is one value in a file of its
// own. The package describes only; package toolchain builds the programs, and package cluster installs and runs them.
package addons

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Addon is a tool whose controllers run as processes of the cluster. Its objects come from the module's own manifests.
type Addon struct {
	// Name is what WITH calls it. The tool module is hack/tools/NAME-VERSION.
	Name string
	// Module and Version are those of the Go module that has the programs and the manifests.
	Module, Version string
	// Duration says how long a first build takes, for people who wait for it.
	Duration string
	// Packages maps the names of the binaries to the packages that they are built from. The names are unique in the cluster.
	Packages map[string]string
	// LinkerFlags are added to those that strip the programs.
	LinkerFlags string
	// Loopback builds programs that listen on the loopback interface where they would on every one. It is for programs without an
	// option for it.
	Loopback bool
	// Links are symbolic links in the repository of the module, as source files and their targets. A module does not have them.
	Links map[string]string
	// Namespace is where the addon's own objects live.
	Namespace string
	// SetNamespace says that the manifests have no namespace.
	SetNamespace bool
	// Manifests are patterns of files, or of directories with a kustomization, in the module. Deployments and what
	// belongs to them are left out, since the programs run as processes.
	Manifests []string
	// Edit changes an object before it is written. It is optional.
	Edit func(object *unstructured.Unstructured)
	// Processes run in this order.
	Processes []Process
	// Images are built from the binaries, for the pods that the addon makes.
	Images []Image
}

// Process is one program of an addon. Arguments, Environment and Config may contain placeholders:
//
//	{kubeconfig}    the kubeconfig of the service account
//	{config}        the file with Config
//	{certificates}  the directory with tls.crt and tls.key
type Process struct {
	// Name is the name of the component: unique in the cluster. Binary is the program, if it has another name.
	Name, Binary string
	// Account is the service account that the process acts as, in the addon's namespace.
	Account     string
	Arguments   []string
	Environment []string
	// Config is the content of a file.
	Config string
	// Webhook is the server of webhooks in the process, if it has one.
	Webhook Webhook
	// Ports are those that it listens on, without the webhook's. A process listens on the loopback interface only, unless it cannot
	// be told so.
	Ports []int
	// Health is a URL that answers with status 200 once the process is ready.
	Health string
}

// Webhook is how the API server reaches a process.
type Webhook struct {
	// Service is the name of the Service that the webhook configurations and definitions refer to.
	Service string
	Port    int
	// OwnCertificates says that the process makes its certificates and writes their authority into the webhook
	// configurations itself. Without it, the cluster's authority signs one.
	OwnCertificates bool
	// Secret is the Secret with the process's own certificates that it wants to find in {certificates}, as if it were
	// mounted. It is empty if the process reads the Secret itself.
	Secret string
}

// Image is an image with programs of the addon.
type Image struct {
	Reference string
	// Programs maps paths in the image, without the leading slash, to names of binaries.
	Programs map[string]string
	// Entrypoint is the command of its containers.
	Entrypoint []string
}

// BinaryName is the name of the process's program.
func (p Process) BinaryName() string { return cmp.Or(p.Binary, p.Name) }

var all = map[string]Addon{}

// add registers an addon. It is called once for each.
func add(addon Addon) Addon { //nolint:unparam // A variable of a package needs a value.
	all[addon.Name] = addon
	return addon
}

// All returns every addon, by name.
func All() []Addon {
	var sorted []Addon
	for _, name := range Names() {
		sorted = append(sorted, all[name])
	}
	return sorted
}

// Names returns the names of all addons, sorted.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Every is the name that stands for all addons.
const Every = "all"

// Parse returns the addons that a list with commas names, by name, and the list in its usual form.
func Parse(text string) (chosen []Addon, list string, err error) {
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		switch name = strings.TrimSpace(name); name {
		case "":
		case Every:
			names = append(names, Names()...)
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		addon, known := all[name]
		if !known {
			return nil, "", fmt.Errorf("there is no addon %s: choose from %s, or %s", name, strings.Join(Names(), ", "), Every)
		}
		chosen = append(chosen, addon)
	}
	return chosen, strings.Join(names, ","), nil
}
