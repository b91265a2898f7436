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
	// Directory is that of the tool module relative to hack/tools, if it has another name.
	Directory string
	// Packages maps the names of the binaries to the packages that they are built from. The names are unique in the cluster.
	Packages map[string]string
	// LinkerFlags are added to those that strip the programs.
	LinkerFlags string
	// Changes are source files of the module that differ when it is built.
	Changes map[string]Change
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
	// Sample is an object, in YAML, that the API server accepts once the addon's webhooks serve. It is optional.
	Sample string
}

// Change makes a source file from another one of the module, or from the file itself, in which Old occurs once and becomes New.
type Change struct{ From, Old, New string }

// Process is one program of an addon. Arguments, Environment and Config may contain placeholders:
//
//	{kubeconfig}    the kubeconfig of the service account
//	{config}        the file with Config
//	{certificates}  the directory with tls.crt and tls.key
//	{cluster}       the directory of the cluster
type Process struct {
	// Name is the name of the component: unique in the cluster. Binary is the program, if it has another name.
	Name, Binary string
	// Account is the service account that the process acts as, in the addon's namespace. Without one it is an administrator.
	Account     string
	Arguments   []string
	Environment []string
	// Config is the content of a file.
	Config string
	// Webhook is the server of webhooks in the process, if it has one.
	Webhook Webhook
	// Health is a URL that answers with status 200 once the process is ready.
	Health string
	// Node is the node that the process serves, if it serves one.
	Node string
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

// Lists of addons that have a name.
const (
	Every = "all"
	None  = "none"
)

// defaults are the addons of a cluster unless the list says None.
var defaults = []string{Kruise, VirtualNode}

// Names returns the names of all addons, sorted.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Parse returns the sorted names of the addons in a list with commas, and those that a cluster has by default.
func Parse(text string) ([]string, error) {
	names := slices.Clone(defaults)
	for name := range strings.SplitSeq(text, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case name == Every:
			names = Names()
		case name == None && strings.TrimSpace(text) == None:
			return nil, nil
		case all[name].Name == "":
			return nil, fmt.Errorf("there is no addon %s: choose from %s, or %s, or %s alone", name, strings.Join(Names(), ", "), Every, None)
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Find returns the addons with the names. OpenKruise has the version.
func Find(names []string, kruiseVersion string) []Addon {
	var found []Addon
	for _, name := range names {
		addon := all[name]
		if name == Kruise {
			addon = OpenKruise(kruiseVersion)
		}
		found = append(found, addon)
	}
	return found
}
